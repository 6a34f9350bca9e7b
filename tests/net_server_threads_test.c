/* tests/net_server_threads_test.c - simultaneous events at the server: members join at the same
 * time and change the memory quota, and a stream opens while the server stops. */
#include "base/clock.h"
#include "net/rpc/server_impl.h"
#include "tests/check.h"
#include "tests/net_raw.h"
#include "tests/net_tiny.h"
#include <dlfcn.h>

enum { DEADLINE_MS = 60000 };

/* State of the function that replaces gRPC's: last_size is the last quota, and `held` is nonzero
 * while the first call waits. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static size_t last_size;
static int hold, held, n_calls;

void grpc_resource_quota_resize(grpc_resource_quota *quota, size_t size)
{
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    pthread_mutex_lock(&lock);
    n_calls++;
    if (hold == 1) {
        hold = 2;
        held = 1;
        pthread_cond_broadcast(&changed);
        while (held && clock_cond_wait(&changed, &lock, deadline) == 0)
            ;
    }
    last_size = size;
    pthread_mutex_unlock(&lock);
}

static void *trust(void *server)
{
    net_server_trusts(server, 1);
    return NULL;
}

/* A thread passes the quota for a number of members to gRPC, while another thread increases this
 * number. The last number counts. */
static void quota_follows_the_last_number(void **state)
{
    struct tiny t;
    pthread_t thread;
    struct chunks *chunks;
    const struct net_param param = {.name = "w", .shape = {1, {4096}}};
    assert_int_equal(chunks_create(&param, 1, CHUNKS_MIN_BYTES, &chunks), ST_OK);
    clock_cond_init(&changed);
    tiny_init(&t, chunks, 0, 1);
    tiny_start(&t);
    size_t base = last_size;
    net_server_trusts(t.server, 1);
    size_t each = last_size - base;
    assert_true(base > 0 && each > 0);
    pthread_mutex_lock(&lock);
    hold = 1;
    pthread_mutex_unlock(&lock);
    assert_int_equal(pthread_create(&thread, NULL, trust, t.server), 0);
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    pthread_mutex_lock(&lock);
    while (!held && clock_cond_wait(&changed, &lock, deadline) == 0)
        ;
    assert_true(held);
    pthread_mutex_unlock(&lock);
    net_server_trusts(t.server, 1);
    pthread_mutex_lock(&lock);
    held = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    assert_true(last_size == base + 3 * each);
    tiny_free(&t);
    chunks_destroy(chunks);
}

/* State of a stream that opens: it waits after its first batch until the stopping server has ended
 * its streams. n_early counts statuses that the server sent to this stream too early. */
static int hold_opening, n_opening, stop_has_passed, n_early;
static grpc_call *opening;

grpc_call_error grpc_call_start_batch(grpc_call *call, const grpc_op *ops, size_t n, void *tag,
                                      void *reserved)
{
    static grpc_call_error (*next)(grpc_call *, const grpc_op *, size_t, void *, void *);
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "grpc_call_start_batch");
    if (hold_opening && n == 1 && ops[0].op == GRPC_OP_RECV_CLOSE_ON_SERVER) {
        opening = call;
        n_opening++;
        pthread_cond_broadcast(&changed);
        while (!stop_has_passed && n_early == 0 && clock_cond_wait(&changed, &lock, deadline) == 0)
            ;
        opening = NULL;
    }
    if (n == 1 && ops[0].op == GRPC_OP_SEND_STATUS_FROM_SERVER && call == opening) {
        n_early++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return next(call, ops, n, tag, reserved);
}

/* Replaces gRPC's function. The server calls it after it has ended its streams and waited for
 * them. */
void grpc_server_cancel_all_calls(grpc_server *server)
{
    static void (*next)(grpc_server *);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "grpc_server_cancel_all_calls");
    stop_has_passed = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    next(server);
}

/* The stream's status must not be sent before the metadata that opens the stream. */
static void stream_that_opens_during_stop_ends_in_order(void **state)
{
    static struct raw r;
    struct tiny t;
    struct chunks *chunks;
    const struct net_param param = {.name = "w", .shape = {1, {4096}}};
    assert_int_equal(chunks_create(&param, 1, CHUNKS_MIN_BYTES, &chunks), ST_OK);
    tiny_init(&t, chunks, 0, 1);
    tiny_start(&t);
    pthread_mutex_lock(&lock);
    hold_opening = 1;
    pthread_mutex_unlock(&lock);
    raw_open(&r, t.port, "/weir.v1.Weir/Exchange");
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    pthread_mutex_lock(&lock);
    while (n_opening == 0 && clock_cond_wait(&changed, &lock, deadline) == 0)
        ;
    assert_int_equal(n_opening, 1);
    pthread_mutex_unlock(&lock);
    tiny_stop(&t);
    assert_true(stop_has_passed);
    assert_int_equal(n_early, 0);
    raw_cancel(&r);
    raw_close(&r);
    tiny_free(&t);
    chunks_destroy(chunks);
}

int main(void)
{
    return RUN_TESTS(quota_follows_the_last_number, stream_that_opens_during_stop_ends_in_order);
}
