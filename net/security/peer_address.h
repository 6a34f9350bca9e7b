/* net/security/peer_address.h - holds the address of a connected client: as text for the log, and
 * as a number that all connections from the client's host share. All addresses of one IPv6 network
 * (/64) count as one host, since a single machine can use all of them.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef NET_SECURITY_PEER_ADDRESS_H
#define NET_SECURITY_PEER_ADDRESS_H
#include <stdint.h>
#include <sys/socket.h>

enum { PEER_ADDRESS_BYTES = 64 };

struct peer_address {
    char text[PEER_ADDRESS_BYTES]; /* "10.0.0.7:51234", "[fe80::1]:51234" */
    uint64_t host;
};

void peer_address_set(struct peer_address *a, const struct sockaddr *from, socklen_t n);

#endif
