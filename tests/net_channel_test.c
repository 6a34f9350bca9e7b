/* tests/net_channel_test.c - a client's channel: how long an attempt to connect lasts, and when the
 * next attempt begins. */
#include "base/clock.h"
#include "net/rpc/channel.h"
#include "tests/check.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N_FILLERS = 4, DEADLINE_MS = 60000, LOOK_MS = 50, SYN_SENT = 2 };

static unsigned port_of(int fd)
{
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    return ntohs(a.sin_port);
}

/* Makes a listener whose queue is full: the kernel silently drops requests for further
 * connections. */
static int listen_deaf(int fillers[N_FILLERS])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 0), 0);
    a.sin_port = htons((uint16_t)port_of(fd));
    for (int i = 0; i < N_FILLERS; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int err = connect(fillers[i], (struct sockaddr *)&a, sizeof a);
        assert_true(err == 0 || errno == EINPROGRESS);
    }
    return fd;
}

static bool is_filler(const int fillers[N_FILLERS], unsigned port)
{
    for (int i = 0; i < N_FILLERS; i++)
        if (port_of(fillers[i]) == port)
            return true;
    return false;
}

/* Returns the largest number of times that a connection to the port has repeated its first
 * packet. */
static unsigned resent_in(const char *table, unsigned port, const int fillers[N_FILLERS])
{
    char line[256];
    unsigned most = 0, from, to, state, n;
    FILE *f = fopen(table, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%*d: %*x:%x %*x:%x %x %*x:%*x %*x:%*x %x", &from, &to, &state, &n) == 4 &&
            to == port && state == SYN_SENT && n > most && !is_filler(fillers, from))
            most = n;
    if (f)
        fclose(f);
    return most;
}

/* Reads both tables of the kernel, since gRPC uses IPv6 sockets for IPv4, too. */
static unsigned resent(unsigned port, const int fillers[N_FILLERS])
{
    unsigned n = resent_in("/proc/net/tcp", port, fillers);
    unsigned m = resent_in("/proc/net/tcp6", port, fillers);
    return n > m ? n : m;
}

/* Returns how often the first packet is repeated within 3 s. Newer kernels repeat it each
 * second. */
static unsigned wanted_resent(void)
{
    unsigned linear = 0;
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_syn_linear_timeouts", "re");
    if (f && fscanf(f, "%u", &linear) != 1)
        linear = 0;
    if (f)
        fclose(f);
    return linear >= 2 ? 3 : 2;
}

/* A client's call to a port of this host. The call fails at once if no program listens there. */
struct client {
    struct net_channel *channel;
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_metadata_array trailing;
    grpc_status_code code;
    grpc_slice details;
};

static void client_open(struct client *c, unsigned port)
{
    char addr[32];
    snprintf(addr, sizeof addr, "127.0.0.1:%u", port);
    grpc_runtime_init();
    c->queue = grpc_completion_queue_create_for_pluck(NULL);
    assert_int_equal(net_channel_create(addr, 1 << 20, &c->channel), ST_OK);
}

static void client_close(struct client *c)
{
    net_channel_destroy(c->channel);
    grpc_completion_queue_shutdown(c->queue);
    grpc_completion_queue_destroy(c->queue);
    grpc_runtime_shutdown();
}

static void call_begin(struct client *c)
{
    c->call = net_channel_call(c->channel, c->queue, "/weir.v1.Weir/Status", DEADLINE_MS);
    c->details = grpc_empty_slice();
    grpc_metadata_array_init(&c->trailing);
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[1].data.recv_status_on_client.trailing_metadata = &c->trailing;
    ops[1].data.recv_status_on_client.status = &c->code;
    ops[1].data.recv_status_on_client.status_details = &c->details;
    assert_int_equal(grpc_call_start_batch(c->call, ops, 2, c->call, NULL), GRPC_CALL_OK);
}

/* Waits a moment. Returns true if the call has ended. */
static bool call_ended(struct client *c)
{
    gpr_timespec soon =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(LOOK_MS, GPR_TIMESPAN));
    return grpc_completion_queue_pluck(c->queue, c->call, soon, NULL).type == GRPC_OP_COMPLETE;
}

static void call_free(struct client *c)
{
    grpc_call_unref(c->call);
    grpc_slice_unref(c->details);
    grpc_metadata_array_destroy(&c->trailing);
}

/* The first packets of a connection are lost. The attempt lasts until the third packet is sent. */
static void two_lost_packets_do_not_end_attempt(void **state)
{
    struct client c;
    int fillers[N_FILLERS];
    int fd = listen_deaf(fillers);
    unsigned port = port_of(fd), want = wanted_resent();
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    unsigned seen = 0;
    client_open(&c, port);
    while (seen < want && clock_now_ns() < deadline) {
        call_begin(&c);
        for (bool ended = false; !ended;) {
            ended = call_ended(&c);
            unsigned n = resent(port, fillers);
            seen = n > seen ? n : seen;
            if (!ended && (seen >= want || clock_now_ns() >= deadline))
                grpc_call_cancel(c.call, NULL);
        }
        call_free(&c);
    }
    assert_true(seen >= want);
    client_close(&c);
    for (int i = 0; i < N_FILLERS; i++)
        close(fillers[i]);
    close(fd);
}

/* Makes one call. Returns true if it made a connection to the listener. */
static bool call_connects(struct client *c, int fd)
{
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    bool connected = false;
    call_begin(c);
    for (bool ended = false; !ended;) {
        ended = call_ended(c);
        int from = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (from >= 0)
            close(from);
        connected |= from >= 0;
        if (!ended && (connected || clock_now_ns() >= deadline))
            grpc_call_cancel(c->call, NULL);
    }
    call_free(c);
    return connected;
}

/* Many calls fail while the server is down, after which gRPC would pause. When the server is
 * back, the next call must connect. If the attempt of that call began too early, the call after
 * it must. */
static void restarted_server_is_connected_at_once(void **state)
{
    enum { N_FAILED = 8, N_TRIES = 3 };
    struct client c;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), connected = 0;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    client_open(&c, port_of(fd));
    for (int i = 0; i < N_FAILED; i++)
        assert_int_equal(call_connects(&c, fd), 0);
    assert_int_equal(listen(fd, 16), 0);
    for (int i = 0; i < N_TRIES && !connected; i++)
        connected = call_connects(&c, fd);
    assert_true(connected);
    client_close(&c);
    close(fd);
}

int main(void)
{
    return RUN_TESTS(two_lost_packets_do_not_end_attempt, restarted_server_is_connected_at_once);
}
