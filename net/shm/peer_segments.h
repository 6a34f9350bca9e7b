/* net/shm/peer_segments.h - holds the segments that members lend to a server, by the member number
 * in the members' frames (the rank). When a member joins, its segment is stored under its rank. The
 * segment is removed when the member leaves, when another member joins with the same rank, or when
 * the member's stream ends. So each rank has at most one segment.
 * Owns:    a reference to each segment.
 * Threads: any.
 * Errors:  none; if memory is missing, peer_segments_put keeps no segment and returns false. */
#ifndef NET_SHM_PEER_SEGMENTS_H
#define NET_SHM_PEER_SEGMENTS_H
#include "net/shm/segment.h"
#include <pthread.h>
#include <stdbool.h>

struct peer_segment {
    uint64_t incarnation;
    struct segment *segment; /* NULL: none */
};

struct peer_segments {
    pthread_mutex_t lock;      /* guards the fields below */
    struct peer_segment *list; /* entries, indexed by the member's rank */
    int n;
};

void peer_segments_init(struct peer_segments *l);
void peer_segments_free(struct peer_segments *l);
/* Opens the segments that the member names, which replace its previous ones. names[0]: the segment
 * that it lends to read; if its `bytes` is 0, the member lends none any more. names[1]: the segment
 * that it lends to write, or `bytes` is 0; if this one can be opened, it is added to the first one,
 * and *writes is true. Returns true if the member lends a segment to read now; otherwise `why`
 * contains the reason. */
bool peer_segments_put(struct peer_segments *l, int member, uint64_t incarnation,
                       const struct segment_name *names, bool *writes, char why[SEGMENT_WHY_BYTES]);
/* Returns the segment that this incarnation of the member lends, with a reference for the caller;
 * NULL: it lends none. */
struct segment *peer_segments_find(struct peer_segments *l, uint32_t member, uint64_t incarnation);
/* Drops the segment of a member whose stream has ended, unless another segment has replaced it
 * already. */
void peer_segments_drop(struct peer_segments *l, uint32_t member, const struct segment *segment);
/* Drops the segments of a member's incarnation, because it has left. */
void peer_segments_leave(struct peer_segments *l, uint64_t incarnation);

#endif
