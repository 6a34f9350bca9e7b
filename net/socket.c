/* net/socket.c - see socket.h. gRPC neither hands out its sockets nor has a public way to set them
 * up (its socket mutator is private), so they are looked for among this process's descriptors by
 * the address of their peer. One that is closed meanwhile, and its number used again, is at worst
 * another connection of ours within this host. */
#include "net/socket.h"
#include "base/log.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { NAME_BYTES = INET6_ADDRSTRLEN + 16 };

/* "ipv4:1.2.3.4:5" or "ipv6:[::1]:5", the host alone in `host`; 0: another family. */
static int name_of(const struct sockaddr_storage *a, char name[NAME_BYTES], char host[NAME_BYTES])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    char text[INET6_ADDRSTRLEN];
    unsigned port;
    const char *form = "ipv4:%s:%u";
    if (a->ss_family == AF_INET) {
        inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
        port = ntohs(v4->sin_port);
    } else if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text, sizeof text);
        port = ntohs(v6->sin6_port);
    } else if (a->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
        port = ntohs(v6->sin6_port);
        form = "ipv6:[%s]:%u";
    } else {
        return 0;
    }
    snprintf(name, NAME_BYTES, form, text, port);
    snprintf(host, NAME_BYTES, "%s", text);
    return 1;
}

/* gRPC writes "ipv6:%5B::1%5D:5" and "ipv4:1.2.3.4:5". */
static void unescape(const char *peer, char out[NAME_BYTES])
{
    size_t n = 0;
    for (; *peer && n + 1 < NAME_BYTES; n++) {
        int is_open = !strncmp(peer, "%5B", 3), is_close = !strncmp(peer, "%5D", 3);
        out[n] = is_open ? '[' : is_close ? ']' : *peer;
        peer += is_open || is_close ? 3 : 1;
    }
    out[n] = 0;
}

/* 1 if it is a connection to the peer, within this host. */
static int tune(int fd, const char *peer)
{
    struct sockaddr_storage there, here;
    socklen_t n = sizeof there, m = sizeof here;
    char name[NAME_BYTES], host[NAME_BYTES], own[NAME_BYTES], own_host[NAME_BYTES];
    char algorithm[16] = "";
    socklen_t k = sizeof algorithm - 1;
    if (getpeername(fd, (struct sockaddr *)&there, &n) < 0 ||
        getsockname(fd, (struct sockaddr *)&here, &m) < 0)
        return 0;
    if (!name_of(&there, name, host) || !name_of(&here, own, own_host) || strcmp(name, peer) ||
        strcmp(host, own_host))
        return 0;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, &k) == 0 &&
        !strncmp(algorithm, "bbr", 3) &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0)
        LOG_D("%s is on this host: Reno instead of %s", peer, algorithm);
    return 1;
}

int net_socket_is_loopback(const char *peer)
{
    char name[NAME_BYTES];
    unescape(peer, name);
    return !strncmp(name, "ipv4:127.", 9) || !strncmp(name, "ipv6:[::1]:", 11);
}

int net_socket_tune(const char *peer)
{
    int local = 0;
    char wanted[NAME_BYTES];
    unescape(peer, wanted);
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        char *end;
        long fd = strtol(e->d_name, &end, 10);
        if (end != e->d_name && !*end && fd != dirfd(dir))
            local |= tune((int)fd, wanted);
    }
    closedir(dir);
    return local;
}
