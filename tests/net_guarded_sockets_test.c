/* tests/net_guarded_sockets_test.c - the end of a client that is cut off: its connection stays
 * open, unread, unless gRPC waits by poll(), which would report the unread bytes again and again.
 */
#include "net/rpc/guarded_sockets.h"
#include "net/security/http2_guard.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after its needs */
#include <cmocka.h>

/* Sends a header block of too many frames over a new connection to a guarded port, and returns the
 * errno with which the server's side is read. */
static int errno_of_a_client_that_is_cut_off(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *addr = (struct sockaddr *)&at;
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, addr, n), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, addr, &n), 0);
    int port = ntohs(at.sin_port);
    guarded_sockets_add_port(port);
    assert_int_equal(connect(client, addr, n), 0);
    int fd = accept(listener, addr, &n);
    assert_true(fd >= 0);
    guarded_sockets_begin(fd, addr, n);

    uint8_t bytes[HTTP2_PREFACE_BYTES + (HTTP2_MAX_BLOCK_FRAMES + 1) * HTTP2_HEAD_BYTES] = {0};
    for (int i = 0; i <= HTTP2_MAX_BLOCK_FRAMES; i++) {
        uint8_t *head = bytes + HTTP2_PREFACE_BYTES + i * HTTP2_HEAD_BYTES;
        head[3] = i == 0 ? HTTP2_HEADERS : HTTP2_CONTINUATION;
        head[8] = 1;
    }
    assert_int_equal(send(client, bytes, sizeof bytes, 0), sizeof bytes);
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t got;
    while ((got = recvmsg(fd, &m, 0)) > 0)
        ;
    int err = errno;
    assert_int_equal(got, -1);
    guarded_sockets_remove_port(port);
    shutdown(fd, SHUT_RDWR);
    close(fd);
    close(client);
    close(listener);
    return err;
}

static void the_first_known_poll_strategy_decides(void **state)
{
    static const struct {
        const char *list;
        int err;
    } cases[] = {
        {"poll", ECONNRESET},
        {"epollex,poll", ECONNRESET},
        {"poll,epoll1", ECONNRESET},
        {"poll-cv,epoll1", EAGAIN},
        {"pollex,all,poll", EAGAIN},
        {"epoll1,poll", EAGAIN},
        {"all", EAGAIN},
        {"poll-cv,poll", ECONNRESET},
        {NULL, EAGAIN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].list)
            setenv("GRPC_POLL_STRATEGY", cases[i].list, 1);
        else
            unsetenv("GRPC_POLL_STRATEGY");
        assert_int_equal(errno_of_a_client_that_is_cut_off(), cases[i].err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_known_poll_strategy_decides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
