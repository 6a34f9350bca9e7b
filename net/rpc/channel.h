/* net/rpc/channel.h - a client's way to one server, whose calls it makes. It connects when a call
 * needs it, and with the next call after one that failed it begins afresh: gRPC's own pauses after
 * a name that did not resolve grow to two minutes, which no setting changes. How often calls are
 * repeated is the callers' to decide. Private to net/, as grpc_runtime.h.
 * Owns:    the gRPC channel; each call holds its own reference.
 * Threads: any; destroy comes last.
 * Errors:  ST_NOMEM. */
#ifndef NET_RPC_CHANNEL_H
#define NET_RPC_CHANNEL_H
#include "net/rpc/grpc_runtime.h"

struct net_channel;
/* To host:port. max_receive_bytes: of one message. */
enum status net_channel_create(const char *addr, int max_receive_bytes, struct net_channel **out);
/* method: static, as "/weir.v1.Weir/Join". deadline_ms: from now on; 0: none. */
grpc_call *net_channel_call(struct net_channel *c, grpc_completion_queue *queue, const char *method,
                            int64_t deadline_ms);
/* Notes where the server is, by a call of the channel that it has answered: from now on a child
 * that the process forks closes its copies of connections to there. One thread at a time. */
void net_channel_answered(struct net_channel *c, grpc_call *call);
void net_channel_destroy(struct net_channel *c); /* NULL is fine */

#endif
