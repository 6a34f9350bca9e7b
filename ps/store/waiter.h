/* ps/store/waiter.h - what one member waits for, and did last, at one chunk: who is owed an answer,
 * and which contribution was the last that counted.
 * Owns:    a reference to `base`.
 * Threads: none of its own; the store keeps it under its chunk's lock. Errors: none. */
#ifndef PS_STORE_WAITER_H
#define PS_STORE_WAITER_H
#include "base/buf.h"
#include "kernels/vector/dtype.h"
#include "net/wire/frame.h"
#include <stdint.h>

struct waiter {
    uint64_t pusher;    /* incarnation that waits for its push's answer; 0: none */
    uint64_t push_from; /* on which stream */
    int64_t push_step;
    enum piece_kind push_kind; /* of the answer */
    int64_t push_ns;           /* when it came */
    uint64_t puller;           /* incarnation that waits for version pull_step; 0: none */
    uint64_t pull_from;
    int64_t pull_step;
    enum dtype pull_dtype;
    uint64_t counted_by;  /* identity of the last contribution that counted */
    int64_t counted_step; /* likewise; -1: none did */
    int64_t clock;        /* contributions that counted, of all incarnations */
    struct buf *base;     /* delay compensation: the version that was sent last, a reference */
    int64_t base_version;
};

#endif
