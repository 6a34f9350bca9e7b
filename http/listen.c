/* http/listen.c - see listen.h. */
#include "http/listen.h"
#include "base/hosts.h"
#include "base/log.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HOST_BYTES = 256, BACKLOG = 64 };

enum status http_listen_address(const char *bind, const char *own, int port,
                                char out[HTTP_ADDRESS_BYTES])
{
    const char *given = bind && *bind ? bind : NULL;
    const char *colon = own ? strrchr(own, ':') : NULL;
    int n = given   ? snprintf(out, HTTP_ADDRESS_BYTES, "%s:%d", given, port)
            : colon ? snprintf(out, HTTP_ADDRESS_BYTES, "%.*s:%d", (int)(colon - own), own, port)
                    : snprintf(out, HTTP_ADDRESS_BYTES, "127.0.0.1:%d", port);
    const char *problem = n >= HTTP_ADDRESS_BYTES ? "is too long" : hosts_problem(out);
    if (!problem)
        return ST_OK;
    LOG_E("--metrics_bind: '%.100s' is not a host (write an IPv6 address in brackets)",
          given ? given : out);
    return ST_INVALID;
}

static int bound(const struct addrinfo *a)
{
    const int one = 1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

/* Binds to an IPv4 address before an IPv6 one, because clients of localhost, which has both,
 * first try IPv4. */
static int bind_first(const struct addrinfo *list)
{
    const int families[] = {AF_INET, AF_INET6};
    int fd = -1, err = EADDRNOTAVAIL;
    for (size_t f = 0; f < 2; f++)
        for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            if (a->ai_family != families[f])
                continue;
            fd = bound(a);
            err = fd < 0 ? errno : 0;
        }
    errno = err;
    return fd;
}

enum status http_listen(const char *addr, int *fd)
{
    char host[HOST_BYTES];
    const char *colon = strrchr(addr, ':');
    int bracket = addr[0] == '[' && colon > addr + 1;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    snprintf(host, sizeof host, "%.*s", (int)(colon - addr) - 2 * bracket, addr + bracket);
    int failed = getaddrinfo(host, colon + 1, &hints, &list);
    if (failed) {
        LOG_E("--metrics_port: cannot listen on %s: %s", addr, gai_strerror(failed));
        return failed == EAI_MEMORY ? ST_NOMEM : ST_INVALID;
    }
    *fd = bind_first(list);
    int err = errno;
    freeaddrinfo(list);
    if (*fd >= 0)
        return ST_OK;
    if (err == EADDRINUSE)
        LOG_E(
            "--metrics_port: cannot listen on %s: the port is in use; each program of a host needs its own port",
            addr);
    else if (err == EACCES)
        LOG_E(
            "--metrics_port: cannot listen on %s: %s; only root may listen on a port below 1024, so choose a higher port",
            addr, strerror(err));
    else
        LOG_E(
            "--metrics_port: cannot listen on %s: %s; set --metrics_bind to an address of this host",
            addr, strerror(err));
    return err == EADDRINUSE ? ST_BUSY : err == EMFILE || err == ENOMEM ? ST_NOMEM : ST_INVALID;
}
