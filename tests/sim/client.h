/* tests/sim/client.h - gRPC as net/exchange uses it, on the simulated network. Production's
 * net/exchange (session, links, requests) and net/rpc/bidi.c run unchanged. client.c replaces the
 * operations on calls below them. A completed operation is an event of its own, and `done` runs in
 * that event, as on the thread that polls gRPC's queue.
 * Messages are not encoded: a frame is a list of struct sim_msg, a unary request a C struct.
 * Owns:    the calls, for the run.
 * Threads: one.
 * Errors:  sim_fail: an answer's bytes changed, or a caller changed bytes in flight. */
#ifndef TESTS_SIM_CLIENT_H
#define TESTS_SIM_CLIENT_H
#include "net/exchange/exchange.h"
#include "tests/sim/net.h"

void clients_reset(void);
/* Passes an event of a node's call to the production code that waits for it. */
void client_reply(int node, struct sim_call *c);
void client_message(int node, struct net_stream *s, struct sim_msg *m);
void client_closed(int node, struct net_stream *s);
void client_operation(void *completion);
/* Ends all calls of a node that dies; none can start after it. */
void client_die(int node);
/* Notes the position of the first sample of the node's next contribution to the chunk. */
void client_set_position(int node, int chunk, uint64_t position);
/* Returns the values of a chunk as the exchange has received them. */
const float *client_params(const struct net_exchange *x, int chunk);
/* Returns the generation of the exchange, 0 before the first, and the ps 0 that planned it. */
uint64_t client_generation(const struct net_exchange *x, uint64_t *ps0);

#endif
