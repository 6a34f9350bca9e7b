/* net/rpc/listen.h - a server's port: bound, or why not. Private to net/.
 * Owns: nothing. Threads: the one that makes the server.
 * Errors: ST_INVALID (an address that is not ours, logged), ST_BUSY (in use, logged), ST_CANCELLED.
 */
#ifndef NET_RPC_LISTEN_H
#define NET_RPC_LISTEN_H
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/server.h"

/* ST_INVALID, logged: not host:port; without a port gRPC would choose its own. */
enum status net_listen_check(const char *addr);
/* certificate: a place for credentials_server. Binds all addresses that the checked addr names; a
 * name's may be bound in part, which is logged. Where one is in use, tries again for 10 s, if there
 * is a pause: its last user may be ending. */
enum status net_listen(grpc_server *server, const char *addr, const struct net_server_pause *pause,
                       _Atomic uint64_t *certificate, int *port);

#endif
