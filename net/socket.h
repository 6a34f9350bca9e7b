/* net/socket.h - what is set on a connection's socket and gRPC has no argument for.
 * Owns: nothing. Threads: any. Errors: none; what cannot be set stays as the system has it. */
#ifndef NET_SOCKET_H
#define NET_SOCKET_H

/* 1 if this process has a connection to `peer` (as gRPC names it: "ipv4:127.0.0.1:51234") that
 * stays within this host, because both ends have the same address.
 *
 * Between two programs of one host there is no congestion to control, and a system whose default is
 * BBR paces every segment by a timer: on loopback that costs a third of the bandwidth and half as
 * much CPU time again. Sets Reno instead on those connections if they have BBR. */
int net_socket_tune(const char *peer);
/* 1 if the address is one of loopback: the peer is in this host's network namespace, though the two
 * ends may have different addresses. */
int net_socket_is_loopback(const char *peer);

#endif
