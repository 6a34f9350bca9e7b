/* net/rpc/accept.c - see accept.h.
 *
 * If accept4 fails because no descriptor is free, gRPC (1.51) stops listening for ever. Every
 * connection uses a descriptor, even before the peer is checked. So this file defines accept4,
 * which gRPC calls by name, and closes a connection at once if that connection received one of the
 * last descriptors. The system assigns the lowest free number, so a descriptor's number shows how
 * many are in use.
 *
 * A connection costs gRPC a transport and threads' time, even if its client closes it at once. So
 * gRPC does not receive a connection that is closed already or whose host floods the server. */
#include "net/rpc/accept.h"
#include "base/log.h"
#include "net/rpc/environment.h"
#include "net/rpc/guarded_sockets.h"
#include "net/rpc/local_socket.h"
#include "net/security/security.h"
#include "net/security/tls_hooks.h"
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ACCEPT_LEAVE = 64 };

/* limit: a connection is accepted only if its descriptor is lower than this */
static _Atomic int room = INT_MAX;

/* Returns the limit on descriptors; 0: unknown, or too high to matter. */
static int limit_now(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > INT_MAX)
        return 0;
    return (int)limit.rlim_cur;
}

int net_accept_kept_descriptors(void)
{
    int n = limit_now() / 4;
    return n < ACCEPT_LEAVE ? n : ACCEPT_LEAVE;
}

void net_accept_keep_room(void)
{
    int limit = limit_now();
    if (limit > 0)
        atomic_store(&room, limit - net_accept_kept_descriptors());
}

static void log_refused(void)
{
    LOG_FEW(
        "a connection is refused: %d descriptors are in use; a higher limit (ulimit -n) makes room for more",
        atomic_load(&room));
}

/* Replaces the C library's function. After EINTR gRPC accepts the next connection; after EAGAIN
 * gRPC continues to listen. */
int accept4(int listener, struct sockaddr *restrict addr, socklen_t *restrict len, int flags)
{
    int fd = (int)syscall(SYS_accept4, listener, addr, len, flags);
    if (fd >= 0 && fd < atomic_load(&room)) {
        if (addr && !guarded_sockets_admits(fd, addr, *len)) {
            close(fd);
            errno = EINTR;
            return -1;
        }
        local_socket_tune(fd);
        if (addr && security_has_tls())
            tls_hooks_accepted(addr, *len);
        else if (addr)
            guarded_sockets_begin(fd, addr, *len);
        return fd;
    }
    if (fd >= 0) {
        close(fd);
        log_refused();
        errno = EINTR;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        log_refused();
        errno = EAGAIN;
    }
    return -1;
}
