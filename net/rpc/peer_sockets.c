/* net/rpc/peer_sockets.c - see peer_sockets.h. */
#include "net/rpc/peer_sockets.h"
#include "net/rpc/local_socket.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FDS_WITHOUT_PROC = 1024 };

static struct in6_addr mapped(struct in_addr a)
{
    struct in6_addr out = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&out.s6_addr[12], &a, sizeof a);
    return out;
}

/* Parses the host in [from, to), with or without brackets. */
static bool read_host(const char *from, const char *to, struct in6_addr *out)
{
    char host[INET6_ADDRSTRLEN];
    struct in_addr v4;
    if (*from == '[')
        from++;
    else if (strncmp(from, "%5B", 3) == 0)
        from += 3;
    size_t n = strcspn(from, "]%");
    if (n > (size_t)(to - from))
        n = (size_t)(to - from);
    if (n >= sizeof host)
        return false;
    memcpy(host, from, n);
    host[n] = 0;
    if (inet_pton(AF_INET6, host, out) == 1)
        return true;
    if (inet_pton(AF_INET, host, &v4) != 1)
        return false;
    *out = mapped(v4);
    return true;
}

bool peer_sockets_read_address(const char *text, struct peer_socket_address *out)
{
    const char *host = strchr(text, ':'), *port = strrchr(text, ':');
    long n = port ? strtol(port + 1, NULL, 10) : 0;
    *out = (struct peer_socket_address){.port = 0};
    if (!host || port == host || n < 1 || n > 65535 || !read_host(host + 1, port, &out->host))
        return false;
    out->port = htons((uint16_t)n);
    return true;
}

/* Returns true if the descriptor is a socket that is connected to that address. */
static bool is_connected(int fd, const struct peer_socket_address *p)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t n = sizeof a;
    struct peer_socket_address of_fd = {.port = 0};
    if (getpeername(fd, &a.any, &n) != 0)
        return false;
    if (a.any.sa_family == AF_INET)
        of_fd = (struct peer_socket_address){mapped(a.v4.sin_addr), a.v4.sin_port};
    else if (a.any.sa_family == AF_INET6)
        of_fd = (struct peer_socket_address){a.v6.sin6_addr, a.v6.sin6_port};
    return of_fd.port == p->port && memcmp(&of_fd.host, &p->host, sizeof p->host) == 0;
}

/* Calls fn for each descriptor of this process that is a socket connected to that address. */
static void for_each(const struct peer_socket_address *p, void (*fn)(void *ctx, int fd), void *ctx)
{
    if (p->port == 0)
        return;
    DIR *d = opendir("/proc/self/fd");
    for (int fd = 0; !d && fd < FDS_WITHOUT_PROC; fd++)
        if (is_connected(fd, p))
            fn(ctx, fd);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && is_connected(atoi(e->d_name), p))
            fn(ctx, atoi(e->d_name));
    if (d)
        closedir(d);
}

static void close_one(void *ctx, int fd)
{
    close(fd);
}

void peer_sockets_close(const struct peer_socket_address *p)
{
    for_each(p, close_one, NULL);
}

struct counts {
    int all, near;
};

static void tune_one(void *ctx, int fd)
{
    struct counts *n = ctx;
    local_socket_tune(fd);
    n->all++;
    n->near += local_socket_is_near(fd);
}

bool peer_sockets_tune(const struct peer_socket_address *p)
{
    struct counts n = {0, 0};
    for_each(p, tune_one, &n);
    return n.all > 0 && n.near == n.all;
}
