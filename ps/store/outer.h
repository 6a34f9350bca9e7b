/* ps/store/outer.h - connects a region's store with the exchange between regions
 * (ps/region/region.h): some versions are made only after other regions have answered.
 *
 * Such a version waits with its value computed, like one that waits for the norm: its contributors
 * have not received their answers, the version before is the present one, and a stop ends the chunk
 * there. This exists in lockstep alone, and not where members receive changes.
 *
 * Owns:    nothing.
 * Threads: any; the hooks are called under the chunk's lock, and do not call the store.
 * Errors:  ST_NOMEM. */
#ifndef PS_STORE_OUTER_H
#define PS_STORE_OUTER_H
#include "net/wire/frame.h"
#include "ps/store/store.h"
#include <stdbool.h>

struct outer_hooks {
    /* Returns nonzero if this version, of a job of train_steps, waits for outer_adopt. */
    int (*waits)(void *ctx, int64_t version, int64_t train_steps);
    /* Passes the value of a computed version; the value of a version that waits is provisional, and
     * changes in place. The callee adds a reference if it keeps the value. */
    void (*made)(void *ctx, int chunk, int64_t version, int waits, struct buf *value);
    /* Passes a member's first value of a chunk, finite; outer_set_first makes a version of it. */
    void (*first)(void *ctx, int chunk, const struct net_payload *value);
    /* Returns the version at which the optimizer's slots were zero: 0, or that of a late region. */
    int64_t (*slots_since)(void *ctx);
    void *ctx;
};

/* Sets the chunk's first version, with this number, and answers the members that wait for one; does
 * nothing if there is a version. value has n_elems floats. */
enum status outer_set_first(struct store *s, int chunk, int64_t version, const float *value);

/* Describes how a chunk's version that waits is made. `from` NULL: its value becomes `to`; else the
 * computed value plus `to` minus `from`; both NULL: the computed value. If `mixed` is set, so are
 * to and from: the value is `mix` of the computed one, and the rest of `to`. */
struct outer_adoption {
    const float *to, *from;
    int mixed;
    float mix; /* 0 to 1 */
};
/* Makes the version. Returns false if the chunk does not wait with this version. */
bool outer_adopt(struct store *s, int chunk, int64_t version, const struct outer_adoption *how);

#endif
