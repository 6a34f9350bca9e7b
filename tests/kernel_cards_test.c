/* tests/kernel_cards_test.c - compares training without copies to the host on all cards of a group
 * (kernels/resident.h) with the same steps from outside, which the host drives: the group adds the
 * gradients, and the host updates the parameters. On the emulation the bits must be equal; with
 * real cards the largest difference of a tensor is at most 1e-3 of its largest value
 * (kernel_resident_test.c has the reason). All cards must end with the same bits everywhere.
 * Backend: argv[1], or "emulated"; its folder: argv[2], or the build's. */
#include "base/rng.h"
#include "kernels/resident.h"
#include "tests/check.h"
#include "tests/kernel_reference.h"
#include "tests/kernel_tuning.h"
#include "tests/skip.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 10, MAX_CARDS = 3, ITEMS = 40, SIDE = 8, PIXELS = SIDE * SIDE };
enum { SEED = 35, FIRST = 3 };
enum { FROZEN = 1 }; /* parameter that keeps its value: the first bias */
static const int parts_of_two[] = {4, 6}, parts_of_three[] = {3, 3, 4};
static const struct backend *backend;
static int is_emulated;

/* A group with a plan and the data set on each card. */
struct rig {
    struct reference *r;
    int n;
    const int *samples; /* [n] samples of each card */
    struct backend_group *group;
    struct plan *plan[MAX_CARDS];
    struct backend_data *data[MAX_CARDS];
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    float *slots[REFERENCE_MAX_PARAMS], keep[REFERENCE_MAX_PARAMS];
    uint8_t images[ITEMS * PIXELS], labels[ITEMS];
    float loss;
    int n_correct;
};

static uint32_t item_at(uint64_t position)
{
    return (uint32_t)((position % ITEMS * 7 + position / ITEMS * 11) % ITEMS);
}

static void build(struct reference *r)
{
    reference_conv(r, 5, 3, 1, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 70); /* 5600 weights: more than one part on each card */
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.3f);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void values_set(struct rig *g)
{
    reference_values(g->r, SEED, FROZEN, g->params, g->keep);
    for (int k = 0; k < ITEMS * PIXELS; k++)
        g->images[k] = (uint8_t)rng_u64(rng_key(SEED, RNG_TEST, 100), (uint64_t)k);
    for (uint64_t k = 0; k < ITEMS; k++)
        g->labels[k] = (uint8_t)rng_below(rng_key(SEED, RNG_TEST, 101), k, 10);
}

static void plans_create(struct rig *g)
{
    int device[MAX_CARDS];
    float weight[MAX_CARDS];
    for (int c = 0; c < g->n; c++) {
        device[c] = c;
        weight[c] = (float)g->samples[c] / BATCH;
    }
    struct backend_group_config gc = {.n = g->n, .device = device, .weight = weight};
    assert_int_equal(backend->group_create(&gc, &g->group), ST_OK);
    for (int c = 0; c < g->n; c++) {
        struct backend_plan_config cfg = {.layers = g->r->layers,
                                          .n_layers = g->r->n_layers,
                                          .batch = g->samples[c],
                                          .device = c,
                                          .n_threads = 1,
                                          .n_params = g->r->n_params,
                                          .params = (const float *const *)g->params,
                                          .grads = g->grads,
                                          .seed = SEED,
                                          .deterministic = test_deterministic(),
                                          .tuning = test_tuning(),
                                          .group = g->group,
                                          .rank = c};
        assert_int_equal(backend->plan_create(&cfg, &g->plan[c]), ST_OK);
        assert_int_equal(backend->data_create(c, g->images, g->labels, ITEMS, PIXELS, &g->data[c]),
                         ST_OK);
    }
}

static struct rig *rig_create(int n)
{
    struct rig *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->n = n;
    g->samples = n == 2 ? parts_of_two : parts_of_three;
    g->r = reference_create(1, SIDE, SIDE, BATCH, SEED);
    build(g->r);
    for (int k = 0; k < g->r->n_params; k++) {
        size_t elems = (size_t)g->r->param_elems[k];
        g->params[k] = calloc(elems, sizeof(float));
        g->grads[k] = calloc(elems, sizeof(float));
        g->slots[k] = calloc(2 * elems, sizeof(float));
        assert_true(g->params[k] != NULL && g->grads[k] != NULL && g->slots[k] != NULL);
    }
    values_set(g);
    plans_create(g);
    return g;
}

static void rig_destroy(struct rig *g)
{
    for (int c = g->n - 1; c >= 0; c--)
        backend->plan_destroy(g->plan[c]);
    backend->group_destroy(g->group);
    for (int c = 0; c < g->n; c++)
        backend->data_destroy(g->data[c]);
    for (int k = 0; k < g->r->n_params; k++) {
        free(g->params[k]);
        free(g->grads[k]);
        free(g->slots[k]);
    }
    reference_destroy(g->r);
    free(g);
}

/* ---- steps from outside ---- */

static void passes(struct rig *g, int card, int before, uint64_t step)
{
    uint64_t position[BATCH];
    uint32_t item[BATCH];
    for (int i = 0; i < g->samples[card]; i++) {
        position[i] = FIRST + step * BATCH + (uint64_t)(before + i);
        item[i] = item_at(position[i]);
    }
    assert_int_equal(
        backend->set_items(g->plan[card], g->data[card], item, position, g->samples[card]), ST_OK);
    for (int i = 0; i < g->r->n_layers; i++)
        assert_int_equal(backend->forward(g->plan[card], i, 1), ST_OK);
    for (int i = g->r->n_layers - 1; i >= 0; i--)
        assert_int_equal(backend->backward(g->plan[card], i), ST_OK);
}

static void update(struct rig *g, const struct optim_config *optim, uint64_t step, int k)
{
    size_t n = (size_t)g->r->param_elems[k];
    float scale = (float)(1.0 / (double)BATCH), *p = g->params[k], *grad = g->grads[k];
    for (size_t j = 0; j < n; j++)
        grad[j] *= (float)BATCH;
    if (g->keep[k] >= 0)
        optim_average(g->keep[k], n, grad, scale, p, p);
    else
        optim_apply(optim, step + 1, n, grad, scale, p, g->slots[k], p);
    for (int c = 0; c < g->n; c++)
        assert_int_equal(backend->load_param(g->plan[c], k), ST_OK);
}

static void step_outside(struct rig *g, const struct optim_config *optim, uint64_t step)
{
    double loss = 0;
    g->n_correct = 0;
    for (int c = 0, before = 0; c < g->n; before += g->samples[c++])
        passes(g, c, before, step);
    for (int c = 0; c < g->n; c++) {
        float part;
        int hits;
        assert_int_equal(backend->result(g->plan[c], &part, &hits), ST_OK);
        loss += (double)part * g->samples[c] / BATCH;
        g->n_correct += hits;
        for (int i = g->r->n_layers - 1; i >= 0; i--)
            assert_int_equal(backend->wait_grads(g->plan[c], i), ST_OK);
    }
    g->loss = (float)loss;
    for (int k = 0; k < g->r->n_params; k++)
        update(g, optim, step, k);
}

/* ---- steps inside ---- */

static enum status begin(struct rig *g, const struct optim_config *optim, int graphs)
{
    struct resident_peer peer[MAX_CARDS];
    struct resident_config cfg = {.data = g->data[0],
                                  .optim = *optim,
                                  .keep = g->keep,
                                  .first = FIRST,
                                  .stride = BATCH,
                                  .graphs = graphs,
                                  .peers = peer,
                                  .n_peers = g->n - 1};
    for (int c = 1, before = g->samples[0]; c < g->n; before += g->samples[c++])
        peer[c - 1] = (struct resident_peer){g->plan[c], g->data[c], FIRST + (uint64_t)before};
    return backend->resident->begin(g->plan[0], &cfg);
}

static void orders_give(struct rig *g)
{
    uint32_t item[ITEMS];
    for (uint64_t pass = 0; pass < 2; pass++) {
        for (uint64_t k = 0; k < ITEMS; k++)
            item[k] = item_at(pass * ITEMS + k);
        assert_int_equal(backend->resident->order(g->plan[0], pass, item), ST_OK);
    }
}

/* Trains in runs of 1, 2, 3 steps, two of which are queued at once, up to the end of the second
 * pass. */
static void train_inside(struct rig *g, const struct optim_config *optim, int graphs, int n_steps)
{
    const struct resident_ops *ops = backend->resident;
    struct resident_result result = {0};
    int n_waiting = 0;
    assert_int_equal(begin(g, optim, graphs), ST_OK);
    orders_give(g);
    for (int queued = 0, run = 0; queued < n_steps; run++) {
        int n = 1 + run % 3;
        n = queued + n > n_steps ? n_steps - queued : n;
        if (n_waiting == 2) {
            assert_int_equal(ops->wait(g->plan[0], &result), ST_OK);
            n_waiting--;
        }
        assert_int_equal(ops->run(g->plan[0], n), ST_OK);
        queued += n;
        n_waiting++;
    }
    for (; n_waiting > 0; n_waiting--)
        assert_int_equal(ops->wait(g->plan[0], &result), ST_OK);
    assert_int_equal(result.step, n_steps);
    g->loss = result.loss;
    g->n_correct = result.n_correct;
    for (int k = 0; k < g->r->n_params; k++)
        assert_int_equal(ops->read_param(g->plan[0], k, g->params[k]), ST_OK);
}

/* All cards have the parameters of the first. */
static void cards_compare(struct rig *g)
{
    for (int k = 0; k < g->r->n_params; k++) {
        size_t bytes = (size_t)g->r->param_elems[k] * sizeof(float);
        float *other = malloc(bytes);
        assert_non_null(other);
        for (int c = 1; c < g->n; c++) {
            assert_int_equal(backend->resident->read_param(g->plan[c], k, other), ST_OK);
            assert_memory_equal(other, g->params[k], bytes);
        }
        free(other);
    }
}

/* ---- tests ---- */

static void compare(const char *what, const struct rig *a, const struct rig *b)
{
    for (int k = 0; k < a->r->n_params; k++) {
        double largest = 0, worst = 0;
        for (int64_t j = 0; j < a->r->param_elems[k]; j++) {
            double error = fabs((double)a->params[k][j] - (double)b->params[k][j]);
            largest = fmax(largest, fabs((double)a->params[k][j]));
            worst = error <= worst ? worst : error; /* keeps a NaN */
        }
        if (!(worst <= (is_emulated ? 0 : 1e-3 * largest)))
            fail_msg("%s: parameter %d off by %g, largest value %g", what, k, worst, largest);
    }
    if (!(fabsf(a->loss - b->loss) <= (is_emulated ? 1e-6f : 1e-3f) * (1 + fabsf(a->loss))))
        fail_msg("%s: loss %g, not %g", what, (double)b->loss, (double)a->loss);
    if (is_emulated)
        assert_int_equal(a->n_correct, b->n_correct);
}

static void check_steps(int n_cards, enum optim_kind kind, int n_steps)
{
    struct optim_config optim;
    optim_defaults(kind, &optim);
    optim.learning_rate = 0.01f;
    optim.weight_decay = 0.05f;
    struct rig *outside = rig_create(n_cards);
    for (int step = 0; step < n_steps; step++)
        step_outside(outside, &optim, (uint64_t)step);
    for (int graphs = 0; graphs < 2; graphs++) {
        struct rig *inside = rig_create(n_cards);
        train_inside(inside, &optim, graphs, n_steps);
        compare(optim_name(kind), outside, inside);
        cards_compare(inside);
        assert_int_equal(backend->resident->is_graph(inside->plan[0]), graphs);
        rig_destroy(inside);
    }
    rig_destroy(outside);
}

/* Two passes have 80 samples: 7 steps of 10 end before the last one. */
static void test_steps_are_those_from_outside(void **state)
{
    for (int n_cards = 2; n_cards <= MAX_CARDS && n_cards <= backend->n_devices(); n_cards++)
        for (int kind = 0; kind < OPTIM_N_KINDS; kind++)
            check_steps(n_cards, (enum optim_kind)kind, 7);
}

static void test_without_capture(void **state)
{
    struct optim_config optim;
    optim_defaults(OPTIM_MOMENTUM, &optim);
    struct rig *g[2];
    for (int k = 0; k < 2; k++) {
        g[k] = rig_create(2);
        if (k == 1)
            setenv("WEIR_EMULATION_NO_GRAPHS", "1", 1);
        train_inside(g[k], &optim, 1, 6);
        unsetenv("WEIR_EMULATION_NO_GRAPHS");
        assert_int_equal(backend->resident->is_graph(g[k]->plan[0]), 1 - k);
        cards_compare(g[k]);
    }
    compare("kernel by kernel", g[0], g[1]);
    rig_destroy(g[0]);
    rig_destroy(g[1]);
}

/* After a cancel, and after a failure of NCCL, runs end, and later calls do not hang. */
static void check_end(const char *nccl, int cancels, enum status want)
{
    struct optim_config optim;
    struct resident_result result;
    optim_defaults(OPTIM_SGD, &optim);
    if (nccl != NULL)
        setenv("WEIR_EMULATED_NCCL", nccl, 1);
    struct rig *g = rig_create(2);
    assert_int_equal(begin(g, &optim, 1), ST_OK);
    orders_give(g);
    enum status st = ST_OK;
    for (int run = 0; run < 3 && st == ST_OK; run++) {
        st = backend->resident->run(g->plan[0], 2);
        if (cancels && run == 1)
            backend->group_cancel(g->group);
        if (st == ST_OK)
            st = backend->resident->wait(g->plan[0], &result);
    }
    unsetenv("WEIR_EMULATED_NCCL");
    assert_int_equal(st, want);
    assert_int_equal(backend->resident->run(g->plan[0], 1), want);
    rig_destroy(g);
}

static void test_ends(void **state)
{
    check_end(NULL, 1, ST_CANCELLED);
    check_end("fail=4", 0, ST_INTERNAL); /* it fails in the first step */
    check_end("error=ncclAllGather:3", 0, ST_INTERNAL);
    check_end("error=ncclAllGather:9", 0, ST_INTERNAL); /* it fails while a graph is captured */
}

/* Without NCCL, or with two towers on a card, the cards cannot exchange parameters, and a plan of a
 * group does not train alone. */
static void test_what_is_refused(void **state)
{
    struct optim_config optim;
    optim_defaults(OPTIM_SGD, &optim);
    setenv("WEIR_EMULATED_NCCL", "absent", 1);
    struct rig *g = rig_create(2);
    unsetenv("WEIR_EMULATED_NCCL");
    assert_int_equal(begin(g, &optim, 1), ST_UNSUPPORTED);
    step_outside(g, &optim, 0);
    rig_destroy(g);
    g = rig_create(2);
    g->n = 1;
    assert_int_equal(begin(g, &optim, 1), ST_UNSUPPORTED);
    g->n = 2;
    rig_destroy(g);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "emulated";
    is_emulated = strcmp(name, "emulated") == 0;
    const char *dir = argc > 2 ? argv[2] : is_emulated ? WEIR_TEST_DIR : WEIR_TEST_BACKEND_DIR;
    setenv("WEIR_EMULATED_DEVICES", "3", 0);
    if (!WEIR_TEST_NCCL)
        return skip_program("NCCL's header was not there when this was built");
    if (backend_find(name, dir, &backend, (char[BACKEND_WHY_SIZE]){0}) != ST_OK)
        return skip_program("backend '%s' is not in this build", name);
    if (backend->n_devices() < 2 || backend->resident == NULL)
        return skip_program("backend '%s' has %d devices, and this test needs two", name,
                            backend->n_devices());
    int status = RUN_TESTS(test_steps_are_those_from_outside);
    if (is_emulated && status == 0)
        status = RUN_TESTS(test_without_capture, test_ends, test_what_is_refused);
    return status;
}
