/* tests/net_local_socket_test.c - of the connections with BBR, only those within this host change
 * to Reno. */
#include "net/rpc/local_socket.h"
#include "net/rpc/peer_sockets.h"
#include "tests/check.h"
#include "tests/skip.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
    int listener, client, server;
    char server_name[64]; /* as gRPC names the peer of the client */
};

static bool open_pair(struct pair *p, int family, const char *from)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    struct sockaddr_in source = {.sin_family = AF_INET};
    void *a = family == AF_INET ? (void *)&v4 : (void *)&v6;
    socklen_t n = family == AF_INET ? sizeof v4 : sizeof v6;
    p->listener = socket(family, SOCK_STREAM, 0);
    if (p->listener < 0 || bind(p->listener, a, n) != 0)
        return false; /* this host has no IPv6 */
    assert_int_equal(listen(p->listener, 1), 0);
    assert_int_equal(getsockname(p->listener, a, &n), 0);
    snprintf(p->server_name, sizeof p->server_name,
             family == AF_INET ? "ipv4:127.0.0.1:%d" : "ipv6:%%5B::1%%5D:%d",
             ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port));
    p->client = socket(family, SOCK_STREAM, 0);
    if (from) {
        assert_int_equal(inet_pton(AF_INET, from, &source.sin_addr), 1);
        assert_int_equal(bind(p->client, (struct sockaddr *)&source, sizeof source), 0);
    }
    assert_int_equal(connect(p->client, a, n), 0);
    p->server = accept(p->listener, NULL, NULL);
    assert_true(p->server >= 0);
    return true;
}

static void close_pair(struct pair *p)
{
    close(p->client);
    close(p->server);
    close(p->listener);
}

static void set(struct pair *p, const char *algorithm)
{
    socklen_t n = (socklen_t)strlen(algorithm);
    if (setsockopt(p->client, IPPROTO_TCP, TCP_CONGESTION, algorithm, n) == 0 &&
        setsockopt(p->server, IPPROTO_TCP, TCP_CONGESTION, algorithm, n) == 0)
        return;
    close_pair(p);
    skip_because("this system does not permit the congestion control %s", algorithm);
}

static void assert_is(int fd, const char *algorithm)
{
    char now[16] = "";
    socklen_t n = sizeof now - 1;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &n), 0);
    assert_string_equal(now, algorithm);
}

static void tune_by_name(const char *name)
{
    struct peer_socket_address a;
    assert_true(peer_sockets_read_address(name, &a));
    peer_sockets_tune(&a);
}

static void bbr_becomes_reno_within_a_host(void **state)
{
    struct pair p;
    for (int family = AF_INET, k = 0; k < 2; family = AF_INET6, k++) {
        if (!open_pair(&p, family, NULL))
            return;
        set(&p, "bbr");
        tune_by_name("ipv4:127.0.0.1:1"); /* there is no such connection */
        assert_is(p.client, "bbr");
        tune_by_name(p.server_name);
        assert_is(p.client, "reno");
        assert_is(p.server, "bbr");
        local_socket_tune(p.server);
        assert_is(p.server, "reno");
        close_pair(&p);
    }
}

static void other_algorithms_stay(void **state)
{
    struct pair p;
    assert_true(open_pair(&p, AF_INET, NULL));
    set(&p, "cubic");
    tune_by_name(p.server_name);
    assert_is(p.client, "cubic");
    close_pair(&p);
}

static void connections_between_addresses_stay(void **state)
{
    struct pair p;
    assert_true(open_pair(&p, AF_INET, "127.0.0.2"));
    set(&p, "bbr");
    tune_by_name(p.server_name);
    local_socket_tune(p.server);
    assert_is(p.client, "bbr");
    assert_is(p.server, "bbr");
    close_pair(&p);
}

int main(void)
{
    return RUN_TESTS(bbr_becomes_reno_within_a_host, other_algorithms_stay,
                     connections_between_addresses_stay);
}
