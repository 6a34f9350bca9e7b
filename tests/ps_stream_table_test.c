/* tests/ps_stream_table_test.c - answers to a stream that closes: no lock is held while a stream is
 * used, and a stream's memory stays until its last user has finished. The linker replaces
 * net_stream_send (tests/CMakeLists.txt), so that the test can make a send wait. */
#include "base/clock.h"
#include "base/log.h"
#include "ps/service/stream_table.h"
#include "tests/check.h"
#include "tests/net_raw.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_ROUNDS = 40, N_SENDERS = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all fields below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int stand_still, n_standing;

static struct stream_table *streams;
static _Atomic uint64_t number; /* number of the open stream; 0: none */
static _Atomic int n_closed;

void __real_net_stream_send(struct net_stream *stream, const struct net_frame_head *head,
                            const struct net_piece *piece, struct buf *payload, size_t offset,
                            size_t bytes);
void __wrap_net_stream_send(struct net_stream *stream, const struct net_frame_head *head,
                            const struct net_piece *piece, struct buf *payload, size_t offset,
                            size_t bytes);
void __wrap_net_stream_send(struct net_stream *stream, const struct net_frame_head *head,
                            const struct net_piece *piece, struct buf *payload, size_t offset,
                            size_t bytes)
{
    pthread_mutex_lock(&lock);
    n_standing++;
    pthread_cond_broadcast(&changed);
    while (stand_still)
        pthread_cond_wait(&changed, &lock);
    n_standing--;
    pthread_mutex_unlock(&lock);
    __real_net_stream_send(stream, head, piece, payload, offset, bytes);
}

static void on_piece(void *ctx, struct net_stream *stream, const struct net_frame_head *head,
                     const struct net_piece *piece)
{
    uint64_t opened = stream_table_open(streams, stream);
    net_stream_set_user(stream, (void *)(uintptr_t)opened);
    pthread_mutex_lock(&lock);
    atomic_store(&number, opened);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void on_closed(void *ctx, struct net_stream *stream)
{
    stream_table_close(streams, (uint64_t)(uintptr_t)net_stream_user(stream));
    pthread_mutex_lock(&lock);
    atomic_store(&number, 0);
    atomic_fetch_add(&n_closed, 1);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static struct net_server *start(void)
{
    struct net_server *server = NULL;
    const struct net_server_config cfg = {
        .addr = "127.0.0.1:0", .handler = {.piece = on_piece, .stream_closed = on_closed}};
    assert_int_equal(stream_table_create(&streams), ST_OK);
    assert_int_equal(net_server_create(&cfg, &server), ST_OK);
    return server;
}

/* Opens a stream with one piece; sets its number. */
static void open_stream(struct raw *r, struct net_server *server)
{
    const struct net_frame_head head = {1, 0, 99};
    const struct net_piece piece = {.kind = PIECE_PULL};
    uint8_t frame[128];
    size_t n = frame_encode_head(&head, frame);
    n += frame_encode_piece_head(&piece, 0, frame + n);
    raw_open(r, net_server_port(server), "/weir.v1.Weir/Exchange");
    assert_true(raw_send(r, frame, n));
    pthread_mutex_lock(&lock);
    while (!atomic_load(&number))
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void close_stream(struct raw *r)
{
    int before = atomic_load(&n_closed);
    raw_cancel(r);
    raw_close(r);
    pthread_mutex_lock(&lock);
    while (atomic_load(&n_closed) == before)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void send_one(uint64_t to)
{
    const struct net_frame_head head = {1, 0, 99};
    const struct net_piece piece = {.kind = PIECE_VERSION};
    stream_table_send(streams, to, &head, &piece, NULL);
}

static void *send_once(void *arg)
{
    send_one(*(uint64_t *)arg);
    return NULL;
}

/* A sender waits in a send. The close of the stream does not wait for this sender, which continues
 * afterwards. */
static void close_does_not_wait_for_a_sender(void **state)
{
    static struct raw r;
    pthread_t sender;
    struct net_server *server = start();
    send_one(0); /* no stream has this number */
    open_stream(&r, server);
    uint64_t to = atomic_load(&number);
    stand_still = 1;
    assert_int_equal(pthread_create(&sender, NULL, send_once, &to), 0);
    pthread_mutex_lock(&lock);
    while (!n_standing)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    close_stream(&r);
    send_one(to); /* the closed stream is not found any more */
    stream_table_doubt(streams, to);
    pthread_mutex_lock(&lock);
    stand_still = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(sender, NULL);
    net_server_destroy(server);
    stream_table_destroy(streams);
}

static _Atomic int stop;

static void *send_always(void *arg)
{
    while (!atomic_load(&stop)) {
        uint64_t to = atomic_load(&number);
        send_one(to);
        stream_table_doubt(streams, to);
    }
    return NULL;
}

/* Senders run all the time while streams open and close, so that sanitizers find races. */
static void concurrent_closes_and_sends_are_safe(void **state)
{
    static struct raw r;
    pthread_t senders[N_SENDERS];
    struct net_server *server = start();
    atomic_store(&stop, 0);
    for (int i = 0; i < N_SENDERS; i++)
        assert_int_equal(pthread_create(&senders[i], NULL, send_always, NULL), 0);
    for (int i = 0; i < N_ROUNDS; i++) {
        open_stream(&r, server);
        close_stream(&r);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < N_SENDERS; i++)
        pthread_join(senders[i], NULL);
    net_server_destroy(server);
    stream_table_destroy(streams);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_WARN);
    alarm(600); /* limits an endless wait */
    return RUN_TESTS(close_does_not_wait_for_a_sender, concurrent_closes_and_sends_are_safe);
}
