/* net/exchange/fetch_client.h - asks another server for the chunks that it had before.
 * Owns:    its channel.
 * Threads: one runs, any cancels. A run blocks its thread and nobody else.
 * Errors:  of a run: ST_UNAVAILABLE, ST_DEADLINE, ST_CANCELLED, ST_REFUSED (the server does not
 *          hand them on), ST_CORRUPT (a checksum), ST_PROTOCOL, ST_NOMEM, and what `take` returns;
 *          not logged, a sentence in `why`. */
#ifndef NET_EXCHANGE_FETCH_CLIENT_H
#define NET_EXCHANGE_FETCH_CLIENT_H
#include "net/wire/fetch.h"

/* Asks addr until it has everything: a server that is busy or away is asked again. */
struct fetch_client;
enum status fetch_client_create(const char *addr, struct fetch_client **out);
void fetch_client_destroy(struct fetch_client *c); /* NULL is fine */
/* take: called in the order of request->chunk; another answer than ST_OK ends the run with it.
 * stall_ms: ST_DEADLINE if no chunk comes for so long (twice that, where several were to come in
 * one message), however long the run takes; what was taken before is the caller's. */
enum status fetch_client_run(struct fetch_client *c, const struct net_fetch_request *request,
                             int64_t stall_ms,
                             enum status (*take)(void *ctx, const struct net_fetched *chunk),
                             void *ctx, char why[CONTROL_TEXT_BYTES]);
/* Ends the run under way with ST_CANCELLED; if there is none, the next. */
void fetch_client_cancel(struct fetch_client *c);

#endif
