/* net/security/peer_address.c - see peer_address.h. */
#include "net/security/peer_address.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

void peer_address_set(struct peer_address *a, const struct sockaddr *from, socklen_t n)
{
    static const unsigned char mapped[12] = {
        [10] = 0xff, [11] = 0xff}; /* prefix of an IPv4 address in IPv6 */
    char host[INET6_ADDRSTRLEN] = "?";
    const void *ipv4 = NULL;
    int port = 0;
    *a = (struct peer_address){.host = 0};
    if (from->sa_family == AF_INET && n >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        ipv4 = &in->sin_addr;
        port = ntohs(in->sin_port);
    } else if (from->sa_family == AF_INET6 && n >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)from;
        port = ntohs(in->sin6_port);
        if (memcmp(&in->sin6_addr, mapped, sizeof mapped) == 0)
            ipv4 = in->sin6_addr.s6_addr + sizeof mapped;
        else
            inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        memcpy(&a->host, &in->sin6_addr, sizeof a->host);
    }
    if (ipv4) {
        uint32_t number;
        memcpy(&number, ipv4, sizeof number);
        a->host = (uint64_t)1 << 32 | number;
        inet_ntop(AF_INET, ipv4, host, sizeof host);
    }
    snprintf(a->text, sizeof a->text, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}
