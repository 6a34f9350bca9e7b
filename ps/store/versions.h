/* ps/store/versions.h - contributions, and the versions that they make. This header belongs to
 * chunk_state.h, and is private to this folder. The caller holds the chunk's lock. */
#ifndef PS_STORE_VERSIONS_H
#define PS_STORE_VERSIONS_H
#include "ps/store/chunk_state.h"
#include <stdbool.h>

/* A contribution to the next version. */
struct contribution {
    int member;
    int slot; /* number of this contribution among those of the version */
    const struct net_payload *payload;
    float weight;
    /* marks of the gradients that the contribution lacks (lacking.h); NULL: it has all */
    const uint8_t *lacking;
    /* Version that the contribution was computed on, by which its delay is compensated; NULL: no
     * compensation, or the present version. */
    const struct buf *base;
    int64_t now_ns;
};
/* Adds a contribution. The last one makes the version; but in lockstep it begins the update, and
 * with clipping by the norm it makes the chunk wait for the norm. *made is nonzero if there is a
 * new version. ST_INVALID: element *bad of the contribution is not finite, or too large to be
 * summed. After ST_INVALID and ST_NOMEM nothing has changed. */
enum status version_contribute(struct store *s, struct chunk_state *c,
                               const struct contribution *from, int *made, size_t *bad);
/* Begins the update of a chunk that waits for the norm of step `step`. The update uses `factor`
 * times the mean gradient; if factor is 0, the new version equals the version before. Returns
 * false if the chunk does not wait for that norm, or is stopped. */
bool version_begin_clipped(struct store *s, struct chunk_state *c, int64_t step, double factor);
/* Makes the computed next version, whose buffers then belong to the chunk. Returns false if the
 * version waits for other regions. */
bool version_make(struct store *s, struct chunk_state *c, const struct chunk_version *next);
/* Makes the version that waited for other regions, after its value was changed. */
void version_make_adopted(struct store *s, struct chunk_state *c);
/* Sets the first version of a chunk that has none; v's buffers then belong to the chunk. */
void version_set_first(struct chunk_state *c, struct chunk_version *v, int64_t version);
/* Allocates the buffers of a version. For a first version, version_encode fills its wire form once
 * the value is set. */
enum status version_reserve(struct store *s, const struct chunk_state *c, struct chunk_version *v);
void version_encode(const struct chunk_state *c, struct chunk_version *v);
/* Returns the kept version with this number, or NULL. */
const struct chunk_version *version_find(const struct chunk_state *c, int64_t number);
bool version_is_kept(const struct chunk_state *c, int64_t number);
/* Sets *out to new references to the value, slots and counts of the kept version with this number;
 * chunk_version_drop ends them. Returns false if the version is not kept. */
bool version_hold(const struct chunk_state *c, int64_t number, struct chunk_version *out);
/* Releases all versions of a chunk, which makes no further ones. */
void version_drop_all(struct chunk_state *c);

#endif
