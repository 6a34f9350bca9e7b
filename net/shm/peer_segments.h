/* net/shm/peer_segments.h - the segments that members lend a server, by the number that their
 * frames bear (their rank): filled at a join, emptied when the member leaves, another joins in its
 * place or its stream ends. So there is at most one for each number.
 * Owns:    a reference to each segment.
 * Threads: any. Errors: none; without memory a segment is not kept, see lenders_put. */
#ifndef NET_SHM_PEER_SEGMENTS_H
#define NET_SHM_PEER_SEGMENTS_H
#include "net/shm/segment.h"
#include <pthread.h>

struct lender {
    uint64_t incarnation;
    struct net_shared *segment; /* NULL: none */
};

struct lenders {
    pthread_mutex_t lock; /* guards what follows */
    struct lender *list;  /* by member */
    int n;
};

void lenders_init(struct lenders *l);
void lenders_free(struct lenders *l);
/* Opens what the member names, in the place of what it lent before; without a name (bytes 0) it
 * lends nothing any more. 1 if it lends now; else why says what hindered. */
int lenders_put(struct lenders *l, int member, uint64_t incarnation,
                const struct net_shared_name *name, char why[SHARED_WHY_BYTES]);
/* What this incarnation lends, with a reference for the caller; NULL: nothing. */
struct net_shared *lenders_find(struct lenders *l, uint32_t member, uint64_t incarnation);
/* The member's stream has ended: forgets the segment, unless another is in its place already. */
void lenders_drop(struct lenders *l, uint32_t member, const struct net_shared *segment);
/* This incarnation has left. */
void lenders_leave(struct lenders *l, uint64_t incarnation);

#endif
