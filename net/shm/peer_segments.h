/* net/shm/peer_segments.h - the segments that members lend a server, by the number that their
 * frames bear (their rank): filled at a join, emptied when the member leaves, another joins in its
 * place or its stream ends. So there is at most one for each number.
 * Owns:    a reference to each segment.
 * Threads: any. Errors: none; without memory a segment is not kept, see peer_segments_put. */
#ifndef NET_SHM_PEER_SEGMENTS_H
#define NET_SHM_PEER_SEGMENTS_H
#include "net/shm/segment.h"
#include <pthread.h>

struct peer_segment {
    uint64_t incarnation;
    struct segment *segment; /* NULL: none */
};

struct peer_segments {
    pthread_mutex_t lock;      /* guards what follows */
    struct peer_segment *list; /* by member */
    int n;
};

void peer_segments_init(struct peer_segments *l);
void peer_segments_free(struct peer_segments *l);
/* Opens what the member names, in the place of what it lent before; without a name (bytes 0) it
 * lends nothing any more. 1 if it lends now; else why says what hindered. */
int peer_segments_put(struct peer_segments *l, int member, uint64_t incarnation,
                      const struct segment_name *name, char why[SEGMENT_WHY_BYTES]);
/* What this incarnation lends, with a reference for the caller; NULL: nothing. */
struct segment *peer_segments_find(struct peer_segments *l, uint32_t member, uint64_t incarnation);
/* The member's stream has ended: forgets the segment, unless another is in its place already. */
void peer_segments_drop(struct peer_segments *l, uint32_t member, const struct segment *segment);
/* This incarnation has left. */
void peer_segments_leave(struct peer_segments *l, uint64_t incarnation);

#endif
