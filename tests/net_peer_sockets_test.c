/* tests/net_peer_sockets_test.c - gRPC's text for a peer, the sockets that are connected to this
 * peer, and the memory of a segment in a forked child. */
#include "base/fork_guard.h"
#include "net/rpc/peer_sockets.h"
#include "net/shm/segment.h"
#include "tests/check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void text_of_a_peer_is_parsed(void **state)
{
    static const struct {
        const char *text, *host;
        int port;
    } good[] = {{"ipv4:10.0.0.7:2222", "::ffff:10.0.0.7", 2222},
                {"ipv6:[::1]:80", "::1", 80},
                {"ipv6:%5B::1%5D:65535", "::1", 65535},
                {"ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::1", 1},
                {"ipv6:[::ffff:10.0.0.7]:2222", "::ffff:10.0.0.7", 2222}};
    static const char *const bad[] = {"",           "unix:/tmp/s", "ipv4:10.0.0.7",
                                      "ipv4:a:1",   "ipv4::1",     "ipv4:10.0.0.7:65536",
                                      "ipv6:[]:22", "2222",        "ipv4:10.0.0.7:"};
    struct peer_socket_address a;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct in6_addr want;
        assert_int_equal(inet_pton(AF_INET6, good[i].host, &want), 1);
        assert_true(peer_sockets_read_address(good[i].text, &a));
        assert_memory_equal(&a.host, &want, sizeof want);
        assert_int_equal(ntohs(a.port), good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(peer_sockets_read_address(bad[i], &a));
        assert_int_equal(a.port, 0);
    }
}

static int listener(int family, char *text, size_t room)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    void *a = family == AF_INET ? (void *)&v4 : (void *)&v6;
    socklen_t n = family == AF_INET ? sizeof v4 : sizeof v6;
    int fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, a, n) != 0 || listen(fd, 4) != 0 || getsockname(fd, a, &n) != 0)
        return -1;
    snprintf(text, room, family == AF_INET ? "ipv4:127.0.0.1:%d" : "ipv6:[::1]:%d",
             ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port));
    return fd;
}

static int connected_to(int listening)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    assert_int_equal(getsockname(listening, (struct sockaddr *)&a, &n), 0);
    int fd = socket(a.ss_family, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, n), 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void only_sockets_of_that_peer_are_closed(void **state)
{
    char text[2][64];
    struct peer_socket_address a;
    for (int family = AF_INET, k = 0; k < 2; family = AF_INET6, k++) {
        int own = listener(family, text[0], sizeof text[0]);
        int other = listener(AF_INET, text[1], sizeof text[1]);
        if (own < 0 && family == AF_INET6)
            return; /* this host has no IPv6 */
        int first = connected_to(own), second = connected_to(own), third = connected_to(other);
        assert_true(peer_sockets_read_address(text[0], &a));
        peer_sockets_close(&a);
        assert_false(is_open(first) || is_open(second));
        assert_true(is_open(third) && is_open(own) && is_open(other));
        close(third);
        close(own);
        close(other);
    }
}

static void forked_child_has_zeros_for_a_segment(void **state)
{
    char why[SEGMENT_WHY_BYTES];
    struct segment_name name;
    struct segment *s, *peer;
    int status = -1;
    assert_int_equal(segment_create(8192, &s, why), ST_OK);
    segment_name_of(s, &name);
    assert_int_equal(segment_open(&name, &peer, why), ST_OK);
    char *data = segment_data(s);
    const char *seen = segment_at(peer, 0, 6);
    memcpy(data, "hello", 6);
    pid_t pid = fork();
    if (pid == 0) {
        int left = is_open((int)name.fd) || data[0] || seen[0];
        data[0] = 'x';
        _exit(left);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_string_equal(seen, "hello");
    segment_unref(peer);
    segment_unref(s);
}

static int calls;

static void count(struct fork_guard *g)
{
    calls++;
}

static void guards_of_removed_objects_are_not_called(void **state)
{
    struct fork_guard g[4] = {{NULL, NULL, NULL}};
    int status = -1;
    for (int i = 0; i < 3; i++)
        fork_guard_add(&g[i], count);
    fork_guard_remove(&g[1]);
    fork_guard_remove(&g[1]);
    fork_guard_remove(&g[3]); /* never added */
    pid_t pid = fork();
    if (pid == 0)
        _exit(calls);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 2);
    assert_int_equal(calls, 0);
    fork_guard_remove(&g[2]);
    fork_guard_remove(&g[0]);
}

int main(void)
{
    return RUN_TESTS(text_of_a_peer_is_parsed, only_sockets_of_that_peer_are_closed,
                     forked_child_has_zeros_for_a_segment,
                     guards_of_removed_objects_are_not_called);
}
