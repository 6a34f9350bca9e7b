/* tests/ps_noalloc_test.c - between steps our code allocates no memory: the store in every mode and
 * order of arrival, the exchange of a worker alone, and client, service and store over loopback.
 * Only a step that creates rows of a table may allocate memory. The program contains our libraries,
 * and replaces the allocating functions for them (--wrap). It does not see gRPC's own allocations.
 */
#include "base/log.h"
#include "member/updates.h"
#include "net/wire/tables.h"
#include "ps/service/service.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ELEMS = 5000, N_CHUNKS = 5, WARM_UP = 4, STEPS = 60, GENERATION = 1 };

static _Atomic long n_allocations;

#define COUNTED(result, name, params, args)                                                        \
    result __real_##name params;                                                                   \
    result __wrap_##name params;                                                                   \
    result __wrap_##name params                                                                    \
    {                                                                                              \
        atomic_fetch_add(&n_allocations, 1);                                                       \
        return __real_##name args;                                                                 \
    }
COUNTED(void *, malloc, (size_t n), (n))
COUNTED(void *, calloc, (size_t n, size_t size), (n, size))
COUNTED(void *, realloc, (void *p, size_t n), (p, n))
COUNTED(void *, aligned_alloc, (size_t alignment, size_t n), (alignment, n))
COUNTED(int, posix_memalign, (void **out, size_t alignment, size_t n), (out, alignment, n))
COUNTED(char *, strdup, (const char *s), (s))
COUNTED(char *, strndup, (const char *s, size_t n), (s, n))

static const struct net_param param = {.name = "w", .shape = {1, {N_ELEMS}}};

static struct chunks *make_chunks(void)
{
    struct chunks *c;
    assert_int_equal(chunks_create(&param, 1, 4096, &c), ST_OK);
    assert_int_equal(c->n_chunks, N_CHUNKS);
    return c;
}

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    *(int *)ctx += a->payload != NULL;
}

/* Pushes one contribution, all ones, to each chunk. */
static void contribute(struct store *s, const struct chunks *chunks, const struct net_job *job,
                       int member, int64_t step)
{
    static const uint8_t zeros[4096]; /* zero is all bytes 0 in every dtype */
    for (int c = 0; c < N_CHUNKS; c++) {
        size_t n = dtype_bytes(job->push_dtype, (size_t)chunks->chunks[c].n_elems);
        struct net_frame_head head = {GENERATION, (uint32_t)member, 5};
        struct net_piece piece = {.kind = PIECE_PUSH,
                                  .chunk = (uint32_t)c,
                                  .step = (uint64_t)step,
                                  .weight = 1,
                                  .dtype = job->push_dtype,
                                  .payload.bytes = n};
        assert_int_not_equal(store_rig_act(s, &head, piece, zeros, 0), PIECE_REFUSED);
        piece = (struct net_piece){.kind = PIECE_PULL, .chunk = (uint32_t)c};
        assert_int_equal(store_rig_act(s, &head, piece, NULL, 0), PIECE_VERSION);
    }
}

static void run_store(const struct net_job *job)
{
    struct chunks *chunks = make_chunks();
    struct store *s;
    int server[N_CHUNKS] = {0}, n_answers = 0;
    static const float zeros[1024];
    struct store_config cfg = {.chunks = chunks,
                               .job = job,
                               .server = server,
                               .generation = GENERATION,
                               .max_bytes = 1 << 20,
                               .answer = on_answer,
                               .ctx = &n_answers};
    assert_int_equal(store_create(&cfg, &s), ST_OK);
    for (int m = 0; m < job->n_workers; m++)
        store_admit(s, m, 5);
    for (int c = 0; c < N_CHUNKS; c++) {
        struct net_frame_head head = {GENERATION, 0, 5};
        struct net_piece piece = {.kind = PIECE_INIT,
                                  .chunk = (uint32_t)c,
                                  .payload.bytes = (size_t)chunks->chunks[c].n_elems * 4};
        assert_int_equal(store_rig_act(s, &head, piece, zeros, 0), PIECE_VERSION);
    }
    long before = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == WARM_UP)
            before = atomic_load(&n_allocations);
        for (int k = 0; k < job->n_workers; k++) { /* both in order and out of order */
            int m = step % 2 ? job->n_workers - 1 - k : k;
            contribute(s, chunks, job, m, step);
        }
    }
    long after = atomic_load(&n_allocations);
    assert_true(before > 0); /* the counter works */
    assert_in_range(store_step(s), STEPS, 2 * STEPS);
    assert_true(n_answers > 0 || job->sync_mode == JOB_ASYNC);
    assert_int_equal(after - before, 0);
    store_destroy(s);
    chunks_destroy(chunks);
}

static void store_allocates_nothing_between_steps(void **state)
{
    static const struct net_job jobs[] = {
        {.sync_mode = JOB_SYNC},
        {.sync_mode = JOB_SYNC, .push_dtype = DTYPE_BF16, .version_dtype = DTYPE_BF16},
        {.sync_mode = JOB_SYNC, .push_dtype = DTYPE_F16},
        {.sync_mode = JOB_SYNC, .aggregate = 1},
        {.sync_mode = JOB_ASYNC},
        {.sync_mode = JOB_ASYNC, .delay_compensation = 0.5f, .version_dtype = DTYPE_BF16},
        {.sync_mode = JOB_SSP, .staleness = 1},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct net_job job = jobs[i];
        print_message("job %zu\n", i);
        job.n_workers = 2;
        job.train_steps = 1000;
        optim_defaults(OPTIM_ADAM, &job.optim);
        run_store(&job);
    }
}

enum { N_TABLE_KEYS = 200, TABLE_DIM = 4 };

/* Pushes to a bucket the same keys as in each step, or `more` further ones, and reads them. */
static void push_rows(struct store *s, const struct net_job *job, int member, int64_t step,
                      size_t more)
{
    static uint8_t data[2 * N_TABLE_KEYS * (2 * 8 + TABLE_DIM * 4)];
    size_t n = N_TABLE_KEYS + more;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(data + i * sizeof i, &i, sizeof i);
        memcpy(data + (n + i) * sizeof i, &i, sizeof i);
    }
    memset(data + 2 * n * sizeof n, 0, n * TABLE_DIM * sizeof(float));
    struct net_frame_head head = {GENERATION, (uint32_t)member, 5};
    struct net_piece piece = {.kind = PIECE_PUSH,
                              .chunk = N_CHUNKS,
                              .step = (uint64_t)step,
                              .weight = 1,
                              .dtype = job->push_dtype,
                              .rows = (uint32_t)n,
                              .reads = (uint32_t)n,
                              .payload.bytes = n * (2 * sizeof(uint64_t)) +
                                               dtype_bytes(job->push_dtype, n * TABLE_DIM)};
    assert_int_not_equal(store_rig_act(s, &head, piece, data, 0), PIECE_REFUSED);
    piece = (struct net_piece){.kind = PIECE_PULL,
                               .chunk = N_CHUNKS,
                               .reads = (uint32_t)n,
                               .payload.bytes = n * sizeof(uint64_t)};
    assert_int_equal(store_rig_act(s, &head, piece, data, 0), PIECE_VERSION);
}

static void run_bucket(const struct net_job *job)
{
    struct net_table table = {
        .name = "t", .dim = TABLE_DIM, .n_buckets = 1, .max_rows = 1000, .step_rows = 1000};
    struct chunks *chunks = make_chunks();
    struct store *s;
    int server[N_CHUNKS + 1] = {0}, n_answers = 0;
    optim_rows_defaults(OPTIM_ROWS_ADAM, &table.optimizer);
    assert_int_equal(tables_add(chunks, &table, 1), ST_OK);
    struct store_config cfg = {.chunks = chunks,
                               .job = job,
                               .server = server,
                               .generation = GENERATION,
                               .max_bytes = 1 << 20,
                               .answer = on_answer,
                               .ctx = &n_answers};
    assert_int_equal(store_create(&cfg, &s), ST_OK);
    for (int m = 0; m < job->n_workers; m++)
        store_admit(s, m, 5);
    long before = 0, after = 0;
    for (int64_t step = 0; step <= STEPS; step++) {
        if (step == WARM_UP)
            before = atomic_load(&n_allocations);
        if (step == STEPS) /* this step creates rows, which may need memory */
            after = atomic_load(&n_allocations);
        for (int m = 0; m < job->n_workers; m++)
            push_rows(s, job, m, step, step == STEPS ? N_TABLE_KEYS : 0);
    }
    assert_int_equal(after - before, 0);
    assert_true(atomic_load(&n_allocations) > after);
    store_destroy(s);
    chunks_destroy(chunks);
}

/* A step may allocate memory for the rows that it creates. */
static void bucket_allocates_nothing_for_rows_that_exist(void **state)
{
    static const struct net_job jobs[] = {
        {.sync_mode = JOB_SYNC},
        {.sync_mode = JOB_SYNC, .push_dtype = DTYPE_BF16, .version_dtype = DTYPE_F16},
        {.sync_mode = JOB_ASYNC},
        {.sync_mode = JOB_SSP, .staleness = 1},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct net_job job = jobs[i];
        print_message("job %zu\n", i);
        job.n_workers = 2;
        job.train_steps = 1000;
        optim_defaults(OPTIM_SGD, &job.optim);
        run_bucket(&job);
    }
}

static struct net_exchange_config client_config(const struct hosts *hosts, int member,
                                                const struct chunks *chunks, float *params)
{
    struct net_exchange_config cfg = {
        .ps_hosts = hosts,
        .join = {.member = member, .incarnation = 7 + (uint64_t)member, .chunks = chunks},
        .params = params};
    cfg.join.job = (struct net_job){.n_workers = 2, .train_steps = 1000};
    optim_defaults(OPTIM_MOMENTUM, &cfg.join.job.optim);
    return cfg;
}

static void push_all(const struct updates *x, int64_t step, const float *gradient)
{
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(x->ops->push(x->ctx, c, step, gradient, 1), ST_OK);
    x->ops->flush(x->ctx);
}

static void worker_alone_allocates_nothing_between_steps(void **state)
{
    static float params[N_ELEMS];
    static const float gradient[1024];
    struct chunks *chunks = make_chunks();
    const struct hosts none = {0, NULL};
    struct updates x;
    struct net_exchange_config cfg = client_config(&none, 0, chunks, params);
    assert_int_equal(updates_create(&cfg, &x), ST_OK);
    long before = atomic_load(&n_allocations);
    for (int64_t step = 0; step < STEPS; step++) {
        push_all(&x, step, gradient);
        assert_int_equal(x.ops->wait(x.ctx, 0, N_CHUNKS, step + 1, INT64_MAX), ST_OK);
    }
    assert_int_equal(atomic_load(&n_allocations) - before, 0);
    updates_destroy(&x);
    chunks_destroy(chunks);
}

static void on_done(void *ctx)
{
}

/* A stream allocates memory for an answer that waits only when more answers wait than ever before.
 * So its total is bounded by the number of chunks, for any number of steps. */
static void run_over_the_network(int shared)
{
    static float params[2][N_ELEMS];
    static const float zeros[1024];
    const float *gradient[2];
    struct segment *segment[2];
    char addr[32], *addrs[1] = {addr};
    struct hosts hosts = {1, addrs}, workers = {0, NULL};
    struct chunks *chunks = make_chunks();
    struct service_config service_cfg = {
        .ps_hosts = &hosts, .worker_hosts = &workers, .max_model_bytes = 1 << 20, .done = on_done};
    service_cfg.shared_memory = shared;
    struct service *service;
    struct net_server *server;
    struct updates x[2];
    struct net_start start;
    assert_int_equal(service_create(&service_cfg, &service), ST_OK);
    struct net_server_config server_cfg = {.addr = "127.0.0.1:0",
                                           .handler = service_handler(service)};
    assert_int_equal(net_server_create(&server_cfg, &server), ST_OK);
    snprintf(addr, sizeof addr, "127.0.0.1:%d", net_server_port(server));
    for (int m = 0; m < 2; m++) {
        struct net_exchange_config cfg = client_config(&hosts, m, chunks, params[m]);
        cfg.shared_memory = shared;
        assert_int_equal(updates_create(&cfg, &x[m]), ST_OK);
        segment[m] = x[m].ops->gradients(x[m].ctx, DTYPE_F32);
        assert_int_equal(segment[m] != NULL, shared);
        gradient[m] = shared ? segment_data(segment[m]) : zeros;
        assert_int_equal(x[m].ops->start(x[m].ctx, &start), ST_OK);
    }
    long before = 0;
    for (int64_t step = 0; step < 10 * STEPS; step++) {
        if (step == STEPS)
            before = atomic_load(&n_allocations);
        for (int k = 0; k < 2; k++)
            push_all(&x[(step + k) % 2], step, gradient[(step + k) % 2]);
        for (int m = 0; m < 2; m++)
            assert_int_equal(x[m].ops->wait(x[m].ctx, 0, N_CHUNKS, step + 1, INT64_MAX), ST_OK);
    }
    long n_new = atomic_load(&n_allocations) - before;
    print_message("%ld allocations of ours in %d steps\n", n_new, 9 * STEPS);
    assert_in_range(n_new, 0, 2 * N_CHUNKS);
    for (int m = 0; m < 2; m++) {
        struct net_exchange_stats stats;
        x[m].ops->stats(x[m].ctx, &stats);
        assert_in_range(stats.shared_bytes, shared ? 10 * STEPS * 2 * N_ELEMS * 4 : 0,
                        shared ? stats.sent_bytes + stats.received_bytes : 0);
        assert_int_equal(x[m].ops->leave(x[m].ctx, 1, ""), ST_OK);
        updates_destroy(&x[m]);
        segment_unref(segment[m]);
    }
    net_server_destroy(server);
    service_destroy(service);
    chunks_destroy(chunks);
}

static void exchange_allocates_nothing_between_steps(void **state)
{
    run_over_the_network(0);
    run_over_the_network(1);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_WARN);
    return RUN_TESTS(
        store_allocates_nothing_between_steps, bucket_allocates_nothing_for_rows_that_exist,
        worker_alone_allocates_nothing_between_steps, exchange_allocates_nothing_between_steps);
}
