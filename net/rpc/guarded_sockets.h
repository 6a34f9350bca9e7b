/* net/rpc/guarded_sockets.h - connections without TLS that a server has accepted, each followed by
 * an http2_guard (net/security/http2_guard.h) while gRPC reads and writes it. Private to net/.
 * Owns:    a guard for each descriptor that was a client's once, for the life of the process.
 * Threads: any.
 * Errors:  none. Without memory a connection is not guarded. */
#ifndef NET_RPC_GUARDED_SOCKETS_H
#define NET_RPC_GUARDED_SOCKETS_H
#include <stdbool.h>
#include <sys/socket.h>

/* Starts, and ends, the guarding of connections to a port of a server of this process. */
void guarded_sockets_add_port(int port);
void guarded_sockets_remove_port(int port);
/* Returns false if gRPC must not receive the connection that was accepted: its client has closed it
 * already, or its host is flooding (net/security/http2_guard.h). While a host floods, a client
 * without TLS whose first bytes are HTTP/2 is let in, so that the host's workers can join. */
bool guarded_sockets_admits(int fd, const struct sockaddr *from, socklen_t n);
/* Guards a connection that was accepted, if it is one to such a port. */
void guarded_sockets_begin(int fd, const struct sockaddr *from, socklen_t n);

#endif
