/* net/rpc/guarded_sockets.h - guards connections without TLS that a server has accepted: an
 * http2_guard (net/security/http2_guard.h) checks the bytes that gRPC reads and writes. Private to
 * net/.
 * Owns:    a guard for each descriptor that has ever been a client's connection, until the process
 *          ends.
 * Threads: any.
 * Errors:  none. If memory is missing, a connection is not guarded. */
#ifndef NET_RPC_GUARDED_SOCKETS_H
#define NET_RPC_GUARDED_SOCKETS_H
#include <stdbool.h>
#include <sys/socket.h>

/* Starts and ends guarding connections to a port of a server of this process. */
void guarded_sockets_add_port(int port);
void guarded_sockets_remove_port(int port);
/* Returns false if gRPC must not receive the connection that was accepted: its client has closed it
 * already, or its host is flooding (net/security/http2_guard.h). While a host floods, a client
 * without TLS whose first bytes are HTTP/2 is admitted, so that the host's workers can join. */
bool guarded_sockets_admits(int fd, const struct sockaddr *from, socklen_t n);
/* Guards an accepted connection if its port was added. */
void guarded_sockets_begin(int fd, const struct sockaddr *from, socklen_t n);

#endif
