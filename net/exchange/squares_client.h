/* net/exchange/squares_client.h - tells another server what this one's chunks add to a norm.
 * Owns:    its channel.
 * Threads: one calls, any cancels.
 * Errors:  ST_UNAVAILABLE, ST_DEADLINE, ST_CANCELLED, ST_PROTOCOL (it knows no such call, or would
 *          not take the message), ST_NOMEM; not logged, a sentence in `why`. */
#ifndef NET_EXCHANGE_SQUARES_CLIENT_H
#define NET_EXCHANGE_SQUARES_CLIENT_H
#include "base/status.h"
#include "net/wire/squares.h"

struct net_squares_client;
enum status net_squares_create(const char *addr, struct net_squares_client **out);
void net_squares_destroy(struct net_squares_client *c); /* NULL is fine */
enum status net_squares_call(struct net_squares_client *c, const struct net_squares *squares,
                             int64_t deadline_ms, struct net_squares_reply *reply,
                             char why[CONTROL_TEXT_BYTES]);
/* Ends the call under way with ST_CANCELLED; if there is none, the next. */
void net_squares_cancel(struct net_squares_client *c);

#endif
