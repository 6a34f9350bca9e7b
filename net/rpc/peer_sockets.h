/* net/rpc/peer_sockets.h - finds the sockets that gRPC has open to a server by the address that
 * they are connected to, because gRPC does not expose them. A forked child closes its copies of the
 * sockets in this way. While any process has a copy, the server considers the client alive, even if
 * the client has exited.
 * Threads: any.
 * Errors:  none. */
#ifndef NET_RPC_PEER_SOCKETS_H
#define NET_RPC_PEER_SOCKETS_H
#include <netinet/in.h>
#include <stdbool.h>

struct peer_socket_address {
    struct in6_addr host; /* IPv4: mapped */
    in_port_t port;       /* network order; 0: not known */
};

/* Reads gRPC's text of a peer, "ipv4:10.0.0.7:2222" or "ipv6:%5B::1%5D:2222". Returns false, and
 * sets port 0, for any other text. */
bool peer_sockets_read_address(const char *text, struct peer_socket_address *out);
/* Closes all descriptors of this process that are sockets connected to that address. Sends nothing
 * to the server, so other processes can still use these connections. */
void peer_sockets_close(const struct peer_socket_address *p);
/* Tunes these sockets (local_socket.h). Returns true if there is at least one, and the peer is near
 * according to each of them. */
bool peer_sockets_tune(const struct peer_socket_address *p);

#endif
