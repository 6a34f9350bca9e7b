/* tests/net_socket_test.c - connections within this host leave BBR, others and other algorithms
 * stay. */
#include "net/socket.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct pair {
    int listener, client, server;
    char client_name[64], server_name[64]; /* as gRPC would name them */
};

static void open_pair(struct pair *p, int family)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr *a = family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    socklen_t n = family == AF_INET ? sizeof v4 : sizeof v6;
    p->listener = socket(family, SOCK_STREAM, 0);
    if (p->listener < 0 || bind(p->listener, a, n) < 0)
        skip();
    assert_int_equal(listen(p->listener, 1), 0);
    assert_int_equal(getsockname(p->listener, a, &n), 0);
    p->client = socket(family, SOCK_STREAM, 0);
    assert_int_equal(connect(p->client, a, n), 0);
    p->server = accept(p->listener, NULL, NULL);
    assert_true(p->server >= 0);
    const char *form = family == AF_INET ? "ipv4:127.0.0.1:%d" : "ipv6:%%5B::1%%5D:%d";
    uint16_t port = family == AF_INET ? v4.sin_port : v6.sin6_port;
    snprintf(p->server_name, sizeof p->server_name, form, ntohs(port));
    assert_int_equal(getsockname(p->client, a, &n), 0);
    port = family == AF_INET ? v4.sin_port : v6.sin6_port;
    snprintf(p->client_name, sizeof p->client_name, form, ntohs(port));
}

static void close_pair(struct pair *p)
{
    close(p->client);
    close(p->server);
    close(p->listener);
}

static void set(int fd, const char *algorithm)
{
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, (socklen_t)strlen(algorithm)) < 0) {
        print_message("skipped: this system does not let us choose %s\n", algorithm);
        skip();
    }
}

static void assert_is(int fd, const char *algorithm)
{
    char now[16] = "";
    socklen_t n = sizeof now - 1;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &n), 0);
    assert_string_equal(now, algorithm);
}

static void check_family(int family)
{
    struct pair p;
    open_pair(&p, family);
    set(p.client, "bbr");
    set(p.server, "bbr");
    assert_int_equal(net_socket_tune("ipv4:127.0.0.1:1"), 0); /* nobody */
    assert_int_equal(net_socket_tune(""), 0);
    assert_is(p.client, "bbr");
    assert_int_equal(net_socket_tune(p.server_name), 1); /* as the client sees it */
    assert_is(p.client, "reno");
    assert_is(p.server, "bbr");
    net_socket_tune(p.client_name);
    assert_is(p.server, "reno");
    close_pair(&p);
}

static void test_ipv4(void **state)
{
    check_family(AF_INET);
}

static void test_ipv6(void **state)
{
    check_family(AF_INET6);
}

static void test_others_stay(void **state)
{
    struct pair p;
    open_pair(&p, AF_INET);
    set(p.client, "cubic");
    assert_int_equal(net_socket_tune(p.server_name), 1);
    assert_is(p.client, "cubic");
    close_pair(&p);
}

static void test_loopback_addresses(void **state)
{
    static const char *const near[] = {"ipv4:127.0.0.1:5", "ipv4:127.3.4.5:66", "ipv6:[::1]:7",
                                       "ipv6:%5B::1%5D:7"};
    static const char *const far[] = {"",          "ipv4:128.0.0.1:5", "ipv4:12.7.0.1:5",
                                      "127.0.0.1", "ipv6:[::2]:7",     "unix:127."};
    for (size_t i = 0; i < sizeof near / sizeof *near; i++)
        assert_int_equal(net_socket_is_loopback(near[i]), 1);
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        assert_int_equal(net_socket_is_loopback(far[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ipv4),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_others_stay),
        cmocka_unit_test(test_loopback_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
