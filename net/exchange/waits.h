/* net/exchange/waits.h - waits for the first chunk that becomes ready, and reports which server the
 * callers of an exchange wait for, and why.
 * Threads: any.
 * Errors:  those of net_exchange_wait. */
#ifndef NET_EXCHANGE_WAITS_H
#define NET_EXCHANGE_WAITS_H
#include "net/rpc/bidi.h"
#include "net/wire/control.h"
#include <stdbool.h>
#include <stdint.h>

struct net_exchange;

struct net_exchange_wait {
    int64_t ms; /* time since the last answer, or, if that is shorter, since the first of the
                   waiting calls (net_exchange_start or _wait) began; 0: no caller waits */
    int server; /* server whose answer the callers wait for */
    char address[CONTROL_TEXT_BYTES];
    char reason[BIDI_REASON_BYTES]; /* reason why this server is not connected or makes this member
                                       wait; empty: it is connected, or has not answered yet */
    bool is_asked;                  /* the reason is the text that the server sent */
    bool is_said; /* a log line within `ms` has named a server that cannot be reached */
    int64_t step; /* step that all chunks have reached; -1: unknown, as between generations */
    uint64_t generation;
};

/* Waits like net_exchange_wait, but only until one of the chunks i with skip[i] == 0 is ready.
 * *chunk: the lowest ready chunk of these. skip ([n_chunks]) leaves at least one chunk. */
enum status net_exchange_wait_any(struct net_exchange *x, const uint8_t *skip, int64_t step,
                                  int *chunk);
void net_exchange_waits(struct net_exchange *x, struct net_exchange_wait *out);

#endif
