/* net/exchange/fetch_client.h - requests chunks from the server that had them in the previous
 * generation.
 * Owns:    its channel.
 * Threads: one thread runs; any thread may cancel. A run blocks only its own thread.
 * Errors:  of a run: ST_UNAVAILABLE, ST_DEADLINE, ST_CANCELLED, ST_REFUSED (the server does not
 *          send them), ST_CORRUPT (a checksum), ST_PROTOCOL, ST_NOMEM, and any error that `receive`
 *          returns; not logged: `why` receives a sentence. */
#ifndef NET_EXCHANGE_FETCH_CLIENT_H
#define NET_EXCHANGE_FETCH_CLIENT_H
#include "net/wire/fetch.h"

/* A client that repeats its request to addr until every chunk has arrived, even if the server is
 * busy or cannot be reached. */
struct fetch_client;
enum status fetch_client_create(const char *addr, struct fetch_client **out);
void fetch_client_destroy(struct fetch_client *c); /* NULL is fine */
/* Calls `receive` for each chunk in the order of request->chunk; an error from it ends the run with
 * that error. stall_ms: the run returns ST_DEADLINE if no chunk arrives for this long (twice as
 * long if the request was for several chunks), however long the whole run lasts. Chunks that
 * `receive` has accepted stay with the caller. */
enum status fetch_client_run(struct fetch_client *c, const struct net_fetch_request *request,
                             int64_t stall_ms,
                             enum status (*receive)(void *ctx, const struct net_fetched *chunk),
                             void *ctx, char why[CONTROL_TEXT_BYTES]);
/* Ends the current run with ST_CANCELLED; if no run is active, the next one. */
void fetch_client_cancel(struct fetch_client *c);

#endif
