/* net/rpc/channel.h - a client's channel to one server, on which it makes calls. The channel
 * connects when a call needs a connection. After a call that failed, the next call connects without
 * delay: gRPC's own pauses after a failed name look-up grow to two minutes, and no setting changes
 * that. The callers decide how often they repeat a call. Private to net/, like grpc_runtime.h.
 * Owns:    the gRPC channel; each call holds its own reference.
 * Threads: any; destroy is the last call.
 * Errors:  ST_NOMEM. */
#ifndef NET_RPC_CHANNEL_H
#define NET_RPC_CHANNEL_H
#include "net/rpc/grpc_runtime.h"
#include <stdbool.h>

struct net_channel;
/* Makes a channel to host:port. max_receive_bytes: longest message that it receives. */
enum status net_channel_create(const char *addr, int max_receive_bytes, struct net_channel **out);
/* Creates a call. method: static text such as "/weir.v1.Weir/Join". deadline_ms: from now on; 0:
 * none. */
grpc_call *net_channel_call(struct net_channel *c, grpc_completion_queue *queue, const char *method,
                            int64_t deadline_ms);
/* Stores the server's address, which is read from a call that the server has answered. From now on
 * a child that the process forks closes its copies of connections to that address. Tunes the
 * connections, and returns true if the server is near (local_socket.h). One thread at a time. */
bool net_channel_answered(struct net_channel *c, grpc_call *call);
void net_channel_destroy(struct net_channel *c); /* NULL is fine */

#endif
