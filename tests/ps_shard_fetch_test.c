/* tests/ps_shard_fetch_test.c - a server fetches the chunks of a generation from other servers. It
 * waits for a slow server as long as chunks arrive. After a failure the next try fetches only the
 * missing chunks, if its plan is the same, or another one from the same step. */
#include "base/log.h"
#include "base/term.h"
#include "net/rpc/server.h"
#include "ps/service/shard_fetch.h"
#include "ps/store/handover.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fake_time.h"
#include "tests/store_rig.h"
#include <pthread.h>
#include <string.h>

enum { N_CHUNKS = 12, ELEMS = 1024, N_SOURCES = 2, STEP = 40, ALL = 1 << 20 };

static const struct net_param model[] = {
    {.name = "w", .shape = {2, {N_CHUNKS - 1, ELEMS}}},
    {.name = "mean", .shape = {1, {ELEMS}}, .rule = PARAM_AVERAGE, .keep = 0.9f}, /* no slots */
};

/* A server that sends its chunks, one in each message. */
struct source {
    struct net_server *server;
    char addr[64];
    int move_ms; /* time that the clock advances for each message */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int left;  /* chunks that the server sends before it refuses or hangs */
    int hangs; /* the server is to hang (1) or hangs now (2) */
    int asked[N_CHUNKS];
};

static struct {
    struct chunks *chunks;
    struct net_job job;
    struct source source[N_SOURCES];
    struct buf *value[N_CHUNKS], *slots[N_CHUNKS];
    struct shard_fetch *gather;
} f;

static void on_fetch(void *ctx, const struct net_fetch_request *request,
                     struct net_fetch_reply *reply)
{
    struct source *s = ctx;
    int chunk = request->chunk[0];
    const struct net_fetch_item item = {.chunk = chunk,
                                        .version = request->step,
                                        .value = f.value[chunk],
                                        .slots = f.slots[chunk],
                                        .value_bytes = f.value[chunk]->bytes,
                                        .slots_bytes = f.slots[chunk] ? f.slots[chunk]->bytes : 0};
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < request->n; i++)
        s->asked[request->chunk[i]]++;
    int has = s->left > 0;
    s->left -= has;
    if (!has && s->hangs) {
        s->hangs = 2;
        pthread_cond_broadcast(&s->wake);
        while (s->hangs)
            pthread_cond_wait(&s->wake, &s->lock);
    }
    int move_ms = s->move_ms;
    pthread_mutex_unlock(&s->lock);
    if (move_ms)
        fake_time_move(move_ms);
    if (has)
        net_fetch_put(reply, &item);
    else
        snprintf(reply->refused, sizeof reply->refused, "no more");
}

static void serve(struct source *s, int port)
{
    struct net_server_config cfg = {.addr = s->addr, .handler = {.ctx = s, .fetch = on_fetch}};
    snprintf(s->addr, sizeof s->addr, "127.0.0.1:%d", port);
    assert_int_equal(net_server_create(&cfg, &s->server), ST_OK);
    snprintf(s->addr, sizeof s->addr, "127.0.0.1:%d", net_server_port(s->server));
}

static void reset(struct source *s, int left)
{
    pthread_mutex_lock(&s->lock);
    s->left = left;
    s->hangs = s->move_ms = 0;
    memset(s->asked, 0, sizeof s->asked);
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static struct buf *filled(float first, size_t n)
{
    struct buf *b;
    assert_int_equal(buf_create(n * sizeof(float), &b), ST_OK);
    for (size_t i = 0; i < n; i++)
        ((float *)b->data)[i] = first + (float)i;
    return b;
}

static int set_up(void **state)
{
    f.job = (struct net_job){.n_workers = 1, .sync_mode = JOB_SYNC, .train_steps = 100};
    optim_defaults(OPTIM_ADAM, &f.job.optim);
    assert_int_equal(chunks_create(model, 2, ELEMS * sizeof(float), &f.chunks), ST_OK);
    assert_int_equal(f.chunks->n_chunks, N_CHUNKS);
    for (int i = 0; i < N_CHUNKS; i++) {
        f.value[i] = filled((float)i * ELEMS, ELEMS);
        if (i < N_CHUNKS - 1)
            f.slots[i] = filled(-(float)i * ELEMS, 2 * ELEMS);
    }
    for (int i = 0; i < N_SOURCES; i++) {
        pthread_mutex_init(&f.source[i].lock, NULL);
        pthread_cond_init(&f.source[i].wake, NULL);
        serve(&f.source[i], 0);
    }
    assert_int_equal(shard_fetch_create(&f.gather), ST_OK);
    return 0;
}

static int tear_down(void **state)
{
    shard_fetch_destroy(f.gather);
    for (int i = 0; i < N_SOURCES; i++)
        net_server_destroy(f.source[i].server);
    for (int i = 0; i < N_CHUNKS; i++) {
        buf_unref(f.value[i]);
        buf_unref(f.slots[i]);
    }
    chunks_destroy(f.chunks);
    return 0;
}

/* One try: all chunks move to a server without chunks. Chunks below `second` are fetched from the
 * first source, and all later chunks from the second source. */
struct
try {
    struct net_plan plan;
    struct store *store;
    int held_by[N_CHUNKS], member;
    char *holder[N_SOURCES], *server[1];
    enum status st;
    pthread_t thread;
};

static void prepare(struct try *t, uint64_t generation, int second)
{
    static int shard[N_CHUNKS];
    *t = (struct try){.holder = {f.source[0].addr, f.source[1].addr},
                      .server = {(char *)(uintptr_t) "127.0.0.1:1"}};
    for (int i = 0; i < N_CHUNKS; i++)
        t->held_by[i] = i >= second;
    t->plan = (struct net_plan){.generation = generation,
                                .step = STEP,
                                .job = f.job,
                                .chunks = f.chunks,
                                .n_members = 1,
                                .member = &t->member,
                                .servers = {1, t->server},
                                .shard = shard,
                                .source = PLAN_MEMORY,
                                .before = term_of(1, 1),
                                .holders = {N_SOURCES, t->holder},
                                .held_by = t->held_by};
    const struct store_config cfg = {
        .chunks = f.chunks, .job = &f.job, .server = shard, .generation = generation};
    t->store = store_rig_open(&cfg, 0, 0);
}

static enum status run(struct try *t)
{
    const struct shard_fetch_request request = {
        .plan = &t->plan, .self = 0, .address = "127.0.0.1:1", .to = t->store};
    t->st = shard_fetch_run(f.gather, &request);
    return t->st;
}

static void *run_main(void *arg)
{
    run(arg);
    return NULL;
}

/* Checks that every chunk is in the store, bit by bit. */
static void check(const struct try *t)
{
    for (int i = 0; i < N_CHUNKS; i++) {
        struct handover_chunk is;
        assert_int_equal(handover_take(t->store, i, t->plan.step, &is), ST_OK);
        assert_memory_equal(is.value->data, f.value[i]->data, f.value[i]->bytes);
        assert_int_equal(is.slots != NULL, f.slots[i] != NULL);
        if (is.slots)
            assert_memory_equal(is.slots->data, f.slots[i]->data, f.slots[i]->bytes);
        handover_drop(&is);
    }
}

static void finish(struct try *t)
{
    store_destroy(t->store);
}

/* Checks that only these chunks were requested. */
static void check_asked(struct source *s, int first, int last)
{
    int asked[N_CHUNKS];
    pthread_mutex_lock(&s->lock);
    memcpy(asked, s->asked, sizeof asked);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < N_CHUNKS; i++)
        if ((asked[i] > 0) != (i >= first && i < last))
            fail_msg("chunk %d was requested %d times", i, asked[i]);
}

static void check_not_asked(struct source *s, int chunk)
{
    pthread_mutex_lock(&s->lock);
    int n = s->asked[chunk];
    pthread_mutex_unlock(&s->lock);
    assert_int_equal(n, 0);
}

/* Each chunk follows 40 s after the previous one. This lasts 8 minutes, but no minute passes
 * without a chunk. */
static void slow_source_is_awaited_while_chunks_arrive(void **state)
{
    struct try t;
    reset(&f.source[0], ALL);
    prepare(&t, term_of(1, 2), N_CHUNKS);
    fake_time_stop();
    pthread_mutex_lock(&f.source[0].lock);
    f.source[0].move_ms = 40000;
    pthread_mutex_unlock(&f.source[0].lock);
    enum status st = CAPTURE(run(&t));
    fake_time_release();
    assert_int_equal(st, ST_OK);
    check(&t);
    check_asked(&f.source[0], 0, N_CHUNKS);
    char line[128];
    snprintf(line, sizeof line, "generation 1.2: 3 of 12 chunks, 0.0 of 0.1 MB from %s",
             f.source[0].addr);
    assert_non_null(strstr(capture_text, line));
    snprintf(line, sizeof line, "12 chunks, with the optimizer's state 0.1 MB, received from %s",
             f.source[0].addr);
    assert_non_null(strstr(capture_text, line));
    assert_int_equal(capture_lines(), N_CHUNKS);
    finish(&t);
}

static void received_chunks_are_not_fetched_again(void **state)
{
    struct try t;
    reset(&f.source[0], 5);
    prepare(&t, term_of(1, 2), N_CHUNKS);
    assert_int_equal(CAPTURE(run(&t)), ST_REFUSED);
    assert_non_null(strstr(capture_text, "7 of 12 chunks of generation 1.1 are still missing"));
    finish(&t);
    reset(&f.source[0], 4);
    prepare(&t, term_of(1, 2), N_CHUNKS); /* the same plan again */
    assert_int_equal(CAPTURE(run(&t)), ST_REFUSED);
    assert_non_null(strstr(capture_text, "3 of 12 chunks of generation 1.1 are still missing"));
    for (int i = 0; i < 5; i++)
        check_not_asked(&f.source[0], i);
    finish(&t);
    reset(&f.source[0], ALL);
    prepare(&t, term_of(1, 3), N_CHUNKS); /* another plan from the same step */
    assert_int_equal(CAPTURE(run(&t)), ST_OK);
    check(&t);
    check_asked(&f.source[0], 9, N_CHUNKS);
    assert_non_null(strstr(capture_text, "9 of 12 chunks"));
    finish(&t);
    reset(&f.source[0], ALL);
    prepare(&t, term_of(1, 4), N_CHUNKS); /* no chunk is kept after a success */
    assert_int_equal(CAPTURE(run(&t)), ST_OK);
    check_asked(&f.source[0], 0, N_CHUNKS);
    finish(&t);
}

/* A source stops in the middle. A cancel ends the wait for it, and the source returns. */
static void returned_source_sends_only_the_missing_chunks(void **state)
{
    struct try t;
    struct source *s = &f.source[0];
    reset(s, 6);
    pthread_mutex_lock(&s->lock);
    s->hangs = 1;
    pthread_mutex_unlock(&s->lock);
    prepare(&t, term_of(1, 9), N_CHUNKS);
    capture_begin();
    int err = pthread_create(&t.thread, NULL, run_main, &t);
    pthread_mutex_lock(&s->lock);
    while (!err && s->hangs != 2)
        pthread_cond_wait(&s->wake, &s->lock);
    pthread_mutex_unlock(&s->lock);
    shard_fetch_cancel(f.gather, t.plan.generation);
    if (!err)
        pthread_join(t.thread, NULL);
    capture_end();
    assert_int_equal(err, 0);
    assert_int_equal(t.st, ST_CANCELLED);
    assert_non_null(strstr(capture_text, "6 of 12 chunks"));
    finish(&t);
    reset(s, ALL);
    int port = net_server_port(s->server);
    net_server_destroy(s->server);
    serve(s, port);
    reset(s, ALL);
    prepare(&t, term_of(1, 10), N_CHUNKS);
    assert_int_equal(CAPTURE(run(&t)), ST_OK);
    check(&t);
    check_asked(s, 6, N_CHUNKS);
    finish(&t);
}

/* A plan resumes from another step: the chunks of earlier tries have no use. */
static void chunks_of_another_step_are_fetched_again(void **state)
{
    for (int k = 0; k < 3; k++) {
        struct try t;
        reset(&f.source[0], 5);
        prepare(&t, term_of(1, 2), N_CHUNKS);
        assert_int_equal(CAPTURE(run(&t)), ST_REFUSED);
        finish(&t);
        reset(&f.source[0], ALL);
        prepare(&t, term_of(1, 3), N_CHUNKS);
        t.plan.step += k == 0;
        t.plan.before += k == 1;
        if (k == 2)
            shard_fetch_forget(f.gather);
        assert_int_equal(CAPTURE(run(&t)), ST_OK);
        check(&t);
        check_asked(&f.source[0], 0, N_CHUNKS);
        finish(&t);
    }
}

/* One source refuses, but the other source's chunks are fetched. */
static void failed_source_does_not_prevent_other_fetches(void **state)
{
    struct try t;
    reset(&f.source[0], 2);
    reset(&f.source[1], ALL);
    prepare(&t, term_of(1, 2), 4);
    assert_int_equal(CAPTURE(run(&t)), ST_REFUSED);
    check_asked(&f.source[1], 4, N_CHUNKS);
    finish(&t);
    reset(&f.source[0], ALL);
    reset(&f.source[1], 0);
    prepare(&t, term_of(1, 2), 4);
    assert_int_equal(CAPTURE(run(&t)), ST_OK);
    check(&t);
    check_asked(&f.source[0], 2, 4);
    check_asked(&f.source[1], 0, 0);
    finish(&t);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_INFO);
    return RUN_GROUP(
        set_up, tear_down, slow_source_is_awaited_while_chunks_arrive,
        received_chunks_are_not_fetched_again, returned_source_sends_only_the_missing_chunks,
        chunks_of_another_step_are_fetched_again, failed_source_does_not_prevent_other_fetches);
}
