/* tests/net_evaluation_test.c - evaluations of the validation data that are sent to ps 0, and
 * replies of ps 0: both arrive unchanged, or are refused. */
#include "net/exchange/status_client.h"
#include "net/rpc/server.h"
#include "tests/capture.h"
#include "tests/net_wire.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONG_MS = 30000 };

static const struct net_evaluation good = {.generation = 7,
                                           .ps0 = 0xfedcba9876543210,
                                           .step = 200,
                                           .part = 2,
                                           .n_parts = 3,
                                           .n = 250,
                                           .right = 249,
                                           .loss = 12.125,
                                           .data = {600, 0xfedcba98, 0x89abcdef},
                                           .every = 50,
                                           .patience = 4};

static bool are_same(const struct net_evaluation *a, const struct net_evaluation *b)
{
    return a->generation == b->generation && a->ps0 == b->ps0 && a->step == b->step &&
           a->part == b->part && a->n_parts == b->n_parts && a->n == b->n && a->right == b->right &&
           (a->loss == b->loss || (isnan(a->loss) && isnan(b->loss))) &&
           job_validation_same(&a->data, &b->data) && a->every == b->every &&
           a->patience == b->patience;
}

static void evaluation_arrives_unchanged(void **state)
{
    struct net_evaluation v = good, got;
    assert_int_equal(wire_through(&message_evaluation, &v, &got), ST_OK);
    assert_true(are_same(&v, &got));
    v.loss = (double)NAN; /* a model that has diverged */
    assert_int_equal(wire_through(&message_evaluation, &v, &got), ST_OK);
    assert_true(are_same(&v, &got));
}

/* Checks that one invalid value is refused, while all other values are valid. */
#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        struct net_evaluation bad = good, got = {.step = 12345};                                   \
        bad.field = value;                                                                         \
        assert_int_equal(wire_through(&message_evaluation, &bad, &got), ST_INVALID);               \
        assert_int_equal(got.step, 12345);                                                         \
    } while (0)

static void invalid_evaluations_are_refused(void **state)
{
    REFUSED(step, -1);
    REFUSED(step, INT64_MAX);
    REFUSED(part, 3);
    REFUSED(part, -1);
    REFUSED(n_parts, 0);
    REFUSED(n_parts, JOB_MAX_WORKERS + 1);
    REFUSED(n, -1);
    REFUSED(n, 601);
    REFUSED(right, 251);
    REFUSED(right, -1);
    REFUSED(data.n, 0);
    REFUSED(data.n, -1);
    REFUSED(every, -1);
    REFUSED(patience, -1);
}

static void replies_arrive_unchanged(void **state)
{
    const struct net_evaluation_reply v = {1, 600, 599, 1.5, {150, 0.25, 0.75}};
    struct net_evaluation_reply got, bad = v;
    assert_int_equal(wire_through(&message_evaluation_reply, &v, &got), ST_OK);
    assert_true(got.again == 1 && got.n == 600 && got.right == 599 && got.loss == 1.5);
    assert_true(got.best.step == 150 && got.best.loss == 0.25 && got.best.accuracy == 0.75);
    bad.best.accuracy = 1.5;
    assert_int_equal(wire_through(&message_evaluation_reply, &bad, &got), ST_INVALID);
    bad = v;
    bad.right = 601;
    assert_int_equal(wire_through(&message_evaluation_reply, &bad, &got), ST_INVALID);
}

static void on_evaluated(void *ctx, const struct net_evaluation *v,
                         struct net_evaluation_reply *out)
{
    *(struct net_evaluation *)ctx = *v;
    out->n = v->data.n;
}

static struct net_server *start(const struct net_admin_handlers *admin, char addr[64])
{
    struct net_server *server;
    struct net_server_config cfg = {.addr = "127.0.0.1:0", .admin = *admin};
    assert_int_equal(net_server_create(&cfg, &server), ST_OK);
    snprintf(addr, 64, "127.0.0.1:%d", net_server_port(server));
    return server;
}

/* Replaces connect() of the C library, for gRPC as well, to count connections of stream sockets.
 * gRPC also connects datagram sockets, to find its own addresses; these do not count. */
static _Atomic int n_connects;
int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t bytes)
{
    int type = 0;
    socklen_t n = sizeof type;
    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n);
    n_connects += type == SOCK_STREAM;
    return (int)syscall(SYS_connect, fd, to.__sockaddr__, bytes);
}

static enum status send_one(const char *addr, int times, struct net_evaluation_reply *reply,
                            char *why)
{
    struct status_client *e;
    enum status st = status_client_create(addr, &e);
    for (int i = 0; i < times && st == ST_OK; i++)
        st = status_client_send_evaluation(e, &good, LONG_MS, reply, why);
    status_client_destroy(e);
    return st;
}

/* A worker that waits for ps 0 sends many requests over one connection. */
static void one_channel_serves_many_calls(void **state)
{
    struct net_evaluation heard;
    struct net_evaluation_reply reply;
    char addr[64], why[CONTROL_TEXT_BYTES] = "";
    struct net_admin_handlers admin = {.ctx = &heard, .evaluated = on_evaluated};
    struct net_server *server = start(&admin, addr);
    n_connects = 0;
    assert_int_equal(send_one(addr, 20, &reply, why), ST_OK);
    assert_int_equal(n_connects, 1);
    net_server_destroy(server);
}

static void server_answers_evaluation(void **state)
{
    struct net_evaluation heard;
    struct net_evaluation_reply reply;
    char addr[64], why[CONTROL_TEXT_BYTES] = "";
    struct net_admin_handlers admin = {.ctx = &heard, .evaluated = on_evaluated},
                              none = {.ctx = NULL};
    struct net_server *server = start(&admin, addr);
    assert_int_equal(send_one(addr, 1, &reply, why), ST_OK);
    assert_true(!reply.again && reply.n == 600 && reply.best.step == -1);
    net_server_destroy(server); /* ends its threads */
    assert_true(are_same(&good, &heard));
    server = start(&none, addr);
    enum status st = CAPTURE(send_one(addr, 1, &reply, why));
    assert_int_equal(st, ST_PROTOCOL);
    assert_string_equal(why, "this server accepts no evaluations");
    net_server_destroy(server);
}

int main(void)
{
    return RUN_TESTS(evaluation_arrives_unchanged, invalid_evaluations_are_refused,
                     replies_arrive_unchanged, server_answers_evaluation,
                     one_channel_serves_many_calls);
}
