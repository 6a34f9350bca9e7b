/* net/rpc/reach.c - see reach.h. */
#include "net/rpc/reach.h"
#include "base/clock.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HOST_BYTES = 256 };

static bool accepts(const struct addrinfo *a, int64_t deadline_ns)
{
    int error = 0, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t n = sizeof error;
    if (fd < 0)
        return false;
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
        int64_t ms = (deadline_ns - clock_now_ns()) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        error = errno;
        if (error == EINPROGRESS && poll(&p, 1, ms > 0 ? (int)ms : 0) == 1)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    }
    close(fd);
    return error == 0;
}

/* Resolves host:port. Returns getaddrinfo's error; 0: the caller frees the list. */
static int resolve(const char *addr, struct addrinfo **list)
{
    char host[HOST_BYTES];
    const char *colon = strrchr(addr, ':');
    int bracket = addr[0] == '[' && colon > addr + 1;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    if (!colon || colon - addr >= HOST_BYTES)
        return EAI_NONAME;
    snprintf(host, sizeof host, "%.*s", (int)(colon - addr - 2 * bracket), addr + bracket);
    return getaddrinfo(host, colon + 1, &hints, list);
}

int64_t reach_resolve_ms(const char *addr)
{
    struct addrinfo *list = NULL;
    int64_t began_ns = clock_now_ns();
    int error = resolve(addr, &list);
    if (error == 0)
        freeaddrinfo(list);
    return error == EAI_AGAIN ? -1 : (clock_now_ns() - began_ns) / 1000000;
}

bool reach_is_listening(const char *addr, int64_t ms)
{
    struct addrinfo *list = NULL;
    int64_t deadline_ns = clock_deadline_ns(ms);
    bool is = false;
    if (resolve(addr, &list) != 0)
        return false;
    for (const struct addrinfo *a = list; a && !is; a = a->ai_next)
        is = accepts(a, deadline_ns);
    freeaddrinfo(list);
    return is;
}
