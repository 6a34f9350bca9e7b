/* ps/service/join_queue.h - those who want to join and have no place in the plan: a list of
 * bounded length. Who has not been heard of for a while is dropped. Where the list is full,
 * whoever comes from the host with most entries has to make room: one that floods it displaces its
 * own.
 * Owns:    its entries. Threads: none; under its user's lock. Errors: none. */
#ifndef PS_SERVICE_JOIN_QUEUE_H
#define PS_SERVICE_JOIN_QUEUE_H
#include <stdint.h>

enum { WAITING_MAX = 256, WAITING_HEARD_MS = 10000 };

struct ps_waiter {
    int member; /* index that it asked for, or was given */
    uint64_t incarnation;
    int64_t heard_ns;
    char peer[96];    /* host:port that it came from */
    char address[96]; /* as it names its host; may be empty */
};

struct ps_waiting {
    int n;
    struct ps_waiter waiter[WAITING_MAX];
};

/* Drops those who were not heard of in time. */
void ps_waiting_tidy(struct ps_waiting *w, int64_t now_ns);
/* NULL: it is not there. */
struct ps_waiter *ps_waiting_find(struct ps_waiting *w, uint64_t incarnation);
/* NULL: nobody with this index waits. */
struct ps_waiter *ps_waiting_member(struct ps_waiting *w, int member);
/* Notes one that was heard of now, in the place of an earlier one of its incarnation or index. */
void ps_waiting_put(struct ps_waiting *w, const struct ps_waiter *who);
void ps_waiting_drop(struct ps_waiting *w, struct ps_waiter *who);

#endif
