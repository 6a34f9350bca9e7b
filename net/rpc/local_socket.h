/* net/rpc/local_socket.h - tunes TCP connections that stay within this host, and recognises near
 * peers.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  none; a setting that the system refuses stays as it is. */
#ifndef NET_RPC_LOCAL_SOCKET_H
#define NET_RPC_LOCAL_SOCKET_H
#include <stdbool.h>

/* Replaces BBR by Reno on a connection whose two ends have the same address. Such a connection has
 * no congestion, and BBR sends its segments by a timer, which costs CPU time. */
void local_socket_tune(int fd);
/* Returns true if the shortest round trip of the connection so far lasted less than
 * LOCAL_SOCKET_NEAR_US. */
bool local_socket_is_near(int fd);

enum { LOCAL_SOCKET_NEAR_US = 500 };

#endif
