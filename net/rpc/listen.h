/* net/rpc/listen.h - binds a server's port, or reports why that fails. Private to net/.
 * Owns:    nothing.
 * Threads: only the thread that creates the server.
 * Errors:  ST_INVALID (an address that this host does not have), ST_BUSY (in use), ST_NOMEM (no
 *          descriptor is free), all logged; ST_CANCELLED. */
#ifndef NET_RPC_LISTEN_H
#define NET_RPC_LISTEN_H
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/server.h"

/* Checks that addr is host:port; otherwise returns ST_INVALID, logged. Without a port gRPC would
 * choose one. */
enum status net_listen_check(const char *addr);
/* Binds all addresses that the checked addr names. If addr is a name, binding some of its addresses
 * is enough, and the failures are logged. If an address is in use and pause->wait is set, tries
 * again for 10 s, because the program that uses the address may be about to exit. certificate:
 * argument of credentials_server. */
enum status net_listen(grpc_server *server, const char *addr, const struct net_server_pause *pause,
                       _Atomic uint64_t *certificate, int *port);

#endif
