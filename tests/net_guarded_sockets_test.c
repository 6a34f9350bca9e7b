/* tests/net_guarded_sockets_test.c - the end of a client that the guard cuts off. Its connection
 * stays open, and its bytes unread. If gRPC waits by poll(), which would report the unread bytes
 * again and again, the connection ends. */
#include "net/rpc/guarded_sockets.h"
#include "net/security/http2_guard.h"
#include "tests/check.h"
#include "tests/fake_time.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sends a header block of too many frames over a new connection to a guarded port. Returns the
 * errno of a read at the server's side. */
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

    uint8_t bytes[HTTP2_PREFACE_BYTES + (HTTP2_MAX_BLOCK_FRAMES + 2) * HTTP2_HEAD_BYTES] = {0};
    memcpy(bytes, http2_frames_preface, HTTP2_PREFACE_BYTES);
    bytes[HTTP2_PREFACE_BYTES + 3] = HTTP2_SETTINGS;
    for (int i = 0; i <= HTTP2_MAX_BLOCK_FRAMES; i++) {
        uint8_t *head = bytes + HTTP2_PREFACE_BYTES + (i + 1) * HTTP2_HEAD_BYTES;
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

static void first_valid_poll_strategy_decides(void **state)
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].list)
            setenv("GRPC_POLL_STRATEGY", cases[i].list, 1);
        else
            unsetenv("GRPC_POLL_STRATEGY");
        assert_int_equal(errno_of_a_client_that_is_cut_off(), cases[i].err);
    }
}

/* Connects to a new guarded port of the loopback host, and returns the server's side. */
static int accept_one(int *client, const uint8_t *bytes, size_t n_bytes, struct sockaddr_in *from)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    guarded_sockets_add_port(ntohs(at.sin_port));
    assert_int_equal(connect(*client, (struct sockaddr *)&at, n), 0);
    assert_int_equal(send(*client, bytes, n_bytes, 0), n_bytes);
    int fd = accept(listener, (struct sockaddr *)from, &n);
    assert_true(fd >= 0);
    close(listener);
    return fd;
}

static bool is_admitted(const uint8_t *bytes, size_t n_bytes, bool is_closed)
{
    struct sockaddr_in from;
    int client, fd = accept_one(&client, bytes, n_bytes, &from);
    if (is_closed)
        close(client);
    bool is_in = guarded_sockets_admits(fd, (struct sockaddr *)&from, sizeof from);
    close(fd);
    if (!is_closed)
        close(client);
    return is_in;
}

static void flooding_host_is_admitted_with_http2_alone(void **state)
{
    uint8_t bytes[HTTP2_PREFACE_BYTES + HTTP2_HEAD_BYTES] = {0};
    memcpy(bytes, http2_frames_preface, HTTP2_PREFACE_BYTES);
    bytes[HTTP2_PREFACE_BYTES + 3] = HTTP2_SETTINGS;
    fake_time_stop();
    assert_true(is_admitted(bytes, 0, false));
    for (int i = 0; i < HTTP2_MAX_UNUSED; i++)
        assert_false(is_admitted(bytes, sizeof bytes, true));
    assert_true(is_admitted(bytes, 0, false));
    assert_false(is_admitted(bytes, 0, true));
    assert_false(is_admitted(bytes, 0, false));
    assert_false(is_admitted(bytes, HTTP2_PREFACE_BYTES, false));
    assert_false(is_admitted(bytes, sizeof bytes, true));
    assert_true(is_admitted(bytes, sizeof bytes, false));
    fake_time_move(1000);
    assert_true(is_admitted(bytes, 0, false));
    fake_time_release();
}

int main(void)
{
    return RUN_TESTS(first_valid_poll_strategy_decides, flooding_host_is_admitted_with_http2_alone);
}
