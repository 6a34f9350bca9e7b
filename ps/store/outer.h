/* ps/store/outer.h - connects a region's store with the exchange between regions
 * (ps/region/region.h): some versions are made only after other regions have answered.
 *
 * The value of such a version is computed before it waits. Until the version is made, its
 * contributors receive no answers, the version before it is the present one, and a stop leaves the
 * chunk at the version before it. Versions wait only in lockstep, and only if members do not
 * receive changes.
 *
 * Owns:    nothing.
 * Threads: any; the hooks are called under the chunk's lock, and do not call the store.
 * Errors:  ST_NOMEM. */
#ifndef PS_STORE_OUTER_H
#define PS_STORE_OUTER_H
#include "net/wire/payload.h"
#include "ps/store/store.h"
#include <stdbool.h>

struct outer_hooks {
    /* Returns nonzero if this version, of a job of train_steps, waits for outer_adopt. */
    int (*waits)(void *ctx, int64_t version, int64_t train_steps);
    /* Passes the value of a computed version; the value of a version that waits is provisional, and
     * changes in place. The callee adds a reference if it keeps the value. */
    void (*made)(void *ctx, int chunk, int64_t version, int waits, struct buf *value);
    /* Passes a member's initial value of a chunk, which is finite; outer_set_first later makes the
     * first version. */
    void (*first)(void *ctx, int chunk, const struct net_payload *value);
    /* Returns the version at which the optimizer's slots were zero: 0, or a later one if the region
     * began late. */
    int64_t (*slots_since)(void *ctx);
    void *ctx;
};

/* Sets the chunk's first version, with this number, and answers the members that wait for one; does
 * nothing if there is a version. value has n_elems floats. */
enum status outer_set_first(struct store *s, int chunk, int64_t version, const float *value);

/* Describes the value of a version that waited: the computed value if to and from are NULL, `to` if
 * only from is NULL; otherwise computed value + to - from or, if `mixed` is set, mix * computed
 * value + (1 - mix) * to. */
struct outer_adoption {
    const float *to, *from;
    int mixed;
    float mix; /* 0 to 1 */
};
/* Makes the version. Returns false if the chunk does not wait with this version. */
bool outer_adopt(struct store *s, int chunk, int64_t version, const struct outer_adoption *how);

#endif
