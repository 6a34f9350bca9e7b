/* ps/region/region_piece.h - the region's state of a chunk of the model.
 * Owns:    its references.
 * Threads: the region's lock guards it, except where a field states otherwise. */
#ifndef PS_REGION_REGION_PIECE_H
#define PS_REGION_REGION_PIECE_H
#include "base/buf.h"
#include <stdbool.h>
#include <stdint.h>

struct piece {
    int64_t waiting;  /* version that waits for adoption; -1: none */
    int64_t since_ns; /* time at which the version `waiting` began to wait */
    /* value of version `sent_at`, which was sent to the parent as the contribution; a reference */
    struct buf *sent;
    /* value of the job's last version while that version waits, a reference; or NULL */
    struct buf *last;
    int64_t sent_at; /* version whose value was contributed; -1: none */
    int64_t due;     /* next gate, at which a version adopts the parent's; -1: not known */
    bool proposed;   /* the chunk's initial value is in `base` */
    bool answered;   /* the parent has answered, so the version that waits must adopt the answer */
    int64_t adopted; /* last version of the region that adopted the parent's; 0: none */
    /* value from which the change was computed, a reference; NULL: the parent's value replaced the
     * version as a whole */
    struct buf *used;
    bool kept; /* the chunk had no turn, so its version is as it was computed */
    int mixed; /* see struct outer_adoption */
    /* the parent's version has `sent`; only the exchanging thread uses this, `given` and `rest` */
    bool counted;
    uint64_t heard_in; /* generation of another server's last report on the chunk */
    /* twice the number of the version in that report, plus 1 if the version waits */
    int64_t heard;
    struct buf *read; /* value of a chunk of another server, which that server sent on request */
    struct buf *proposal; /* initial value of the chunk, while `base` is in use */
    /* Steps of the parent in this round: the one that received the contribution, and the later one
     * that received the changes after it (at the job's end); -1: none. */
    int64_t given, rest;
    uint64_t given_in, rest_in; /* generations of the parent at the steps `given` and `rest` */
};

void region_rewind_init_pieces(struct piece *pieces, int n);
void region_rewind_drop_pieces(struct piece *pieces, int n); /* releases their references */

#endif
