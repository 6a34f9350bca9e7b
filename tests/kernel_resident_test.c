/* tests/kernel_resident_test.c - compares training that stays on the device (kernels/resident.h),
 * of any backend that offers it, with the same steps from outside, which the host drives:
 * set_items, forward, backward and kernels/vector/optim. On the emulation the bits must be equal;
 * on a card the largest difference of a tensor is at most 1e-3 of its largest value, because 30
 * updates, each divided by the root of small numbers, amplify a difference in the last bit.
 * Backend: argv[1], or "cpu"; its folder: argv[2], or the build's. */
#include "base/rng.h"
#include "kernels/device_updates.h"
#include "kernels/parts.h"
#include "kernels/resident.h"
#include "kernels/vector/digest.h"
#include "tests/check.h"
#include "tests/kernel_reference.h"
#include "tests/kernel_tuning.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 6, ITEMS = 40, STEPS = 30, SIDE = 8, PIXELS = SIDE * SIDE, SEED = 31 };
enum { PART_ELEMS = 5000 }; /* more than a block */
static const struct parts_config parts = {.elems = PART_ELEMS, .largest_grad = 1e30f};
enum { FROZEN = 1 }; /* parameter that keeps its value: the first bias */
static const uint64_t first = 3;
static const struct backend *backend;
static int is_emulated;
static uint32_t tuning; /* tuning of the plans that are created */

/* Functions of the emulation (tests/emulation/errors.h). */
static void (*fault_set)(long long number), (*fault_only)(const char *name);
static long long (*fault_calls)(void);

/* A net with its plan, values and data set, on one device. */
struct bench {
    struct reference *r;
    struct plan *plan;
    struct backend_data *data;
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    float *slots[REFERENCE_MAX_PARAMS], keep[REFERENCE_MAX_PARAMS];
    uint8_t images[ITEMS * PIXELS], labels[ITEMS];
    uint64_t stride;
    float loss;
    int n_correct;
};

/* Returns the item at a position of training. Each pass has its own order. */
static uint32_t item_at(uint64_t position)
{
    return (uint32_t)((position % ITEMS * 7 + position / ITEMS * 11) % ITEMS);
}

static void build(struct reference *r)
{
    reference_conv(r, 5, 3, 1, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    int skip = reference_last(r);
    reference_conv(r, 5, 3, 1, -1);
    reference_join(r, LAYER_ADD, 2, (int[]){reference_last(r), skip});
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 70); /* 5600 weights: more than one part */
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.3f);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void values_set(struct bench *b)
{
    reference_values(b->r, SEED, FROZEN, b->params, b->keep);
    for (int k = 0; k < ITEMS * PIXELS; k++)
        b->images[k] = (uint8_t)rng_u64(rng_key(SEED, RNG_TEST, 100), (uint64_t)k);
    for (uint64_t k = 0; k < ITEMS; k++)
        b->labels[k] = (uint8_t)rng_below(rng_key(SEED, RNG_TEST, 101), k, 10);
}

static struct bench *bench_create(int device)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->stride = BATCH + 2; /* the stride of the second of two workers, for example */
    b->r = reference_create(1, SIDE, SIDE, BATCH, SEED);
    build(b->r);
    for (int k = 0; k < b->r->n_params; k++) {
        size_t n = (size_t)b->r->param_elems[k];
        b->params[k] = calloc(n, sizeof(float));
        b->grads[k] = calloc(n, sizeof(float));
        b->slots[k] = calloc(2 * n, sizeof(float));
        assert_true(b->params[k] != NULL && b->grads[k] != NULL && b->slots[k] != NULL);
    }
    values_set(b);
    struct backend_plan_config cfg = {.layers = b->r->layers,
                                      .n_layers = b->r->n_layers,
                                      .batch = BATCH,
                                      .device = device,
                                      .n_threads = 1,
                                      .n_params = b->r->n_params,
                                      .params = (const float *const *)b->params,
                                      .grads = b->grads,
                                      .seed = SEED,
                                      .deterministic = test_deterministic(),
                                      .tuning = tuning,
                                      .parts = &parts};
    assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
    assert_int_equal(backend->data_create(device, b->images, b->labels, ITEMS, PIXELS, &b->data),
                     ST_OK);
    return b;
}

static void bench_destroy(struct bench *b)
{
    backend->plan_destroy(b->plan);
    backend->data_destroy(b->data);
    for (int k = 0; k < b->r->n_params; k++) {
        free(b->params[k]);
        free(b->grads[k]);
        free(b->slots[k]);
    }
    reference_destroy(b->r);
    free(b);
}

/* ---- steps from outside ---- */

static void grad_weigh(struct bench *b, int k)
{
    for (int64_t j = 0; j < b->r->param_elems[k]; j++)
        b->grads[k][j] *= (float)BATCH;
}

/* Updates a parameter with its weighed gradient. */
static void update(struct bench *b, const struct optim_config *optim, uint64_t step, int k)
{
    size_t n = (size_t)b->r->param_elems[k];
    float scale = (float)(1.0 / (double)BATCH), *p = b->params[k], *g = b->grads[k];
    if (b->keep[k] >= 0)
        optim_average(b->keep[k], n, g, scale, p, p);
    else
        optim_apply(optim, step + 1, n, g, scale, p, b->slots[k], p);
}

/* Queues a step up to its last backward. */
static void compute_outside(struct bench *b, uint64_t step)
{
    uint64_t position[BATCH];
    uint32_t item[BATCH];
    int n = b->r->n_layers;
    for (uint64_t i = 0; i < BATCH; i++) {
        position[i] = first + step * b->stride + i;
        item[i] = item_at(position[i]);
    }
    assert_int_equal(backend->set_items(b->plan, b->data, item, position, BATCH), ST_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(backend->forward(b->plan, i, 1), ST_OK);
    for (int i = n - 1; i >= 0; i--)
        assert_int_equal(backend->backward(b->plan, i), ST_OK);
}

/* Waits for the step's result and its gradients. */
static void wait_outside(struct bench *b)
{
    assert_int_equal(backend->result(b->plan, &b->loss, &b->n_correct), ST_OK);
    for (int i = b->r->n_layers - 1; i >= 0 && backend->wait_grads != NULL; i--)
        assert_int_equal(backend->wait_grads(b->plan, i), ST_OK);
    for (int k = 0; k < b->r->n_params; k++)
        grad_weigh(b, k);
}

/* Waits for the step, and updates the parameters on the host. */
static void update_outside(struct bench *b, const struct optim_config *optim, uint64_t step)
{
    wait_outside(b);
    for (int k = 0; k < b->r->n_params; k++)
        update(b, optim, step, k);
}

static void load_all(struct bench *b)
{
    for (int k = 0; k < b->r->n_params; k++)
        assert_int_equal(backend->load_param(b->plan, k), ST_OK);
}

static void step_outside(struct bench *b, const struct optim_config *optim, uint64_t step)
{
    compute_outside(b, step);
    update_outside(b, optim, step);
    load_all(b);
}

/* ---- steps inside ---- */

/* Sets the orders of all passes up to pass `upto`. */
static void orders_give(struct bench *b, uint64_t *n_given, uint64_t upto)
{
    uint32_t item[ITEMS];
    for (; *n_given <= upto; ++*n_given) {
        for (uint64_t k = 0; k < ITEMS; k++)
            item[k] = item_at(*n_given * ITEMS + k);
        assert_int_equal(backend->resident->order(b->plan, *n_given, item), ST_OK);
    }
}

/* Lengths of the runs, in steps. After the last length the first one is used again. */
struct runs {
    const int *steps;
    int n;
    uint64_t all;      /* all steps together; the last run ends there */
    long long *counts; /* calls that the emulation counted after each run; NULL: not needed */
};

/* Trains with up to RESIDENT_RUNS runs queued. */
static void train_in_runs(struct bench *b, const struct optim_config *optim, int graphs,
                          const struct runs *runs)
{
    const struct resident_ops *ops = backend->resident;
    struct resident_config cfg = {.data = b->data,
                                  .optim = *optim,
                                  .keep = b->keep,
                                  .first = first,
                                  .stride = b->stride,
                                  .graphs = graphs};
    struct resident_result result = {0};
    uint64_t queued = 0, n_given = 0;
    int n_waiting = 0;
    assert_int_equal(ops->begin(b->plan, &cfg), ST_OK);
    for (int run = 0; queued < runs->all; run++) {
        int n = runs->steps[run % runs->n];
        n = queued + (uint64_t)n > runs->all ? (int)(runs->all - queued) : n;
        uint64_t last = first + (queued + (uint64_t)n - 1) * b->stride + BATCH - 1;
        orders_give(b, &n_given, last / ITEMS);
        if (n_waiting == RESIDENT_RUNS) {
            assert_int_equal(ops->wait(b->plan, &result), ST_OK);
            n_waiting--;
        }
        assert_int_equal(ops->run(b->plan, n), ST_OK);
        queued += (uint64_t)n;
        n_waiting++;
        if (runs->counts != NULL)
            runs->counts[run] = fault_calls();
    }
    for (; n_waiting > 0; n_waiting--)
        assert_int_equal(ops->wait(b->plan, &result), ST_OK);
    assert_int_equal(result.step, runs->all);
    b->loss = result.loss;
    b->n_correct = result.n_correct;
    for (int k = 0; k < b->r->n_params; k++)
        assert_int_equal(ops->read_param(b->plan, k, b->params[k]), ST_OK);
}

static void train_inside(struct bench *b, const struct optim_config *optim, int graphs)
{
    static const int steps[] = {1, 2, 3, 4};
    train_in_runs(b, optim, graphs, &(struct runs){.steps = steps, .n = 4, .all = STEPS});
}

/* ---- updates on the device between steps from outside ---- */

static int64_t part_elems(const struct bench *b, int k)
{
    int64_t all = b->r->param_elems[k];
    return all < PART_ELEMS ? all : PART_ELEMS;
}

static void grads_fetch(struct bench *b)
{
    for (int k = 0; k < b->r->n_params; k++)
        for (int64_t at = 0; at < b->r->param_elems[k]; at += PART_ELEMS)
            assert_int_equal(backend->updates->fetch(b->plan, k, at / PART_ELEMS), ST_OK);
}

/* Compares the digests of an update with those of values that the host has computed. */
static void digests_compare(struct bench *b, float *const *values, const char *what, uint64_t step)
{
    for (int k = 0; k < b->r->n_params; k++)
        for (int64_t at = 0; at < b->r->param_elems[k]; at += PART_ELEMS) {
            const uint64_t *digest;
            int64_t end = at + part_elems(b, k);
            end = end < b->r->param_elems[k] ? end : b->r->param_elems[k];
            assert_int_equal(backend->updates->digests(b->plan, k, at / PART_ELEMS, step, &digest),
                             ST_OK);
            for (int64_t i = at; i < end; i += DEVICE_UPDATES_BLOCK, digest++) {
                size_t n =
                    (size_t)(end - i < DEVICE_UPDATES_BLOCK ? end - i : DEVICE_UPDATES_BLOCK);
                if (*digest != vector_digest(values[k] + i, n))
                    fail_msg("%s: parameter %d, element %lld differs after update %llu", what, k,
                             (long long)i, (unsigned long long)step);
            }
        }
}

/* The device updates its own copy, the host the other one, with the same gradients. The digests of
 * an update are read after the next one. */
static void train_twice(struct bench *b, const struct optim_config *optim, uint64_t n_steps)
{
    float *before[REFERENCE_MAX_PARAMS] = {NULL};
    struct device_updates_config cfg = {.optim = *optim, .keep = b->keep, .weight = BATCH};
    assert_int_equal(backend->updates->begin(b->plan, &cfg), ST_OK);
    load_all(b);
    for (int k = 0; k < b->r->n_params; k++)
        assert_non_null(before[k] = calloc((size_t)b->r->param_elems[k], sizeof(float)));
    for (uint64_t step = 0; step < n_steps; step++) {
        compute_outside(b, step);
        assert_int_equal(backend->updates->run(b->plan, step + 1), ST_OK);
        if (step > 0)
            digests_compare(b, before, optim_name(optim->kind), step);
        grads_fetch(b);
        update_outside(b, optim, step);
        for (int k = 0; k < b->r->n_params; k++)
            memcpy(before[k], b->params[k], (size_t)b->r->param_elems[k] * sizeof(float));
    }
    digests_compare(b, b->params, optim_name(optim->kind), n_steps);
    backend->updates->end(b->plan);
    for (int k = 0; k < b->r->n_params; k++)
        free(before[k]);
}

/* Queues updates with the gradients of one step, without a wait between them. */
static void updates_in_a_row(struct bench *b, const struct optim_config *optim, uint64_t n)
{
    struct device_updates_config cfg = {.optim = *optim, .keep = b->keep, .weight = BATCH};
    assert_int_equal(backend->updates->begin(b->plan, &cfg), ST_OK);
    load_all(b);
    compute_outside(b, 0);
    for (uint64_t step = 1; step <= n; step++)
        assert_int_equal(backend->updates->run(b->plan, step), ST_OK);
    grads_fetch(b);
    wait_outside(b);
    for (uint64_t step = 0; step < n; step++)
        for (int k = 0; k < b->r->n_params; k++)
            update(b, optim, step, k);
    digests_compare(b, b->params, "in a row", n);
    backend->updates->end(b->plan);
}

/* ---- tests ---- */

static void compare(const char *what, const struct bench *a, const struct bench *b, int exact)
{
    for (int k = 0; k < a->r->n_params; k++) {
        double largest = 0, worst = 0;
        for (int64_t j = 0; j < a->r->param_elems[k]; j++) {
            double error = fabs((double)a->params[k][j] - (double)b->params[k][j]);
            largest = fmax(largest, fabs((double)a->params[k][j]));
            worst = error <= worst ? worst : error; /* keeps a NaN */
        }
        if (!(worst <= (exact ? 0 : 1e-3 * largest)))
            fail_msg("%s: parameter %d off by %g, largest value %g", what, k, worst, largest);
    }
    if (!(fabsf(a->loss - b->loss) <= (exact ? 1e-6f : 1e-3f) * (1 + fabsf(a->loss))))
        fail_msg("%s: loss %g, not %g", what, (double)b->loss, (double)a->loss);
    if (exact)
        assert_int_equal(a->n_correct, b->n_correct);
}

/* Returns the optimizer of case `kind`, with a schedule and weight decay; the last case,
 * OPTIM_N_KINDS, is RMSprop with momentum. */
static struct optim_config optim_case(int kind)
{
    struct optim_config optim;
    optim_defaults((enum optim_kind)(kind < OPTIM_N_KINDS ? kind : OPTIM_RMSPROP), &optim);
    optim.learning_rate = 0.01f;
    optim.momentum = kind == OPTIM_N_KINDS ? 0.9f : optim.momentum;
    optim.weight_decay = 0.05f;
    optim.schedule = (enum optim_schedule)(kind % SCHEDULE_N_KINDS);
    optim.total_steps = STEPS;
    return optim;
}

/* Tests every optimizer, with a schedule and weight decay, with graphs and without. */
static void test_steps_are_those_from_outside(void **state)
{
    for (int kind = 0; kind <= OPTIM_N_KINDS; kind++) {
        struct optim_config optim = optim_case(kind);
        struct bench *outside = bench_create(0);
        for (uint64_t step = 0; step < STEPS; step++)
            step_outside(outside, &optim, step);
        for (int graphs = 0; graphs < 2; graphs++) {
            struct bench *inside = bench_create(0);
            train_inside(inside, &optim, graphs);
            compare(optim_name(optim.kind), outside, inside, is_emulated);
            assert_int_equal(backend->resident->is_graph(inside->plan), graphs);
            bench_destroy(inside);
        }
        bench_destroy(outside);
    }
}

/* Tests every optimizer, with a schedule and weight decay. The bits are equal on a card, too. A
 * second beginning empties the slots. */
static void test_updates_have_the_bits_of_the_host(void **state)
{
    if (backend->updates == NULL)
        skip_because("backend '%s' does not update parameters between steps", backend->name);
    for (int kind = 0; kind <= OPTIM_N_KINDS; kind++) {
        struct optim_config optim = optim_case(kind);
        struct bench *b = bench_create(0);
        train_twice(b, &optim, STEPS);
        for (int k = 0; k < b->r->n_params; k++)
            memset(b->slots[k], 0, 2 * (size_t)b->r->param_elems[k] * sizeof(float));
        train_twice(b, &optim, 3);
        step_outside(b, &optim, 3); /* backward copies gradients again */
        bench_destroy(b);
    }
}

/* Each update has scalars of its own, which no later update overwrites too early. */
static void test_updates_in_a_row(void **state)
{
    struct optim_config optim;
    if (backend->updates == NULL)
        skip_because("backend '%s' does not update parameters between steps", backend->name);
    optim_defaults(OPTIM_ADAM, &optim);
    struct bench *b = bench_create(0);
    updates_in_a_row(b, &optim, 2 * DEVICE_UPDATES_KEPT + 1);
    bench_destroy(b);
}

static void test_runs_are_bit_identical(void **state)
{
    struct optim_config optim;
    struct bench *b[2];
    optim_defaults(OPTIM_ADAM, &optim);
    for (int k = 0; k < 2; k++) {
        b[k] = bench_create(0);
        train_inside(b[k], &optim, 1);
    }
    compare("second run", b[0], b[1], 1);
    bench_destroy(b[0]);
    bench_destroy(b[1]);
}

static void test_without_capture(void **state)
{
    struct optim_config optim;
    struct bench *b[2];
    optim_defaults(OPTIM_MOMENTUM, &optim);
    for (int k = 0; k < 2; k++) {
        b[k] = bench_create(0);
        if (k == 1)
            setenv("WEIR_EMULATION_NO_GRAPHS", "1", 1);
        train_inside(b[k], &optim, 1);
        assert_int_equal(backend->resident->is_graph(b[k]->plan), 1 - k);
    }
    unsetenv("WEIR_EMULATION_NO_GRAPHS");
    compare("kernel by kernel", b[0], b[1], 1);
    bench_destroy(b[0]);
    bench_destroy(b[1]);
}

enum { N_LONG = 6, LONG_STEPS = 32 + 32 + 9 + 1 + 17 + 31 };
static const int long_runs[N_LONG] = {32, 32, 9, 1, 17, 31};

/* Trains in long runs, and sets launches[k] to the number of `call`s in run k. The number-th `call`
 * fails; 0: none fails. */
static struct bench *train_long(int multi_step, const char *call, long long number,
                                long long launches[N_LONG])
{
    struct optim_config optim;
    struct runs runs = {.steps = long_runs, .n = N_LONG, .all = LONG_STEPS, .counts = launches};
    optim_defaults(OPTIM_ADAM, &optim);
    tuning = (test_tuning() & ~(uint32_t)TUNING_MULTI_STEP) |
             (multi_step ? (uint32_t)TUNING_MULTI_STEP : 0);
    struct bench *b = bench_create(0);
    b->stride = 1; /* a run reads two passes at most */
    fault_only(call);
    fault_set(number);
    train_in_runs(b, &optim, 1, &runs);
    fault_only(NULL);
    fault_set(0);
    tuning = test_tuning();
    assert_int_equal(backend->resident->is_graph(b->plan), 1);
    for (int run = N_LONG - 1; run > 0; run--)
        launches[run] -= launches[run - 1];
    return b;
}

/* Graphs of 32, 8 and 1 steps need the fewest launches, and have the same bits as single steps. */
static void test_many_steps_are_one_launch(void **state)
{
    /* the first step launches no graph; the other 31 are three graphs of 8 steps and seven of 1 */
    static const long long single[N_LONG] = {31, 32, 9, 1, 17, 31},
                           many[N_LONG] = {10, 1, 2, 1, 3, 10};
    long long launches[N_LONG];
    struct bench *one = train_long(0, "cudaGraphLaunch", 0, launches);
    assert_memory_equal(launches, single, sizeof single);
    struct bench *more = train_long(1, "cudaGraphLaunch", 0, launches);
    assert_memory_equal(launches, many, sizeof many);
    compare("many steps in one graph", one, more, 1);
    bench_destroy(more);
    /* graphs are made in the order 1, 8, 32 */
    for (long long number = 2; number <= 3; number++) {
        static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                            "cudaGraphInstantiate"};
        for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
            more = train_long(1, calls[k], number, launches);
            compare(calls[k], one, more, 1);
            bench_destroy(more);
        }
    }
    bench_destroy(one);
}

/* A second data set uses the remaining memory: training is refused, and the plan is unchanged. */
static void test_what_does_not_fit(void **state)
{
    enum { LIMIT = 64 << 20 };
    struct optim_config optim;
    int device = backend->n_devices() - 1;
    struct backend_data *other = NULL;
    if (device == 0)
        skip_because("backend '%s' has one device: a second one is needed", backend->name);
    assert_non_null(backend->set_memory);
    assert_int_equal(backend->set_memory(device, LIMIT, 0), ST_OK);
    struct bench *b = bench_create(device);
    int64_t left = LIMIT - (int64_t)backend->plan_memory_bytes(b->plan) - ITEMS * (PIXELS + 1);
    uint8_t *images = calloc(1, LIMIT), label = 0;
    assert_non_null(images);
    assert_int_equal(backend->data_create(device, images, &label, 1, left - 8192, &other), ST_OK);
    optim_defaults(OPTIM_ADAM, &optim);
    struct resident_config cfg = {
        .data = b->data, .optim = optim, .keep = b->keep, .stride = BATCH};
    assert_int_equal(backend->resident->begin(b->plan, &cfg), ST_NOMEM);
    step_outside(b, &optim, 0);
    bench_destroy(b);
    backend->data_destroy(other);
    free(images);
    assert_int_equal(backend->set_memory(device, 0, 0), ST_OK);
}

static void test_what_is_wrong_is_refused(void **state)
{
    struct bench *b = bench_create(0);
    struct resident_config cfg = {.data = b->data, .keep = b->keep, .stride = BATCH};
    uint32_t item[ITEMS] = {ITEMS};
    optim_defaults(OPTIM_SGD, &cfg.optim);
    struct backend_data *other;
    assert_int_equal(backend->data_create(0, b->images, b->labels, ITEMS, PIXELS / 2, &other),
                     ST_OK);
    cfg.data = other;
    assert_int_equal(backend->resident->begin(b->plan, &cfg), ST_MISMATCH);
    cfg.data = b->data;
    assert_int_equal(backend->resident->begin(b->plan, &cfg), ST_OK);
    assert_int_equal(backend->resident->order(b->plan, 0, item), ST_RANGE);
    backend->data_destroy(other);
    bench_destroy(b);
}

static int emulation_open(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libweir_emulated.so", dir);
    void *so = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    void *set = so != NULL ? dlsym(so, "emulation_fault_set") : NULL;
    void *only = so != NULL ? dlsym(so, "emulation_fault_only") : NULL;
    void *calls = so != NULL ? dlsym(so, "emulation_fault_calls") : NULL;
    memcpy(&fault_set, &set, sizeof fault_set);
    memcpy(&fault_only, &only, sizeof fault_only);
    memcpy(&fault_calls, &calls, sizeof fault_calls);
    return set != NULL && only != NULL && calls != NULL;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    const char *dir = argc > 2 ? argv[2] : WEIR_TEST_BACKEND_DIR;
    is_emulated = strcmp(name, "emulated") == 0;
    if (backend_open(name, dir, &backend) != ST_OK) {
        int why = skip_program("backend '%s' is not in this build", name);
        return argc > 1 ? 1 : why;
    }
    if (backend->n_devices() == 0 || backend->resident == NULL)
        return skip_program("backend '%s' (%s) has no device here, or trains from outside alone",
                            name, backend->description);
    if (is_emulated && !emulation_open(dir))
        return 1;
    tuning = test_tuning();
    int status =
        RUN_TESTS(test_steps_are_those_from_outside, test_updates_have_the_bits_of_the_host,
                  test_updates_in_a_row, test_runs_are_bit_identical, test_what_does_not_fit,
                  test_what_is_wrong_is_refused);
    if (is_emulated && status == 0)
        status = RUN_TESTS(test_without_capture, test_many_steps_are_one_launch);
    return status;
}
