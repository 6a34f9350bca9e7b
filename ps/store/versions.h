/* ps/store/versions.h - contributions, and the versions that they make; a part of chunk_state.h,
 * and private to this folder like it. Under the chunk's lock. */
#ifndef PS_STORE_VERSIONS_H
#define PS_STORE_VERSIONS_H
#include "ps/store/chunk_state.h"

/* A contribution to the next version. */
struct contribution {
    int member;
    int slot; /* its number among those that make the version */
    const struct net_payload *payload;
    float weight;
    const struct buf *base; /* the version that it was computed on, to compensate its delay; NULL:
                               none, or it is the present one */
    int64_t now_ns;
};
/* Adds it; the last one makes the version, or with clipping by the norm makes the chunk wait for
 * that. *made: 1: there is a new version. ST_INVALID: element *bad of it is not finite, or too
 * large to be added up. On that and on ST_NOMEM nothing has changed. */
enum status version_contribute(struct store *s, struct chunk_state *c,
                               const struct contribution *from, int *made, size_t *bad);
/* A chunk that waits for the norm of step `step`: its version, of `factor` times the mean gradient;
 * 0: the one before. 1: it is made; 0: this chunk does not wait, or has ended, or waits on. */
int version_finish(struct store *s, struct chunk_state *c, int64_t step, double factor);
/* The version that waits for other regions, now that its value is changed. */
void version_make_adopted(struct store *s, struct chunk_state *c);
/* The first version of a chunk that has none; takes over v's buffers. */
void version_set_first(struct chunk_state *c, struct chunk_version *v, int64_t version);
/* Room for a version, and of a first one its form for the wire once the value is there. */
enum status version_reserve(struct store *s, const struct chunk_state *c, struct chunk_version *v);
void version_encode(const struct chunk_state *c, struct chunk_version *v);
/* Of the two versions that are kept the one of this number; NULL: it is neither. */
const struct chunk_version *version_find(const struct chunk_state *c, int64_t number);

#endif
