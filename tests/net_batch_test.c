/* tests/net_batch_test.c - how a client packs the requests of an exchange into frames. Chunks with
 * low numbers overtake other waiting chunks, many small chunks share few frames, and payloads
 * around the copy limit arrive complete. The program replaces send_queue_frame (--wrap): it counts
 * frames, and holds the frame that a client is about to send, so that all later pushes wait. It
 * also replaces exchange_request_next, to see that a client waits for acknowledgements, and
 * clock_gettime, to let time pass. */
#include "base/clock.h"
#include "base/log.h"
#include "net/exchange/exchange_requests.h"
#include "net/exchange/link.h"
#include "net/rpc/send_queue.h"
#include "tests/check.h"
#include "tests/net_tiny.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PARAMS = 1000 };

static struct {
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    int closed, n_held; /* closed: nonzero while the gate holds frames; n_held: their number */
    int n_stalled;      /* times that the next request had to wait for an acknowledgement */
    int n_frames[PIECE_TAKEN + 1], n_pieces[PIECE_TAKEN + 1]; /* by the kind of the first piece */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER};

grpc_byte_buffer *__real_send_queue_frame(const struct send_queue_batch *batch);
grpc_byte_buffer *__wrap_send_queue_frame(const struct send_queue_batch *batch);

grpc_byte_buffer *__wrap_send_queue_frame(const struct send_queue_batch *batch)
{
    enum piece_kind kind = batch->items[0]->kind;
    pthread_mutex_lock(&gate.lock);
    gate.n_frames[kind]++;
    gate.n_pieces[kind] += batch->n;
    int64_t deadline = clock_deadline_ns(20000);
    if (kind == PIECE_PUSH && gate.closed) {
        gate.n_held++;
        pthread_cond_broadcast(&gate.changed);
        while (gate.closed && clock_cond_wait(&gate.changed, &gate.lock, deadline) == 0)
            ;
        gate.n_held--;
    }
    pthread_mutex_unlock(&gate.lock);
    return __real_send_queue_frame(batch);
}

int __real_exchange_request_next(struct link *l, struct send_queue_batch *batch,
                                 struct send_queue_item *items);
int __wrap_exchange_request_next(struct link *l, struct send_queue_batch *batch,
                                 struct send_queue_item *items);

int __wrap_exchange_request_next(struct link *l, struct send_queue_batch *batch,
                                 struct send_queue_item *items)
{
    int n = __real_exchange_request_next(l, batch, items);
    if (l->stalled) {
        pthread_mutex_lock(&gate.lock);
        gate.n_stalled++;
        pthread_cond_broadcast(&gate.changed);
        pthread_mutex_unlock(&gate.lock);
    }
    return n;
}

static _Atomic int64_t late_ns; /* time that passes before each reading of the clock */

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    static _Atomic int64_t passed_ns;
    int status = __real_clock_gettime(id, ts);
    int64_t ns = ts->tv_nsec + atomic_fetch_add(&passed_ns, late_ns) + late_ns;
    ts->tv_sec += ns / 1000000000;
    ts->tv_nsec = ns % 1000000000;
    return status;
}

static void gate_reset(void)
{
    pthread_mutex_lock(&gate.lock);
    memset(gate.n_frames, 0, sizeof gate.n_frames);
    memset(gate.n_pieces, 0, sizeof gate.n_pieces);
    gate.n_stalled = 0;
    pthread_mutex_unlock(&gate.lock);
}

static void gate_set(int closed)
{
    if (closed)
        gate_reset();
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* Returns one of the gate's counters. */
static int gate_get(const int *counter)
{
    pthread_mutex_lock(&gate.lock);
    int value = *counter;
    pthread_mutex_unlock(&gate.lock);
    return value;
}

/* Waits until one of the gate's counters is above 0. */
static void gate_await(const int *counter)
{
    int64_t deadline = clock_deadline_ns(20000);
    pthread_mutex_lock(&gate.lock);
    while (*counter == 0 && clock_cond_wait(&gate.changed, &gate.lock, deadline) == 0)
        ;
    int n = *counter;
    pthread_mutex_unlock(&gate.lock);
    assert_int_not_equal(n, 0);
}

struct rig {
    struct chunks *chunks;
    struct tiny tiny;
    char addr[32], *addrs[1];
    struct hosts hosts;
    float *params, *gradient;
    struct net_exchange *x;
};

/* Creates a model of n parameters with the given numbers of elements, and starts a client. shared:
 * nonzero if client and server may detect that they are on one host. The gradients are not in a
 * segment, so they go by TCP in both cases. */
static void rig_open(struct rig *r, const int *n_elems, int n, int64_t chunk_bytes, int shared)
{
    static struct net_param params[MAX_PARAMS];
    static char names[MAX_PARAMS][16];
    struct net_start start;
    memset(r, 0, sizeof *r);
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        params[i] = (struct net_param){.name = names[i], .shape = {1, {n_elems[i]}}};
        if (i % 2) { /* neighbours with different rules never share a chunk */
            params[i].rule = PARAM_AVERAGE;
            params[i].keep = 0.5f;
        }
    }
    assert_int_equal(chunks_create(params, n, chunk_bytes, &r->chunks), ST_OK);
    size_t total = (size_t)r->chunks->n_elems;
    r->params = malloc(total * sizeof(float));
    r->gradient = calloc(total, sizeof(float));
    for (size_t i = 0; i < total; i++)
        r->params[i] = (float)(i % 100000);
    tiny_init(&r->tiny, r->chunks, 0, 1);
    if (shared)
        tiny_share(&r->tiny);
    tiny_start(&r->tiny);
    snprintf(r->addr, sizeof r->addr, "127.0.0.1:%d", r->tiny.port);
    r->addrs[0] = r->addr;
    r->hosts = (struct hosts){1, r->addrs};
    struct net_exchange_config cfg = {.ps_hosts = &r->hosts,
                                      .join = {.incarnation = 99, .chunks = r->chunks},
                                      .params = r->params,
                                      .shared_memory = shared};
    cfg.join.job = (struct net_job){.n_workers = 1, .train_steps = 10};
    optim_defaults(OPTIM_SGD, &cfg.join.job.optim);
    assert_int_equal(net_exchange_create(&cfg, &r->x), ST_OK);
    assert_int_equal(net_exchange_start(r->x, &start), ST_OK);
}

static void rig_close(struct rig *r)
{
    net_exchange_destroy(r->x);
    tiny_free(&r->tiny);
    chunks_destroy(r->chunks);
    free(r->params);
    free(r->gradient);
}

static void push(struct rig *r, int chunk, int64_t step)
{
    const float *data = r->gradient + r->chunks->chunks[chunk].first;
    assert_int_equal(net_exchange_push(r->x, chunk, step, data, 1), ST_OK);
}

static void wait_all(struct rig *r, int64_t step)
{
    assert_int_equal(net_exchange_wait(r->x, 0, r->chunks->n_chunks, step), ST_OK);
    for (int64_t i = 0; i < r->chunks->n_elems; i++)
        if (r->params[i] != (float)(i % 100000 + step))
            fail_msg("params[%d] is %g, not %g", (int)i, (double)r->params[i],
                     (double)(i % 100000 + step));
}

static int first_chunk;

/* Pushes one chunk alone. Blocks at the gate. */
static void *push_first(void *arg)
{
    struct rig *r = arg;
    push(r, first_chunk, 0);
    net_exchange_flush(r->x);
    return NULL;
}

/* Pushes the chunk `first` alone. While its frame is held, pushes all other chunks, from the last
 * to the first. */
static void push_behind(struct rig *r, int first)
{
    pthread_t thread;
    first_chunk = first;
    gate_set(1);
    pthread_create(&thread, NULL, push_first, r);
    gate_await(&gate.n_held);
    assert_int_equal(gate_get(&gate.n_held), 1);
    for (int i = r->chunks->n_chunks - 1; i >= 0; i--)
        if (i != first)
            push(r, i, 0);
    net_exchange_flush(r->x);
    gate_set(0);
    pthread_join(thread, NULL);
    wait_all(r, 1);
}

static void first_layers_are_sent_first(void **state)
{
    enum { N = 150 };
    const int n_elems = N * 16384; /* chunks of 64 KB */
    struct rig r;
    rig_open(&r, &n_elems, 1, 65536, 0);
    assert_int_equal(r.chunks->n_chunks, N);
    push_behind(&r, N - 1);
    uint32_t order[N];
    assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_push), N);
    pthread_mutex_lock(&r.tiny.lock);
    memcpy(order, r.tiny.order, sizeof order);
    pthread_mutex_unlock(&r.tiny.lock);
    assert_int_equal(order[0], N - 1);
    for (int i = 1; i < N; i++)
        assert_int_equal(order[i], i - 1);
    rig_close(&r);
}

static void small_chunks_share_frames(void **state)
{
    static int n_elems[MAX_PARAMS];
    struct rig r;
    for (int i = 0; i < MAX_PARAMS; i++)
        n_elems[i] = 256;
    rig_open(&r, n_elems, MAX_PARAMS, 4096, 1);
    assert_int_equal(r.chunks->n_chunks, MAX_PARAMS);
    push_behind(&r, 0);
    /* The first frame has one piece, the second has as many as fit, the third has the remaining
     * pieces. */
    assert_int_equal(gate_get(&gate.n_pieces[PIECE_PUSH]), MAX_PARAMS);
    assert_in_range(gate_get(&gate.n_frames[PIECE_PUSH]), 1, 3);
    /* The server answers the many pieces of one frame in few frames. */
    assert_int_equal(gate_get(&gate.n_pieces[PIECE_APPLIED]), MAX_PARAMS);
    assert_in_range(gate_get(&gate.n_frames[PIECE_APPLIED]), 1, 12);
    /* All frames but the first are large enough to request TAKEN. */
    assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_asked), MAX_PARAMS - 1);
    rig_close(&r);
}

/* A frame has many large chunks if their payloads stay in shared memory. It may have one payload of
 * that size, too, but not a second one. */
static void payloads_in_shared_memory_share_a_frame(void **state)
{
    struct send_queue_item shared[SEND_QUEUE_FRAME_PIECES], sent[2] = {0};
    struct send_queue_batch batch = {.n = 0};
    for (int i = 0; i < 2; i++)
        sent[i].bytes = SEND_QUEUE_FRAME_BYTES;
    for (int i = 0; i < SEND_QUEUE_FRAME_PIECES - 1; i++) {
        shared[i] =
            (struct send_queue_item){.bytes = SEND_QUEUE_FRAME_BYTES, .shared_offset = 1 + 64};
        assert_true(send_queue_batch_add(&batch, &shared[i]));
    }
    assert_true(send_queue_batch_add(&batch, &sent[0]));
    assert_int_equal(batch.bytes, SEND_QUEUE_FRAME_BYTES);
    batch.n--;
    assert_false(send_queue_batch_add(&batch, &sent[1]));
}

/* Pushes the n chunks of the model to a server that answers no push. */
static void push_unanswered(struct rig *r, int n)
{
    assert_int_equal(r->chunks->n_chunks, n);
    tiny_set(&r->tiny, &r->tiny.hold, 1);
    gate_reset();
    for (int i = 0; i < n; i++)
        push(r, i, 0);
    net_exchange_flush(r->x);
}

/* At a server on this host, or near it, at most two chunks of 1 MB are in flight. A chunk
 * is no longer in flight when the server has sent an answer or TAKEN for it, or when its stream is
 * broken. */
static void check_window(int shared)
{
    enum { N = 8, WINDOW = 2 };
    const int n_elems = N << 18;
    struct rig r;
    rig_open(&r, &n_elems, 1, 1 << 20, shared);
    struct tiny *t = &r.tiny;
    push_unanswered(&r, N);
    tiny_await(t, &t->n_push, WINDOW);
    gate_await(&gate.n_stalled);
    assert_int_equal(gate_get(&gate.n_pieces[PIECE_PUSH]), WINDOW);
    tiny_stop(t);
    t->say_taken = 1; /* TAKEN makes room: all chunks arrive, although none is answered */
    tiny_start(t);
    tiny_await(t, &t->n_push, WINDOW + N);
    assert_int_equal(tiny_get(t, &t->n_asked), WINDOW + N);
    tiny_stop(t);
    t->hold = t->say_taken = 0; /* only answers make room from now on */
    tiny_start(t);
    wait_all(&r, 1);
    rig_close(&r);
}

static void window_limits_bytes_in_flight(void **state)
{
    check_window(1);
    check_window(0);
}

/* Chunks that were in flight when a stream broke do not count as slow acknowledgements, which would
 * end the limit. */
static void broken_stream_keeps_window(void **state)
{
    enum { N = 64, WINDOW = 16, BREAKS = 2 };
    const int n_elems = N << 15;
    struct rig r;
    int before = 0;
    rig_open(&r, &n_elems, 1, 128 << 10, 0);
    struct tiny *t = &r.tiny;
    push_unanswered(&r, N);
    for (int i = 0; i <= BREAKS; i++) {
        tiny_await(t, &t->n_push, before + WINDOW);
        gate_await(&gate.n_stalled);
        assert_in_range(gate_get(&gate.n_pieces[PIECE_PUSH]), WINDOW, N - 1);
        tiny_stop(t);
        gate_reset();
        before = t->n_push;
        t->hold = i < BREAKS;
        tiny_start(t);
    }
    wait_all(&r, 1);
    rig_close(&r);
}

/* A server behind a proxy on this host: each acknowledgement lasts 20 ms or more. */
static void slow_server_has_no_window(void **state)
{
    enum { N = 8, STEPS = 3, LATE_NS = 20000000 };
    const int n_elems = N << 18;
    struct rig r;
    rig_open(&r, &n_elems, 1, 1 << 20, 0);
    atomic_store(&late_ns, LATE_NS);
    for (int64_t step = 0; step < STEPS; step++) {
        for (int i = 0; i < N; i++)
            push(&r, i, step);
        net_exchange_flush(r.x);
        wait_all(&r, step + 1);
    }
    atomic_store(&late_ns, 0);
    tiny_set(&r.tiny, &r.tiny.hold, 1);
    for (int i = 0; i < N; i++)
        push(&r, i, STEPS);
    net_exchange_flush(r.x);
    tiny_await(&r.tiny, &r.tiny.n_push, STEPS * N + N);
    tiny_stop(&r.tiny);
    r.tiny.hold = 0;
    tiny_start(&r.tiny);
    wait_all(&r, STEPS + 1);
    rig_close(&r);
}

/* A chunk of 2 KB is copied into its frame, a longer one passes by reference. */
static void payloads_around_copied_length_arrive(void **state)
{
    enum { EDGE = SEND_QUEUE_COPY_BYTES / (int)sizeof(float), N = 120 };
    int n_elems[N];
    struct rig r;
    for (int i = 0; i < N; i++)
        n_elems[i] = i < 60 ? EDGE : EDGE - 1 + i % 3;
    n_elems[N - 1] = 1;
    rig_open(&r, n_elems, N, 4096, 0);
    for (int64_t step = 0; step < 3; step++) {
        for (int i = 0; i < N; i++)
            push(&r, i, step);
        wait_all(&r, step + 1);
    }
    rig_close(&r);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_INFO);
    clock_cond_init(&gate.changed);
    return RUN_TESTS(first_layers_are_sent_first, small_chunks_share_frames,
                     payloads_in_shared_memory_share_a_frame, payloads_around_copied_length_arrive,
                     window_limits_bytes_in_flight, broken_stream_keeps_window,
                     slow_server_has_no_window);
}
