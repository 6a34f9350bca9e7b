/* tests/kernel_group_test.c - tests plans in a group, each with its own thread, samples and card.
 * The host must receive the weighted sum of their gradients, as the double-precision reference
 * computes it, with the same bits every time. No rank may wait for ever for a rank that does not
 * arrive. Backend: argv[1], or "emulated" (tests/emulation), in the folder argv[2]. Layouts that
 * need more devices than exist are skipped. If the build lacks NCCL's header, the cases that only
 * the emulation can simulate (NCCL missing, failing, hanging) are skipped, too. */
#include "base/clock.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/kernel_reference.h"
#include "tests/kernel_tuning.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 12, MAX_RANKS = 8, SEED = 31, ROWS = 40 };
static const double smallest = 1e-6;
static const struct backend *backend;
static const char *backend_name = "emulated", *backend_folder;

/* ---- layouts and nets ---- */

struct layout {
    const char *name;
    int n, n_devices;
    int device[MAX_RANKS], samples[MAX_RANKS];
};

static const struct layout layouts[] = {
    {"one tower", 1, 1, {0}, {12}},
    {"two on a card", 2, 1, {0, 0}, {6, 6}},
    {"three on a card, unequal", 3, 1, {0, 0, 0}, {5, 1, 6}},
    {"two cards", 2, 2, {0, 1}, {6, 6}},
    {"two cards, unequal, the other way round", 2, 2, {1, 0}, {9, 3}},
    {"two on each of two", 4, 2, {0, 0, 1, 1}, {3, 3, 3, 3}},
    {"two and one, mixed order", 3, 2, {1, 0, 1}, {4, 7, 1}},
    {"three cards, unequal", 3, 3, {0, 1, 2}, {5, 3, 4}},
    {"six on four", 6, 4, {3, 1, 0, 2, 1, 3}, {2, 1, 4, 2, 1, 2}},
    {"three on each of two", 6, 2, {0, 0, 0, 1, 1, 1}, {2, 2, 2, 2, 2, 2}},
};
enum {
    N_LAYOUTS = sizeof layouts / sizeof layouts[0],
    TWO_ON_ONE = 1,
    TWO_ON_TWO = 5,
    SIX = 8,
    THREE_ON_TWO = 9
};

static void end(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* Tensors of many pages, so that a part of them is pinned, and small ones. */
static void build_dense(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 14);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 3);
    end(r);
}

static void build_convolution(struct reference *r)
{
    reference_conv(r, 3, 5, 2, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    end(r);
}

static void (*const nets[])(struct reference *r) = {build_dense, build_convolution};
enum { N_NETS = sizeof nets / sizeof nets[0] };

/* ---- a group of plans ---- */

struct rig;
struct rank {
    struct rig *rig;
    int index, first; /* first: the rank's first sample */
    struct plan *plan;
    enum status st;
    uint64_t key; /* key of its delays */
};

struct rig {
    const struct layout *layout;
    struct reference *r;
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    double *want[REFERENCE_MAX_PARAMS];
    uint8_t images[BATCH * ROWS * ROWS], labels[BATCH];
    const uint8_t *image[BATCH];
    uint64_t position[BATCH];
    struct backend_group *group;
    struct rank rank[MAX_RANKS];
    pthread_barrier_t step; /* all ranks, and the test */
    int n_steps, delays, check;
    int lowest; /* the first layer with parameters */
    int absent; /* rank that ends before the backward of `lowest`; -1: none */
    int stuck;  /* number of ranks that block in a backward until the cancel */
    _Atomic int n_waiting;
};

static void inputs_fill(struct rig *g)
{
    for (int s = 0; s < BATCH; s++) {
        g->image[s] = g->images + s * ROWS * ROWS;
        g->labels[s] = (uint8_t)rng_below(rng_key(SEED, RNG_TEST, 1), (uint64_t)s, 10);
        g->position[s] = 1000003u * (uint64_t)s + 17;
    }
    for (uint64_t k = 0; k < sizeof g->images; k++)
        g->images[k] = (uint8_t)rng_u64(rng_key(SEED, RNG_TEST, 2), k);
    for (int i = 0; i < g->r->n_params; i++) {
        size_t n = (size_t)g->r->param_elems[i];
        g->params[i] = calloc(n + 64, sizeof(float));
        g->grads[i] = calloc(n + 64, sizeof(float));
        g->want[i] = calloc(n, sizeof(double));
        assert_true(g->params[i] && g->grads[i] && g->want[i]);
        for (size_t k = 0; k < n; k++) {
            float v = rng_uniform(rng_key(SEED, RNG_TEST, 10 + (uint64_t)i), k) * 0.2f - 0.05f;
            g->params[i][k] = v;
            g->r->param[i][k] = (double)v;
        }
    }
}

/* Computes the sum over ranks of weight x gradient, in double precision. */
static void reference_sum(struct rig *g)
{
    for (int k = 0, first = 0; k < g->layout->n; first += g->layout->samples[k++]) {
        int n = g->layout->samples[k];
        reference_forward(g->r, g->images + first * ROWS * ROWS, g->labels + first,
                          g->position + first, n, 1);
        reference_backward(g->r);
        for (int i = 0; i < g->r->n_params; i++)
            for (int64_t e = 0; e < g->r->param_elems[i]; e++)
                g->want[i][e] += g->r->grad[i][e] * n / BATCH;
    }
}

static struct backend_plan_config plan_config(struct rig *g, int k)
{
    return (struct backend_plan_config){
        .layers = g->r->layers,
        .n_layers = g->r->n_layers,
        .batch = g->layout->samples[k],
        .device = g->layout->device[k],
        .n_threads = 1,
        .n_params = g->r->n_params,
        .params = (const float *const *)g->params,
        .grads = g->grads,
        .seed = SEED,
        .deterministic = test_deterministic(),
        .tuning = test_tuning(),
        .group = g->group,
        .rank = k,
    };
}

static struct rig *rig_create(const struct layout *layout, int net)
{
    struct rig *g = calloc(1, sizeof *g);
    float weight[MAX_RANKS];
    assert_non_null(g);
    g->layout = layout;
    g->absent = -1;
    g->r = reference_create(1, ROWS, ROWS, BATCH, SEED);
    nets[net](g->r);
    while (g->r->layers[g->lowest].n_params == 0)
        g->lowest++;
    inputs_fill(g);
    for (int k = 0; k < layout->n; k++)
        weight[k] = (float)layout->samples[k] / BATCH;
    struct backend_group_config cfg = {layout->n, layout->device, weight};
    assert_int_equal(backend->group_create(&cfg, &g->group), ST_OK);
    for (int k = 0, first = 0; k < layout->n; first += layout->samples[k++]) {
        struct backend_plan_config pc = plan_config(g, k);
        g->rank[k] = (struct rank){.rig = g, .index = k, .first = first};
        assert_int_equal(backend->plan_create(&pc, &g->rank[k].plan), ST_OK);
    }
    pthread_barrier_init(&g->step, NULL, (unsigned)layout->n + 1);
    return g;
}

static void rig_destroy(struct rig *g)
{
    for (int k = 0; k < g->layout->n; k++) /* the order differs from that of arrival */
        backend->plan_destroy(g->rank[k].plan);
    backend->group_destroy(g->group);
    for (int i = 0; i < g->r->n_params; i++) {
        free(g->params[i]);
        free(g->grads[i]);
        free(g->want[i]);
    }
    pthread_barrier_destroy(&g->step);
    reference_destroy(g->r);
    free(g);
}

/* ---- a rank's thread ---- */

static void delay(struct rank *k)
{
    static _Atomic uint64_t turn;
    if (!k->rig->delays)
        return;
    uint64_t us = rng_below(rng_key(SEED, RNG_TEST, 3), atomic_fetch_add(&turn, 1), 1500);
    struct timespec ts = {0, (long)us * 1000};
    nanosleep(&ts, NULL);
}

/* Runs a step like the trainer: waits for gradients when all backwards are queued. */
static enum status rank_step(struct rank *k)
{
    enum status st = ST_OK;
    const struct rig *g = k->rig;
    int n_layers = g->r->n_layers, first = k->first;
    TRY(backend->set_input(k->plan, g->image + first, g->labels + first, g->position + first,
                           g->layout->samples[k->index]));
    for (int i = 0; i < n_layers; i++)
        TRY(backend->forward(k->plan, i, 1));
    for (int i = n_layers - 1; i >= 0; i--) {
        delay(k);
        if (i == g->lowest && g->absent == k->index)
            return ST_OK;
        TRY(backend->backward(k->plan, i));
    }
    atomic_fetch_add(&k->rig->n_waiting, 1);
    for (int i = n_layers - 1; i >= 0; i--) {
        delay(k);
        TRY(backend->wait_grads(k->plan, i));
    }
done:
    return st;
}

static void *rank_main(void *arg)
{
    struct rank *k = arg;
    for (int step = 0; step < k->rig->n_steps; step++) {
        pthread_barrier_wait(&k->rig->step);
        if (k->st == ST_OK)
            k->st = rank_step(k);
        pthread_barrier_wait(&k->rig->step);
    }
    return NULL;
}

static void grads_check(struct rig *g)
{
    for (int i = 0; i < g->r->n_params; i++) {
        double largest = 0, worst = 0;
        for (int64_t e = 0; e < g->r->param_elems[i]; e++) {
            double error = fabs((double)g->grads[i][e] - g->want[i][e]);
            largest = fmax(largest, fabs(g->want[i][e]));
            worst = error <= worst ? worst : error; /* keeps a NaN */
            g->grads[i][e] = NAN;                   /* all must be written, each time */
        }
        if (!(worst <= reference_tolerance(backend_name) * largest + smallest))
            fail_msg("%s: gradient of parameter %d: off by %g, largest value %g", g->layout->name,
                     i, worst, largest);
    }
}

/* Runs n_steps steps of all ranks; calls `during` while the last one runs. */
static void rig_run(struct rig *g, int n_steps, void (*during)(struct rig *g))
{
    pthread_t thread[MAX_RANKS];
    g->n_steps = n_steps;
    for (int k = 0; k < g->layout->n; k++)
        assert_int_equal(pthread_create(&thread[k], NULL, rank_main, &g->rank[k]), 0);
    for (int step = 0; step < n_steps; step++) {
        pthread_barrier_wait(&g->step);
        if (during != NULL && step == n_steps - 1)
            during(g);
        pthread_barrier_wait(&g->step);
        if (g->check)
            grads_check(g);
    }
    for (int k = 0; k < g->layout->n; k++)
        pthread_join(thread[k], NULL);
}

static void all_are(struct rig *g, enum status want)
{
    for (int k = 0; k < g->layout->n; k++)
        assert_int_equal(g->rank[k].st, want);
}

/* ---- tests ---- */

static int possible(const struct layout *l)
{
    if (l->n_devices <= backend->n_devices())
        return 1;
    print_message("  left out, there are not %d devices: %s\n", l->n_devices, l->name);
    return 0;
}

/* Returns true if the layout is tested. Under ThreadSanitizer, which is slow, three layouts are
 * enough: they include each way in which ranks meet. */
static int is_chosen(int layout)
{
#ifdef __SANITIZE_THREAD__
    if (layout != TWO_ON_ONE && layout != TWO_ON_TWO && layout != SIX)
        return 0;
#endif
    return possible(&layouts[layout]);
}

static void check_layouts(int delays)
{
    for (int net = 0; net < N_NETS; net++)
        for (int i = 0; i < N_LAYOUTS; i++) {
            if (!is_chosen(i))
                continue;
            struct rig *g = rig_create(&layouts[i], net);
            reference_sum(g);
            g->check = 1;
            g->delays = delays;
            rig_run(g, 3, NULL);
            all_are(g, ST_OK);
            rig_destroy(g);
        }
}

static void test_sums(void **state)
{
    check_layouts(0);
}

static void test_sums_delayed(void **state)
{
    check_layouts(1);
}

/* Runs one rank's passes over n samples from `first` on, without a wait for gradients. */
static void passes(struct rank *k, int first, int n)
{
    const struct rig *g = k->rig;
    assert_int_equal(
        backend->set_input(k->plan, g->image + first, g->labels + first, g->position + first, n),
        ST_OK);
    for (int i = 0; i < g->r->n_layers; i++)
        assert_int_equal(backend->forward(k->plan, i, 1), ST_OK);
    for (int i = g->r->n_layers - 1; i >= 0; i--)
        assert_int_equal(backend->backward(k->plan, i), ST_OK);
}

static void gradients_wait(struct rank *k)
{
    for (int i = k->rig->r->n_layers - 1; i >= 0; i--)
        assert_int_equal(backend->wait_grads(k->plan, i), ST_OK);
}

/* The second tower of a card ends its next step's backward, on other samples, before the first
 * tower has waited for the sum of the first step. */
static void test_one_is_ahead(void **state)
{
    for (int net = 0; net < N_NETS; net++) {
        struct rig *g = rig_create(&layouts[TWO_ON_ONE], net);
        struct rank *slow = &g->rank[0], *ahead = &g->rank[1];
        int n = g->layout->samples[1];
        reference_sum(g);
        passes(slow, slow->first, n);
        passes(ahead, ahead->first, n);
        gradients_wait(ahead);
        passes(ahead, slow->first, n);
        if (backend->finish != NULL)
            assert_int_equal(backend->finish(ahead->plan), ST_OK);
        gradients_wait(slow);
        grads_check(g);
        passes(slow, ahead->first, n);
        gradients_wait(ahead);
        gradients_wait(slow);
        grads_check(g);
        rig_destroy(g);
    }
}

/* The backend has read the parameters when finish() returns, and when plan_create() returns: later
 * changes by the host have no effect on the step. */
static void parameters_are_read(int by_finish)
{
    struct rig *g = rig_create(&layouts[0], 0);
    struct rank *k = &g->rank[0];
    reference_sum(g);
    for (int i = 0; i < g->r->n_params && by_finish; i++)
        assert_int_equal(backend->load_param(k->plan, i), ST_OK);
    if (by_finish && backend->finish != NULL)
        assert_int_equal(backend->finish(k->plan), ST_OK);
    for (int i = 0; i < g->r->n_params; i++)
        for (int64_t e = 0; e < g->r->param_elems[i]; e++)
            g->params[i][e] = NAN;
    passes(k, 0, BATCH);
    gradients_wait(k);
    grads_check(g);
    rig_destroy(g);
}

static void test_finish(void **state)
{
    parameters_are_read(1);
}

static void test_create_reads_parameters(void **state)
{
    parameters_are_read(0);
}

/* Groups with the same net have the same bits in any order of arrival. Six groups run, three of
 * each net. */
static void check_bits(const struct layout *layout)
{
    float *first[REFERENCE_MAX_PARAMS] = {NULL};
    for (int round = 0; round < 6 && possible(layout); round++) {
        struct rig *g = rig_create(layout, round % N_NETS);
        g->delays = 1;
        rig_run(g, 2, NULL);
        all_are(g, ST_OK);
        for (int i = 0; i < g->r->n_params; i++) {
            size_t bytes = (size_t)g->r->param_elems[i] * sizeof(float);
            float **kept = &first[i * N_NETS + round % N_NETS];
            assert_true(i * N_NETS + 1 < REFERENCE_MAX_PARAMS);
            if (*kept == NULL)
                *kept = memcpy(malloc(bytes), g->grads[i], bytes);
            assert_memory_equal(*kept, g->grads[i], bytes);
        }
        rig_destroy(g);
    }
    for (int i = 0; i < REFERENCE_MAX_PARAMS; i++)
        free(first[i]);
}

static void test_same_bits(void **state)
{
    check_bits(&layouts[SIX]);
    check_bits(&layouts[THREE_ON_TWO]);
}

/* Cancels the group when all ranks, except absent and stuck ones, have called all backwards. */
static void cancel_late(struct rig *g)
{
    struct timespec ts = {0, 2000000};
    int n = g->layout->n * g->n_steps - (g->absent >= 0) - g->stuck;
    while (atomic_load(&g->n_waiting) < n)
        nanosleep(&ts, NULL);
    backend->group_cancel(g->group);
}

static void test_absent_rank(void **state)
{
    for (int i = 1; i < N_LAYOUTS; i++) {
        if (!is_chosen(i))
            continue;
        struct rig *g = rig_create(&layouts[i], i % N_NETS);
        g->absent = i % layouts[i].n;
        rig_run(g, 1, cancel_late);
        for (int k = 0; k < layouts[i].n; k++)
            assert_true(g->rank[k].st == ST_CANCELLED || k == g->absent);
        rig_destroy(g);
    }
}

static void test_cancelled_for_good(void **state)
{
    struct rig *g = rig_create(&layouts[1], 0);
    backend->group_cancel(g->group);
    backend->group_cancel(g->group);
    rig_run(g, 2, NULL);
    all_are(g, ST_CANCELLED);
    rig_destroy(g);
}

/* A group refuses a plan whose rank is in use or too large, and a plan for inference. */
static void test_strangers(void **state)
{
    struct plan *p;
    struct rig *g = rig_create(&layouts[1], 0);
    struct backend_plan_config taken = plan_config(g, 0), beyond = taken, other = taken;
    beyond.rank = 2;
    other.inference_only = 1;
    assert_int_equal(backend->plan_create(&taken, &p), ST_INVALID);
    assert_int_equal(backend->plan_create(&beyond, &p), ST_INVALID);
    assert_int_equal(backend->plan_create(&other, &p), ST_INVALID);
    reference_sum(g);
    g->check = 1;
    rig_run(g, 1, NULL);
    rig_destroy(g);
    float weight = 1;
    int device = backend->n_devices();
    struct backend_group_config cfg = {1, &device, &weight};
    struct backend_group *group;
    assert_int_equal(backend->group_create(&cfg, &group), ST_NOT_FOUND);
}

/* ---- with a faulty NCCL ---- */

static void nccl_is(const char *how)
{
    if (!WEIR_TEST_NCCL)
        skip_because("NCCL's header was not there when this was built");
    if (how != NULL)
        setenv("WEIR_EMULATED_NCCL", how, 1);
    else
        unsetenv("WEIR_EMULATED_NCCL");
}

static void *library_symbol(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libweir_emulated.so", backend_folder);
    void *so = dlopen(path, RTLD_NOW | RTLD_NOLOAD), *at = so != NULL ? dlsym(so, name) : NULL;
    assert_non_null(at);
    return at;
}

static void test_nccl_absent(void **state)
{
    nccl_is("absent");
    check_layouts(1);
    check_bits(&layouts[SIX]);
    nccl_is(NULL);
}

static void test_nccl_fails_at_start(void **state)
{
    nccl_is("fail=0");
    check_layouts(0);
    nccl_is(NULL);
}

/* The first sum of NCCL is wrong: the backend detects this, and the host adds instead. */
static void test_nccl_adds_wrongly(void **state)
{
    nccl_is("wrong");
    check_layouts(0);
    nccl_is(NULL);
}

/* The fifth sum fails in one rank's call; all other ranks must not wait for it. */
static void test_nccl_fails_later(void **state)
{
    nccl_is("fail=4");
    struct rig *g = rig_create(&layouts[SIX], 0);
    g->delays = 1;
    rig_run(g, 4, NULL);
    all_are(g, ST_INTERNAL);
    rig_destroy(g);
    nccl_is(NULL);
}

/* Runs n steps in which the number-th `call` of NCCL fails or, if `call` is "state", reports an
 * error state. If this happens before the first step, the host adds instead; later the rank reports
 * an error, and all ranks end. Returns 0 if there are fewer calls. */
static int nccl_errs(const char *call, int number, int n)
{
    char how[64];
    struct rig *g;
    int at_start, n_failed = 0;
    snprintf(how, sizeof how, "error=%s:%d", call, number);
    nccl_is(how);
    _Atomic int *errors = library_symbol("emulation_nccl_errors");
    int before = *errors;
    CAPTURE((g = rig_create(&layouts[TWO_ON_TWO], 0), 0));
    at_start = *errors > before;
    if (at_start && (strstr(capture_text, ": emulated system error: WEIR_EMULATED_NCCL") == NULL ||
                     strstr(capture_text, "0 adds the gradients of") != NULL))
        fail_msg("%s: %s", how, capture_text);
    if (at_start)
        reference_sum(g);
    g->check = at_start;
    rig_run(g, n, NULL);
    for (int k = 0; k < g->layout->n; k++) {
        n_failed += g->rank[k].st == ST_INTERNAL;
        if (at_start)
            assert_int_equal(g->rank[k].st, ST_OK);
    }
    int is_hit = *errors > before;
    if ((n_failed > 0) != (is_hit && !at_start))
        fail_msg("%s: %d of %d ranks have failed", how, n_failed, g->layout->n);
    rig_destroy(g);
    nccl_is(NULL);
    return is_hit;
}

static void test_nccl_errors(void **state)
{
    static const char *const calls[] = {
        "ncclGetUniqueId",   "ncclCommInitRankConfig", "ncclGroupStart", "ncclGroupEnd",
        "ncclReduceScatter", "ncclCommGetAsyncError",  "state"};
    const char *slowness = getenv("WEIR_TEST_SLOWNESS");
    int is_slow = slowness != NULL && atoi(slowness) > 1, n;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (n = 0; nccl_errs(calls[c], n, 2); n += is_slow ? 1 + n : 1 + n / 4)
            ;
}

/* NCCL cannot end its own work: the communicators are aborted, and not destroyed. */
static void test_nccl_does_not_finalize(void **state)
{
    nccl_is("error=ncclCommFinalize:1");
    struct rig *g = rig_create(&layouts[TWO_ON_TWO], 0);
    rig_run(g, 1, NULL);
    all_are(g, ST_OK);
    CAPTURE((rig_destroy(g), 0));
    if (strstr(capture_text, "ncclCommFinalize: emulated system error") == NULL)
        fail_msg("%s", capture_text);
    nccl_is(NULL);
}

static void test_nccl_hangs(void **state)
{
    nccl_is("hang=3");
    struct rig *g = rig_create(&layouts[TWO_ON_TWO], 0);
    rig_run(g, 1, cancel_late);
    assert_int_equal(g->rank[0].st, ST_CANCELLED); /* first rank of a card: in the hanging call */
    assert_int_equal(g->rank[2].st, ST_CANCELLED); /* first rank of the other card */
    rig_destroy(g);
    nccl_is(NULL);
}

/* The connections of the first sums, or of the communicators themselves, are never established, or
 * the first sum does not end: the host adds instead. */
static void test_nccl_blocks_at_start(void **state)
{
    nccl_is("block=0");
    int *limit_ms = library_symbol("gpu_comm_limit_ms"), kept = *limit_ms;
    *limit_ms = 100;
    check_layouts(0);
    nccl_is("block=init");
    check_layouts(0);
    nccl_is("hang=0");
    check_layouts(0);
    nccl_is(NULL);
    *limit_ms = kept;
}

/* The connections of a later sum are never established; NCCL establishes them in another way than
 * those of the first sums. */
static void test_nccl_blocks_later(void **state)
{
    nccl_is("block=3");
    struct rig *g = rig_create(&layouts[TWO_ON_TWO], 0);
    int *limit_ms = library_symbol("gpu_comm_limit_ms"), kept = *limit_ms;
    *limit_ms = 100;
    rig_run(g, 4, NULL);
    *limit_ms = kept;
    all_are(g, ST_INTERNAL);
    rig_destroy(g);
    nccl_is(NULL);
}

/* A cancel does not wait for the deadline, which is never reached here. */
static void test_nccl_blocks_until_cancelled(void **state)
{
    nccl_is("block=3");
    struct rig *g = rig_create(&layouts[TWO_ON_TWO], 0);
    int *limit_ms = library_symbol("gpu_comm_limit_ms"), kept = *limit_ms;
    *limit_ms = INT_MAX;
    g->stuck = 1;
    rig_run(g, 1, cancel_late);
    *limit_ms = kept;
    all_are(g, ST_CANCELLED);
    rig_destroy(g);
    nccl_is(NULL);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        backend_name = argv[1];
    int emulated = strcmp(backend_name, "emulated") == 0;
    setenv("WEIR_EMULATED_DEVICES", "4", 1);
    if (emulated && access(WEIR_TEST_DIR "/libweir_emulated.so", F_OK) != 0)
        return skip_program("the emulated CUDA backend is not in this build");
    backend_folder = emulated ? WEIR_TEST_DIR : WEIR_TEST_BACKEND_DIR;
    if (argc > 2)
        backend_folder = argv[2];
    if (backend_open(backend_name, backend_folder, &backend) != ST_OK)
        return emulated ? 1 : skip_program("no backend %s in this build", backend_name);
    if (backend->n_devices() < 1)
        return skip_program("backend %s finds no device", backend_name);
    int status = RUN_TESTS(test_sums, test_sums_delayed, test_one_is_ahead, test_finish,
                           test_create_reads_parameters, test_same_bits, test_absent_rank,
                           test_cancelled_for_good, test_strangers);
    if (emulated)
        status = RUN_TESTS(test_nccl_absent, test_nccl_fails_at_start, test_nccl_adds_wrongly,
                           test_nccl_fails_later, test_nccl_errors, test_nccl_does_not_finalize,
                           test_nccl_hangs, test_nccl_blocks_at_start, test_nccl_blocks_later,
                           test_nccl_blocks_until_cancelled);
    return status;
}
