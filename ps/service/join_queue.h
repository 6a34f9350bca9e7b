/* ps/service/join_queue.h - list of the processes that ask to join and have no place in the plan.
 * Its length is bounded. An entry expires when its process has not asked for a while. If the list
 * is full, a new entry replaces one of the host with the most entries, so that a host that floods
 * the list displaces its own entries.
 * Owns:    its entries.
 * Threads: none; its user's lock guards it.
 * Errors:  none. */
#ifndef PS_SERVICE_JOIN_QUEUE_H
#define PS_SERVICE_JOIN_QUEUE_H
#include <stdint.h>

enum { JOIN_QUEUE_MAX = 256, JOIN_QUEUE_EXPIRY_MS = 10000 };

struct join_queue_entry {
    int member; /* index that the process asked for or received */
    uint64_t incarnation;
    int64_t heard_ns;
    char peer[96];    /* address (host:port) that the process connected from */
    char address[96]; /* name by which the process calls its host; may be empty */
};

struct join_queue {
    int n;
    struct join_queue_entry waiter[JOIN_QUEUE_MAX];
};

/* Drops the entries whose process did not ask again in time. */
void join_queue_expire(struct join_queue *w, int64_t now_ns);
/* Returns the entry of the incarnation, or NULL. */
struct join_queue_entry *join_queue_find(struct join_queue *w, uint64_t incarnation);
/* Returns the entry with this index, or NULL. */
struct join_queue_entry *join_queue_find_member(struct join_queue *w, int member);
/* Adds an entry, or replaces the entry with the same incarnation or index. */
void join_queue_put(struct join_queue *w, const struct join_queue_entry *who);
void join_queue_drop(struct join_queue *w, struct join_queue_entry *who);

#endif
