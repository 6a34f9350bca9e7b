/* ps/region/region_piece.h - a chunk of the model, as a region sees it.
 * Owns: its references. Threads: under the region's lock, but for what a field says. */
#ifndef PS_REGION_REGION_PIECE_H
#define PS_REGION_REGION_PIECE_H
#include "base/buf.h"
#include <stdint.h>

struct piece {
    int64_t waiting;  /* the version that waits for adoption; -1: none */
    int64_t since_ns; /* time at which it began to wait */
    struct buf *sent; /* what is contributed: the value of version `sent_at`; a reference */
    struct buf *last; /* the value of the job's last version that waits, a reference; or NULL */
    int64_t sent_at;  /* -1: nothing */
    int64_t due;      /* next gate, at which a version adopts the parent's; -1: not known */
    int proposed;     /* its first value is in `base` */
    int answered;     /* the parent has answered, so the region must adopt its version */
    int64_t adopted;  /* last version of the region that adopted the parent's; 0: none */
    struct buf *used; /* what its change was counted from, a reference; NULL: it is the parent's */
    int kept;         /* or, 1, it was made as it was computed: it had no turn */
    int mixed;        /* as struct outer_adoption has it */
    int counted; /* the parent has what is `sent`; this and the next: of the exchanging thread */
    uint64_t heard_in;    /* of another server's chunk: the generation of what it told last, */
    int64_t heard;        /* and twice its version, plus 1 if that waits */
    struct buf *read;     /* likewise: its value, as it was asked for */
    struct buf *proposal; /* its first value, where `base` is not free yet */
    int64_t given, rest; /* in this round, to which of the parent's steps: that, and what was learnt
                            since (at the job's end); -1: to none */
};

void region_rewind_init_pieces(struct piece *pieces, int n);
void region_rewind_drop_pieces(struct piece *pieces, int n); /* what they hold */

#endif
