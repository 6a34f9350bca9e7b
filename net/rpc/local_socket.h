/* net/rpc/local_socket.h - tunes TCP connections that stay within this host.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  none; a setting that the system refuses stays as it is. */
#ifndef NET_RPC_LOCAL_SOCKET_H
#define NET_RPC_LOCAL_SOCKET_H

/* Replaces BBR by Reno on a connection whose two ends have the same address. Such a connection has
 * no congestion, and BBR sends its segments by a timer, which costs CPU time. */
void local_socket_tune(int fd);

#endif
