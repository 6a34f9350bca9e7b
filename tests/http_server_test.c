/* tests/http_server_test.c - tests pages over HTTP: the replies to clients, the connections that
 * the server closes if there are too many, and how often it makes a page. Also tests the text of
 * metrics. */
#include "http/listen.h"
#include "http/metrics.h"
#include "http/server.h"
#include "tests/check.h"
#include <arpa/inet.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CROWD = 300, WAIT_MS = 60000, ANSWER_BYTES = 4096 };

static _Atomic int n_made;

static int count_page(void *ctx, FILE *f)
{
    fprintf(f, "made %d times\n", atomic_fetch_add(&n_made, 1) + 1);
    return 200;
}

static int sick_page(void *ctx, FILE *f)
{
    fputs("not well\n", f);
    return 503;
}

static const struct http_page pages[] = {{"/count", "text/plain", -1, count_page},
                                         {"/sick", "text/plain", 0, sick_page}};

struct served {
    struct http_server *server;
    struct sockaddr_in at;
};

static struct served serve(void)
{
    struct served s;
    /* no connection ends by itself while a test runs */
    struct http_server_config cfg = {.pages = pages, .n_pages = 2, .life_ms = 3600000};
    socklen_t size = sizeof s.at;
    assert_int_equal(http_listen("127.0.0.1:0", &cfg.listen_fd), ST_OK);
    assert_int_equal(getsockname(cfg.listen_fd, (struct sockaddr *)&s.at, &size), 0);
    assert_int_equal(http_server_create(&cfg, &s.server), ST_OK);
    return s;
}

static int open_to(const struct served *s)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&s->at, sizeof s->at), 0);
    return fd;
}

/* Returns all bytes that the server sends until it closes the connection. */
static const char *ask(const struct served *s, const char *request)
{
    static char answer[ANSWER_BYTES];
    size_t n = 0;
    int fd = open_to(s);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    for (ssize_t got = 1; got > 0 && n<sizeof answer - 1; n += got> 0 ? (size_t)got : 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, WAIT_MS), 1);
        got = recv(fd, answer + n, sizeof answer - 1 - n, 0);
    }
    answer[n] = 0;
    close(fd);
    return answer;
}

static void client_gets_page(void **state)
{
    struct served s = serve();
    const char *got = ask(&s, "GET /count HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(got, "HTTP/1.1 200 "));
    assert_non_null(strstr(got, "\r\nConnection: close\r\n"));
    assert_non_null(strstr(got, "\r\n\r\nmade 1 times\n"));
    /* the next client receives the same bytes; a query has no effect */
    assert_non_null(strstr(ask(&s, "GET /count?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"), "made 1 times"));
    got = ask(&s, "HEAD /count HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(got, "Content-Length: 13\r\n"));
    assert_null(strstr(got, "made"));
    got = ask(&s, "GET /sick HTTP/1.0\r\n\r\n");
    assert_non_null(strstr(got, " 503 "));
    assert_non_null(strstr(got, "not well\n"));
    assert_non_null(strstr(ask(&s, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"), " 404 "));
    got = ask(&s, "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    assert_non_null(strstr(got, " 405 "));
    assert_non_null(strstr(got, "\r\nAllow: GET, HEAD\r\n"));
    assert_int_equal(atomic_load(&n_made), 1);
    http_server_destroy(s.server);
}

/* More silent clients connect than there is room for; a client that sends a request is served. */
static void silent_clients_make_room_for_a_request(void **state)
{
    struct served s = serve();
    static int fd[CROWD];
    for (int i = 0; i < CROWD; i++) {
        fd[i] = open_to(&s);
        if (i % 2)
            assert_int_equal(send(fd[i], "GET /cou", 8, MSG_NOSIGNAL), 8);
    }
    assert_non_null(strstr(ask(&s, "GET /sick HTTP/1.1\r\nHost: x\r\n\r\n"), " 503 "));
    struct pollfd first = {.fd = fd[0], .events = POLLIN};
    assert_int_equal(poll(&first, 1, WAIT_MS), 1); /* the server has closed it */
    for (int i = 0; i < CROWD; i++)
        close(fd[i]);
    http_server_destroy(s.server);
}

static void port_in_use_is_refused(void **state)
{
    struct served s = serve();
    char addr[HTTP_ADDRESS_BYTES];
    int fd;
    assert_int_equal(http_listen_address("127.0.0.1", NULL, ntohs(s.at.sin_port), addr), ST_OK);
    assert_int_equal(http_listen(addr, &fd), ST_BUSY);
    assert_int_equal(http_listen("192.0.2.1:1", &fd), ST_INVALID); /* no host has this address */
    http_server_destroy(s.server);
    assert_int_equal(http_listen(addr, &fd), ST_OK);
    close(fd);
}

static void pages_address_follows_flags(void **state)
{
    char addr[HTTP_ADDRESS_BYTES];
    assert_int_equal(http_listen_address("", "10.0.0.7:2222", 9100, addr), ST_OK);
    assert_string_equal(addr, "10.0.0.7:9100");
    assert_int_equal(http_listen_address(NULL, "[::1]:2222", 9100, addr), ST_OK);
    assert_string_equal(addr, "[::1]:9100");
    assert_int_equal(http_listen_address("0.0.0.0", "10.0.0.7:2222", 9100, addr), ST_OK);
    assert_string_equal(addr, "0.0.0.0:9100");
    assert_int_equal(http_listen_address(NULL, NULL, 9100, addr), ST_OK);
    assert_string_equal(addr, "127.0.0.1:9100");
    assert_int_equal(http_listen_address("a:1", NULL, 9100, addr), ST_INVALID);
}

static void metrics_are_written_as_prometheus_reads_them(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    static const double bounds[] = {0.1, 1};
    static const int64_t counts[] = {2, 0, 3};
    const struct metrics_histogram h = {2, bounds, counts, 30.5};
    const char *const labels[] = {"worker", "1", "address", "a\"b\\c\nd", NULL};
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    metrics_family(f, "weir_x_total", "counter", "Of x.");
    metrics_value(f, "weir_x_total", labels, 9007199254740993.0);
    metrics_gauge(f, "weir_y", "Of y.", 0.1);
    metrics_value(f, "weir_z", NULL, (double)NAN);
    metrics_value(f, "weir_z", NULL, -(double)INFINITY);
    metrics_histogram(f, "weir_h_seconds", "Of h.", &h);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, "# HELP weir_x_total Of x.\n"
                              "# TYPE weir_x_total counter\n"
                              "weir_x_total{worker=\"1\",address=\"a\\\"b\\\\c?d\"} "
                              "9007199254740992\n"
                              "# HELP weir_y Of y.\n# TYPE weir_y gauge\nweir_y 0.1\n"
                              "weir_z NaN\nweir_z -Inf\n"
                              "# HELP weir_h_seconds Of h.\n# TYPE weir_h_seconds histogram\n"
                              "weir_h_seconds_bucket{le=\"0.1\"} 2\n"
                              "weir_h_seconds_bucket{le=\"1\"} 2\n"
                              "weir_h_seconds_bucket{le=\"+Inf\"} 5\n"
                              "weir_h_seconds_sum 30.5\nweir_h_seconds_count 5\n");
    free(text);
}

int main(void)
{
    return RUN_TESTS(client_gets_page, silent_clients_make_room_for_a_request,
                     port_in_use_is_refused, pages_address_follows_flags,
                     metrics_are_written_as_prometheus_reads_them);
}
