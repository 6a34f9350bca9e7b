/* ps/store/waiter.h - one member's state at one chunk: the answers owed to it, and its last
 * contribution that counted.
 * Owns:    a reference to `base`.
 * Threads: none of its own; the store keeps it under its chunk's lock.
 * Errors:  none. */
#ifndef PS_STORE_WAITER_H
#define PS_STORE_WAITER_H
#include "base/buf.h"
#include "kernels/vector/dtype.h"
#include "net/wire/frame.h"
#include <stdbool.h>
#include <stdint.h>

struct waiter {
    uint64_t pusher;    /* incarnation that waits for its push's answer; 0: none */
    uint64_t push_from; /* stream of the push */
    int64_t push_step;
    enum piece_kind push_kind; /* kind of the answer */
    int64_t push_ns;           /* time of the push */
    /* the push permits the server to write versions to its sender's values */
    bool may_place;
    uint64_t placed_by; /* incarnation whose values have version `placed` of the chunk */
    int64_t placed;
    uint64_t puller; /* incarnation that waits for version pull_step; 0: none */
    uint64_t pull_from;
    int64_t pull_step;
    enum dtype pull_dtype;
    uint64_t counted_by;  /* incarnation of the last contribution that counted */
    int64_t counted_step; /* step of that contribution; -1: none */
    int64_t clock;        /* contributions that counted, of all incarnations */
    struct buf *base;     /* delay compensation: the version that was sent last, a reference */
    int64_t base_version;
};

#endif
