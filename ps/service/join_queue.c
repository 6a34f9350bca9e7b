/* ps/service/join_queue.c - see join_queue.h. */
#include "ps/service/join_queue.h"
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

void join_queue_drop(struct join_queue *w, struct join_queue_entry *who)
{
    *who = w->waiter[--w->n];
}

void join_queue_expire(struct join_queue *w, int64_t now_ns)
{
    for (int i = w->n - 1; i >= 0; i--)
        if (now_ns - w->waiter[i].heard_ns > JOIN_QUEUE_EXPIRY_MS * 1000000LL)
            join_queue_drop(w, &w->waiter[i]);
}

struct join_queue_entry *join_queue_find(struct join_queue *w, uint64_t incarnation)
{
    for (int i = 0; i < w->n; i++)
        if (w->waiter[i].incarnation == incarnation)
            return &w->waiter[i];
    return NULL;
}

struct join_queue_entry *join_queue_find_member(struct join_queue *w, int member)
{
    for (int i = 0; i < w->n; i++)
        if (w->waiter[i].member == member)
            return &w->waiter[i];
    return NULL;
}

/* Returns the length of the host in "ipv4:10.0.0.7:51234", without the port. */
static size_t host_bytes(const char *peer)
{
    const char *colon = strrchr(peer, ':');
    return colon ? (size_t)(colon - peer) : strlen(peer);
}

static bool same_host(const char *a, const char *b)
{
    size_t n = host_bytes(a);
    return n == host_bytes(b) && memcmp(a, b, n) == 0;
}

static int count_host(const struct join_queue *w, const char *peer)
{
    int n = 0;
    for (int i = 0; i < w->n; i++)
        n += same_host(w->waiter[i].peer, peer);
    return n;
}

/* Returns the entry to replace: among the entries of the host that has the most, the entry with the
 * oldest last request. If several hosts have the most entries and the newcomer's host is one of
 * them, the entry is of the newcomer's host. */
static struct join_queue_entry *weakest(struct join_queue *w, const char *newcomer)
{
    struct join_queue_entry *weakest = NULL;
    const char *host = newcomer;
    int most = count_host(w, newcomer);
    for (int i = 0; i < w->n; i++) {
        int n = count_host(w, w->waiter[i].peer);
        if (n > most) {
            most = n;
            host = w->waiter[i].peer;
        }
    }
    for (int i = 0; i < w->n; i++)
        if (same_host(w->waiter[i].peer, host) &&
            (!weakest || w->waiter[i].heard_ns < weakest->heard_ns))
            weakest = &w->waiter[i];
    return weakest;
}

void join_queue_put(struct join_queue *w, const struct join_queue_entry *who)
{
    struct join_queue_entry *place = join_queue_find(w, who->incarnation);
    struct join_queue_entry *same = join_queue_find_member(w, who->member);
    if (same && place && same != place) {
        join_queue_drop(w, same);
        place = join_queue_find(w, who->incarnation);
    }
    if (!place)
        place = same;
    if (!place && w->n == JOIN_QUEUE_MAX)
        place = weakest(w, who->peer);
    if (!place)
        place = &w->waiter[w->n++];
    *place = *who;
}
