/* tests/net_control_test.c - the control call between servers: the receiver answers at once, later
 * or never; calls are cancelled, too late, or pending when the server stops; messages have invalid
 * values. */
#include "base/clock.h"
#include "net/exchange/peer_client.h"
#include "net/rpc/server.h"
#include "net/wire/message.h"
#include "tests/check.h"
#include "tests/net_wire.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG_MS = 60000 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct net_control last;
    uint64_t call;
    int n_calls, at_once;
    uint64_t closed; /* number of the last call that ended without an answer */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static const struct net_control_reply answer = {
    .number = 7, .restore = "weir-20.json", .order = 3, .step = 40, .given = 2, .incarnation = 9};

static void on_control(void *ctx, struct net_server *server, const struct net_control *request,
                       uint64_t call)
{
    pthread_mutex_lock(&seen.lock);
    seen.last = *request;
    seen.call = call;
    seen.n_calls++;
    int at_once = seen.at_once;
    pthread_cond_broadcast(&seen.wake);
    pthread_mutex_unlock(&seen.lock);
    if (at_once)
        net_server_control_reply(server, call, at_once > 0 ? &answer : NULL);
}

static void on_closed(void *ctx, uint64_t call)
{
    pthread_mutex_lock(&seen.lock);
    seen.closed = call;
    pthread_cond_broadcast(&seen.wake);
    pthread_mutex_unlock(&seen.lock);
}

/* Sets the immediate answer to a call: > 0: an answer, < 0: a refusal, 0: none. */
static void set_at_once(int how)
{
    pthread_mutex_lock(&seen.lock);
    seen.at_once = how;
    pthread_mutex_unlock(&seen.lock);
}

static struct net_server *start(struct peer_client **client, int coordinates)
{
    struct net_server *server;
    struct net_server_config cfg = {
        .addr = "127.0.0.1:0", .handler = {.control = on_control, .control_closed = on_closed}};
    char addr[64];
    if (!coordinates)
        cfg.handler.control = NULL;
    seen.n_calls = 0;
    seen.closed = 0;
    set_at_once(0);
    assert_int_equal(net_server_create(&cfg, &server), ST_OK);
    snprintf(addr, sizeof addr, "127.0.0.1:%d", net_server_port(server));
    assert_int_equal(peer_client_create(addr, client), ST_OK);
    return server;
}

struct call {
    struct peer_client *client;
    int64_t deadline_ms;
    struct net_control_reply reply;
    enum status st;
    char why[CONTROL_TEXT_BYTES];
    pthread_t thread;
};

static void *run_call(void *arg)
{
    struct call *c = arg;
    struct net_control request = {.server = 1,
                                  .n_servers = 2,
                                  .incarnation = 5,
                                  .seen = 6,
                                  .wanted = 1,
                                  .order = 2,
                                  .phase = 3,
                                  .bytes = 1 << 20,
                                  .crc32c = 0xabcd,
                                  .address = "Node7:2222"};
    c->st = peer_client_control(c->client, &request, c->deadline_ms, &c->reply, c->why);
    return NULL;
}

static void begin(struct call *c, struct peer_client *client, int64_t deadline_ms)
{
    *c = (struct call){.client = client, .deadline_ms = deadline_ms};
    assert_int_equal(pthread_create(&c->thread, NULL, run_call, c), 0);
}

static enum status finish(struct call *c)
{
    pthread_join(c->thread, NULL);
    return c->st;
}

static uint64_t wait_for_call(int n)
{
    pthread_mutex_lock(&seen.lock);
    while (seen.n_calls < n)
        pthread_cond_wait(&seen.wake, &seen.lock);
    uint64_t call = seen.call;
    pthread_mutex_unlock(&seen.lock);
    return call;
}

static void answers_arrive_at_once_or_later(void **state)
{
    struct peer_client *client;
    struct net_server *server = start(&client, 1);
    struct call c;
    begin(&c, client, LONG_MS);
    uint64_t call = wait_for_call(1);
    assert_int_equal(seen.last.server, 1);
    assert_int_equal(seen.last.n_servers, 2);
    assert_int_equal(seen.last.incarnation, 5);
    assert_int_equal(seen.last.seen, 6);
    assert_int_equal(seen.last.wanted, 1);
    assert_int_equal(seen.last.order, 2);
    assert_int_equal(seen.last.phase, 3);
    assert_int_equal(seen.last.bytes, 1 << 20);
    assert_int_equal(seen.last.crc32c, 0xabcd);
    assert_string_equal(seen.last.address, "node7:2222"); /* plans contain addresses in this form */
    net_server_control_reply(server, call + 1, &answer);  /* no such call: ignored */
    net_server_control_reply(server, call, &answer);
    assert_int_equal(finish(&c), ST_OK);
    assert_memory_equal(&c.reply, &answer, sizeof answer);
    net_server_control_reply(server, call, &answer); /* a second answer: ignored */
    set_at_once(1);
    begin(&c, client, LONG_MS);
    assert_int_equal(finish(&c), ST_OK);
    assert_int_equal(c.reply.step, 40);
    peer_client_destroy(client);
    net_server_destroy(server);
}

static void calls_end_without_an_answer(void **state)
{
    struct peer_client *client;
    struct net_server *server = start(&client, 1);
    struct call c;
    begin(&c, client, LONG_MS);
    wait_for_call(1);
    peer_client_cancel(client);
    assert_int_equal(finish(&c), ST_CANCELLED);
    peer_client_cancel(client); /* no call is pending: cancels the next one */
    begin(&c, client, LONG_MS);
    assert_int_equal(finish(&c), ST_CANCELLED);
    begin(&c, client, 100);
    assert_int_equal(finish(&c), ST_DEADLINE);
    begin(&c, client, LONG_MS);
    wait_for_call(3);
    net_server_stop(server, 2000); /* ends the pending call, before its own deadline */
    assert_int_equal(finish(&c), ST_UNAVAILABLE);
    peer_client_destroy(client);
    net_server_destroy(server);
}

/* Returns true if the handler was informed in time that this call has ended. */
static bool is_closed(uint64_t call)
{
    int64_t deadline = clock_deadline_ns(LONG_MS / 2);
    pthread_mutex_lock(&seen.lock);
    while (seen.closed != call && clock_now_ns() < deadline)
        clock_cond_wait(&seen.wake, &seen.lock, deadline);
    int closed = seen.closed == call;
    pthread_mutex_unlock(&seen.lock);
    return closed;
}

static void handler_learns_of_each_ended_call(void **state)
{
    struct peer_client *client;
    struct net_server *server = start(&client, 1);
    struct call c;
    const struct net_control_reply later = {.later = "not yet"};
    begin(&c, client, LONG_MS);
    uint64_t call = wait_for_call(1);
    peer_client_cancel(client);
    assert_int_equal(finish(&c), ST_CANCELLED);
    assert_true(is_closed(call));
    net_server_control_reply(server, call, &answer); /* the call has ended */
    begin(&c, client, LONG_MS);
    uint64_t next = wait_for_call(2);
    net_server_control_reply(server, next, &later);
    assert_int_equal(finish(&c), ST_UNAVAILABLE);
    assert_non_null(strstr(c.why, "not yet"));
    begin(&c, client, LONG_MS);
    net_server_control_reply(server, wait_for_call(3), &answer);
    assert_int_equal(finish(&c), ST_OK);
    peer_client_destroy(client);
    net_server_destroy(server);
    assert_int_equal(seen.closed, call); /* still that number: all other calls were answered */
}

static void server_without_coordination_refuses(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct peer_client *client;
        struct net_server *server = start(&client, i);
        struct call c;
        set_at_once(-1);
        begin(&c, client, LONG_MS);
        assert_int_equal(finish(&c), ST_PROTOCOL);
        assert_non_null(strstr(c.why, "orders no checkpoints"));
        peer_client_destroy(client);
        net_server_destroy(server);
    }
}

static enum status through_the_wire(const struct net_control *control)
{
    struct net_control got;
    return wire_through(&message_control, control, &got);
}

static void invalid_values_are_refused(void **state)
{
    const struct net_control good = {.server = 1, .n_servers = 2, .incarnation = 1, .phase = 4};
    struct net_control c = good;
    assert_int_equal(through_the_wire(&c), ST_OK);
    c.server = 2;
    assert_int_equal(through_the_wire(&c), ST_INVALID);
    c = good;
    c.n_servers = 1 << 20;
    assert_int_equal(through_the_wire(&c), ST_INVALID);
    c = good;
    c.incarnation = 0;
    assert_int_equal(through_the_wire(&c), ST_INVALID);
    c = good;
    c.phase = PART_N_PHASES;
    assert_int_equal(through_the_wire(&c), ST_INVALID);
    c = good;
    c.bytes = UINT64_MAX;
    assert_int_equal(through_the_wire(&c), ST_INVALID);
    struct net_control_reply reply = answer, got;
    char why[MESSAGE_WHY_BYTES];
    uint8_t *data;
    size_t bytes;
    snprintf(reply.restore, sizeof reply.restore, "../etc/passwd");
    assert_int_equal(message_control_reply_pack(&reply, &data, &bytes), ST_OK);
    assert_int_equal(message_control_reply_unpack(data, bytes, &got, why), ST_INVALID);
    assert_int_equal(message_control_reply_unpack(data, bytes - 1, &got, why), ST_PROTOCOL);
    free(data);
}

int main(void)
{
    return RUN_TESTS(answers_arrive_at_once_or_later, calls_end_without_an_answer,
                     handler_learns_of_each_ended_call, server_without_coordination_refuses,
                     invalid_values_are_refused);
}
