/* ps/store/outer.h - what a region's store is told, and tells, of the other regions
 * (ps/region/region.h): some versions are not made before these have been heard.
 *
 * Such a version waits with its value computed, as one that waits for the norm does: whoever has
 * contributed is owed its answer, the version before is the present one, and a stop ends the chunk
 * there. In lockstep alone, and not where members are sent changes.
 *
 * Owns:    nothing. Threads: any; the hooks are called under the chunk's lock, and do not call the
 *          store. Errors: ST_NOMEM. */
#ifndef PS_STORE_OUTER_H
#define PS_STORE_OUTER_H
#include "net/wire/frame.h"
#include "ps/store/store.h"

struct outer_hooks {
    /* 1: this version, of a job of train_steps, waits for outer_adopt. */
    int (*waits)(void *ctx, int64_t version, int64_t train_steps);
    /* The value of a version that was computed; of one that waits, as it is so far, and will be
     * changed in place. A reference is the callee's to take. */
    void (*made)(void *ctx, int chunk, int64_t version, int waits, struct buf *value);
    /* A member's first value of a chunk, finite; it becomes one by outer_set_first. */
    void (*first)(void *ctx, int chunk, const struct net_payload *value);
    /* The version at which the optimizer's slots were zero: 0, or of a region that came late. */
    int64_t (*slots_since)(void *ctx);
    void *ctx;
};

/* The chunk's first version, with this number, and whoever waits for one is answered; nothing if it
 * has one. value: its n_elems floats. */
enum status outer_set_first(struct store *s, int chunk, int64_t version, const float *value);

/* How the chunk's version that waits is made. `from` NULL: its value becomes `to`; else what was
 * computed plus to less from; both NULL: as it was computed. mixed: with to and from: `mix` of what
 * was computed, and the rest of `to`. */
struct outer_adoption {
    const float *to, *from;
    int mixed;
    float mix; /* 0 to 1 */
};
/* Makes it; 0: the chunk does not wait with this version. */
int outer_adopt(struct store *s, int chunk, int64_t version, const struct outer_adoption *how);

#endif
