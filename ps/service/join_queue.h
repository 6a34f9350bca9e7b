/* ps/service/join_queue.h - those who want to join and have no place in the plan: a list of
 * bounded length. Who has not been heard of for a while is dropped. Where the list is full,
 * whoever comes from the host with most entries has to make room: one that floods it displaces its
 * own.
 * Owns:    its entries. Threads: none; under its user's lock. Errors: none. */
#ifndef PS_SERVICE_JOIN_QUEUE_H
#define PS_SERVICE_JOIN_QUEUE_H
#include <stdint.h>

enum { JOIN_QUEUE_MAX = 256, JOIN_QUEUE_EXPIRY_MS = 10000 };

struct join_queue_entry {
    int member; /* index that it asked for, or was given */
    uint64_t incarnation;
    int64_t heard_ns;
    char peer[96];    /* host:port that it came from */
    char address[96]; /* as it names its host; may be empty */
};

struct join_queue {
    int n;
    struct join_queue_entry waiter[JOIN_QUEUE_MAX];
};

/* Drops those who were not heard of in time. */
void join_queue_expire(struct join_queue *w, int64_t now_ns);
/* NULL: it is not there. */
struct join_queue_entry *join_queue_find(struct join_queue *w, uint64_t incarnation);
/* NULL: nobody with this index waits. */
struct join_queue_entry *join_queue_find_member(struct join_queue *w, int member);
/* Notes one that was heard of now, in the place of an earlier one of its incarnation or index. */
void join_queue_put(struct join_queue *w, const struct join_queue_entry *who);
void join_queue_drop(struct join_queue *w, struct join_queue_entry *who);

#endif
