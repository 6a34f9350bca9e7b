/* net/rpc/guarded_sockets.c - see guarded_sockets.h.
 *
 * gRPC (1.51) calls recvmsg, sendmsg and shutdown by name, and the dynamic linker finds the
 * functions of this file. gRPC shuts down each of its sockets before it closes the socket: from
 * then on the descriptor's number may belong to another connection, and is not guarded. Calls for
 * all other descriptors, for example a client's, pass through unchanged.
 *
 * If the connection of a client that is cut off were closed, the client could connect again at
 * once, and so keep the server busy. So the connection stays open, but is no longer read: the
 * client waits for room to send. The client may close it. Otherwise gRPC's keepalive, whose ping is
 * not answered, closes it within half a minute.
 *
 * If the client has opened no stream, its connection is closed, since an open connection would cost
 * the server a descriptor and gRPC's state. accept4 limits how often its host may connect again. */
#include "net/rpc/guarded_sockets.h"
#include "net/rpc/environment.h"
#include "net/security/http2_guard.h"
#include "net/security/security.h"
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCK = 256, BLOCKS = 4096, PORTS = 65536, WORD = 64 };

struct socket {
    _Atomic bool is_guarded;
    struct http2_guard guard;
};

/* each block has BLOCK descriptors; NULL: none of them was ever guarded */
static struct socket *_Atomic blocks[BLOCKS];
static _Atomic uint64_t ports[PORTS / WORD]; /* bit of each port */
/* True if gRPC waits by poll(). poll() would report unread bytes again and again; epoll reports
 * them only once. */
static _Atomic bool is_poll;

void guarded_sockets_add_port(int port)
{
    atomic_store(&is_poll, net_environment_is_poll());
    if (port > 0 && port < PORTS)
        atomic_fetch_or(&ports[port / WORD], (uint64_t)1 << port % WORD);
}

void guarded_sockets_remove_port(int port)
{
    if (port > 0 && port < PORTS)
        atomic_fetch_and(&ports[port / WORD], ~((uint64_t)1 << port % WORD));
}

static bool is_to_our_port(int fd)
{
    struct sockaddr_storage to;
    socklen_t n = sizeof to;
    int port = 0;
    if (getsockname(fd, (struct sockaddr *)&to, &n) < 0)
        return false;
    if (to.ss_family == AF_INET)
        port = ntohs(((const struct sockaddr_in *)&to)->sin_port);
    else if (to.ss_family == AF_INET6)
        port = ntohs(((const struct sockaddr_in6 *)&to)->sin6_port);
    return atomic_load(&ports[port / WORD]) >> port % WORD & 1;
}

/* Returns true if the bytes that have arrived are the beginning of HTTP/2. */
static bool has_begun(int fd)
{
    uint8_t bytes[HTTP2_PREFACE_BYTES + HTTP2_HEAD_BYTES];
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 && http2_frames_has_begun(bytes, (size_t)n);
}

bool guarded_sockets_admits(int fd, const struct sockaddr *from, socklen_t n)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    struct peer_address address;
    if (!is_to_our_port(fd))
        return true;
    peer_address_set(&address, from, n);
    bool is_closed = poll(&p, 1, 0) > 0;
    if (is_closed)
        http2_guard_count_unused(&address);
    bool is_flooding = http2_guard_is_flooding(&address);
    return !is_closed && (!is_flooding || (!security_has_tls() && has_begun(fd)));
}

/* Returns the block of a descriptor, which is created if necessary; NULL: no memory. */
static struct socket *block_of(int fd)
{
    struct socket *_Atomic *place = &blocks[fd / BLOCK];
    struct socket *block = atomic_load(place), *made;
    if (block || !(made = calloc(BLOCK, sizeof *made)))
        return block;
    for (int i = 0; i < BLOCK; i++)
        http2_guard_init(&made[i].guard);
    if (atomic_compare_exchange_strong(place, &block, made))
        return made;
    free(made);
    return block;
}

void guarded_sockets_begin(int fd, const struct sockaddr *from, socklen_t n)
{
    struct peer_address address;
    struct socket *block = fd < BLOCK * BLOCKS && is_to_our_port(fd) ? block_of(fd) : NULL;
    if (!block)
        return;
    peer_address_set(&address, from, n);
    http2_guard_begin(&block[fd % BLOCK].guard, &address);
    atomic_store_explicit(&block[fd % BLOCK].is_guarded, true, memory_order_release);
}

/* Returns the state of a guarded descriptor; NULL: the descriptor is not guarded. */
static struct socket *socket_of(int fd)
{
    struct socket *block = NULL;
    if (fd >= 0 && fd < BLOCK * BLOCKS)
        block = atomic_load_explicit(&blocks[fd / BLOCK], memory_order_acquire);
    if (!block || !atomic_load_explicit(&block[fd % BLOCK].is_guarded, memory_order_acquire))
        return NULL;
    return &block[fd % BLOCK];
}

/* Reports to gRPC only the end of a client that is cut off, and none of its bytes. Reduces the
 * socket's receive buffer, so that the kernel stores little of the client's further data. */
static ssize_t read_nothing(int fd, struct http2_guard *g)
{
    const int least = 1;
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
    bool is_end = atomic_load(&is_poll) || !atomic_load(&g->has_opened) || poll(&p, 1, 0) > 0;
    errno = is_end ? ECONNRESET : EAGAIN;
    return -1;
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    struct socket *s = flags & (MSG_ERRQUEUE | MSG_PEEK) ? NULL : socket_of(fd);
    if (s && http2_guard_is_cut(&s->guard))
        return read_nothing(fd, &s->guard);
    ssize_t n = (ssize_t)syscall(SYS_recvmsg, fd, m, flags);
    size_t left = s && n > 0 ? (size_t)n : 0;
    for (size_t i = 0; left > 0; i++) {
        size_t part = m->msg_iov[i].iov_len < left ? m->msg_iov[i].iov_len : left;
        if (!http2_guard_received(&s->guard, m->msg_iov[i].iov_base, part))
            return read_nothing(fd, &s->guard);
        left -= part;
    }
    return n;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    ssize_t n = (ssize_t)syscall(SYS_sendmsg, fd, m, flags);
    struct socket *s = n > 0 ? socket_of(fd) : NULL;
    size_t left = s ? (size_t)n : 0;
    for (size_t i = 0; left > 0; i++) {
        size_t part = m->msg_iov[i].iov_len < left ? m->msg_iov[i].iov_len : left;
        http2_guard_sent(&s->guard, m->msg_iov[i].iov_base, part);
        left -= part;
    }
    return n;
}

int shutdown(int fd, int how)
{
    struct socket *s = socket_of(fd);
    if (s && atomic_exchange(&s->is_guarded, false))
        http2_guard_end(&s->guard);
    return (int)syscall(SYS_shutdown, fd, how);
}
