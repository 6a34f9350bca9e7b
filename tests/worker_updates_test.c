/* tests/worker_updates_test.c - the updates of a worker alone have the same bits as one call of the
 * optimizer for each whole chunk, with any number of threads. A worker
 * alone refuses tables. */
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/vector/vector.h"
#include "member/updates.h"
#include "net/wire/tables.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/skip.h"
#include "tests/table_rig.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N_TRAINED = 3 * CREW_RANGE + 5000, N_AVERAGED = CREW_RANGE + 2500, STEPS = 3 };
enum { N_ALL = N_TRAINED + N_AVERAGED };
static const float weight = 13;

static struct {
    int n, n_runs;
    void (*part)(void *ctx, int k);
    void *ctx;
} job;

static void *odd_parts(void *arg)
{
    for (int k = job.n - 1; k >= 0; k--)
        if (k % 2)
            job.part(job.ctx, k);
    return arg;
}

/* Runs the parts on two threads, the last part first. */
static void spread_backwards(int n_threads, int n, void (*part)(void *ctx, int k), void *ctx)
{
    pthread_t thread;
    assert_int_equal(n_threads, 2);
    job.n = n;
    job.part = part;
    job.ctx = ctx;
    job.n_runs++;
    assert_int_equal(pthread_create(&thread, NULL, odd_parts, NULL), 0);
    for (int k = (n - 1) / 2 * 2; k >= 0; k -= 2)
        part(ctx, k);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static float number(uint64_t stream, size_t i)
{
    return rng_uniform(rng_key(stream, RNG_TEST, 0), i) - 0.5f;
}

/* Computes each chunk's update by separate calls, with a sum in memory of its own. */
static void plain(const struct chunks *chunks, const struct optim_config *o, uint64_t step,
                  const float *grads, float *params, float *slots)
{
    float scale = (float)(1.0 / (double)weight);
    float *sum = malloc(N_ALL * sizeof *sum);
    assert_non_null(sum);
    vector_scale(sum, grads, weight, N_ALL);
    for (int i = 0; i < chunks->n_chunks; i++) {
        const struct net_chunk *c = &chunks->chunks[i];
        const struct net_param *p = &chunks->params[c->param];
        float *at = params + c->first;
        size_t n = (size_t)c->n_elems;
        if (p->rule == PARAM_AVERAGE)
            optim_average(p->keep, n, sum + c->first, scale, at, at);
        else
            optim_apply(o, step, n, sum + c->first, scale, at, slots + optim_n_slots(o) * c->first,
                        at);
    }
    free(sum);
}

static void check(const struct optim_config *optim, int64_t chunk_bytes)
{
    static float params[N_ALL], expected[N_ALL], grads[N_ALL], slots[2 * N_ALL];
    static const struct backend backend = {.name = "backwards", .spread = spread_backwards};
    struct net_param list[] = {{.name = "w", .shape = {1, {N_TRAINED}}},
                               {.name = "mean", .shape = {1, {N_AVERAGED}}}};
    list[1].rule = PARAM_AVERAGE;
    list[1].keep = 0.9f;
    struct chunks *chunks;
    struct hosts none = {0};
    struct updates x = {0};
    struct updates_state state;
    assert_int_equal(chunks_create(list, 2, chunk_bytes, &chunks), ST_OK);
    struct net_exchange_config cfg = {
        .ps_hosts = &none,
        .params = params,
        .join = {.incarnation = 1, .job = {.n_workers = 1, .optim = *optim}, .chunks = chunks}};
    assert_int_equal(updates_create(&cfg, &x), ST_OK);
    x.ops->set_crew(x.ctx, &(struct crew){backend.spread, 2, NULL});
    memset(slots, 0, sizeof slots);
    for (size_t i = 0; i < N_ALL; i++)
        params[i] = expected[i] = number(1, i);
    job.n_runs = 0;
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < N_ALL; i++)
            grads[i] = number(2 + (uint64_t)step, i);
        plain(chunks, optim, (uint64_t)step + 1, grads, expected, slots);
        for (int c = 0; c < chunks->n_chunks; c++)
            assert_int_equal(x.ops->push(x.ctx, c, step, grads + chunks->chunks[c].first, weight),
                             ST_OK);
        assert_memory_equal(params, expected, sizeof params);
    }
    assert_true(job.n_runs > 0);
    assert_int_equal(updates_state(&x, &state), 1);
    assert_int_equal(state.n_slots, optim_n_slots(optim));
    assert_memory_equal(state.slots, slots, sizeof(float) * N_ALL * (size_t)state.n_slots);
    /* weight 0 changes nothing, and its gradient is not read */
    assert_int_equal(x.ops->push(x.ctx, 0, STEPS, NULL, 0), ST_OK);
    assert_memory_equal(params, expected, sizeof params);
    assert_int_equal(x.ops->version(x.ctx, 0), STEPS + 1);
    updates_destroy(&x);
    chunks_destroy(chunks);
}

static void every_rule_has_same_bits(void **state)
{
    for (int kind = 0; kind < OPTIM_N_KINDS; kind++)
        for (int clips = 0; clips < 2; clips++) {
            struct optim_config optim;
            optim_defaults((enum optim_kind)kind, &optim);
            optim.clip_value = clips ? 0.1f : 0;
            check(&optim, 1 << 20);
            check(&optim, 3 * CREW_RANGE * (int64_t)sizeof(float) / 2);
        }
}

static _Atomic int n_called[100];

static void call(void *ctx, int k)
{
    n_called[k] += *(int *)ctx;
}

/* The CPU's own threads run each part once. */
static void cpu_threads_run_each_part_once(void **state)
{
    const struct backend *cpu;
    char why[BACKEND_WHY_SIZE];
    int one = 1, n_times = 0;
    if (backend_find("cpu", WEIR_TEST_BACKEND_DIR, &cpu, why) != ST_OK)
        skip_because("no CPU backend: %s", why);
    assert_non_null(cpu->spread);
    for (int n_threads = 1; n_threads <= 4; n_threads++)
        for (int n = 0; n <= 100; n += 25) {
            memset((void *)n_called, 0, sizeof n_called);
            cpu->spread(n_threads, n, call, &one);
            for (int k = 0; k < 100; k++)
                assert_int_equal(n_called[k], k < n);
            n_times++;
        }
    assert_int_equal(n_times, 20);
}

/* A worker without servers has no store for rows. */
static void tables_need_servers(void **state)
{
    const struct net_param param = {.name = "w", .shape = {1, {N_TRAINED}}};
    const struct net_table table = {.name = "ads",
                                    .dim = 4,
                                    .n_buckets = 4,
                                    .max_rows = 1000,
                                    .step_rows = 100,
                                    .optimizer = TABLE_RIG_SGD};
    static float params[N_TRAINED];
    struct chunks *chunks;
    struct hosts none = {0};
    struct updates x = {0};
    assert_int_equal(chunks_create(&param, 1, 1 << 16, &chunks), ST_OK);
    assert_int_equal(tables_add(chunks, &table, 1), ST_OK);
    struct net_exchange_config cfg = {
        .ps_hosts = &none, .params = params, .join = {.incarnation = 1, .chunks = chunks}};
    cfg.join.job.n_workers = 1;
    optim_defaults(OPTIM_SGD, &cfg.join.job.optim);
    enum status st = CAPTURE(updates_create(&cfg, &x));
    assert_int_equal(st, ST_UNSUPPORTED);
    assert_non_null(strstr(capture_text, "tables need servers"));
    chunks_destroy(chunks);
}

int main(void)
{
    return RUN_TESTS(every_rule_has_same_bits, cpu_threads_run_each_part_once, tables_need_servers);
}
