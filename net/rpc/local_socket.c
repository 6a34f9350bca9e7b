/* net/rpc/local_socket.c - see local_socket.h. */
#include "net/rpc/local_socket.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool is_same_host(const union address *a, const union address *b)
{
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family == AF_INET)
        return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    return a->any.sa_family == AF_INET6 &&
           memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof a->v6.sin6_addr) == 0;
}

void local_socket_tune(int fd)
{
    static const char reno[] = "reno", bbr[] = "bbr";
    char algorithm[16] = "";
    union address here, there;
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there, n = sizeof algorithm - 1;
    if (getsockname(fd, &here.any, &here_bytes) < 0 ||
        getpeername(fd, &there.any, &there_bytes) < 0 || !is_same_host(&here, &there) ||
        getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, &n) < 0)
        return;
    if (strncmp(algorithm, bbr, sizeof bbr - 1) == 0) /* later versions have a suffix */
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof reno - 1);
}

bool local_socket_is_near(int fd)
{
    struct tcp_info t;
    socklen_t n = sizeof t;
    memset(&t, 0, sizeof t);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &n) == 0 &&
           n >= offsetof(struct tcp_info, tcpi_min_rtt) + sizeof t.tcpi_min_rtt &&
           t.tcpi_min_rtt < LOCAL_SOCKET_NEAR_US;
}
