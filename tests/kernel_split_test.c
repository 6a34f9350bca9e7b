/* tests/kernel_split_test.c - a network computed by several plans, each of which owns some of its
 * layers: outputs and gradients are copied from one to the other through the host, and loss and
 * gradients equal those of one plan. The other device may also be that of the CPU backend. On one
 * backend the bits are the same, with two exceptions. The gradient of an output with three or more
 * readers is summed in another order if a cut is between the readers. On the CPU some layers sum in
 * an order that depends on the format of their input, and an input from another plan has the format
 * of rows: norms and, without AVX-512, pools whose windows overlap. The test also checks that no
 * step of the CPU backend creates a oneDNN primitive, with one plan or several. */
#include "base/rng.h"
#include "tests/check.h"
#include "tests/kernel_bench.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 3 };

struct part {
    const struct backend *backend;
    struct plan *plan;
    uint8_t mine[REFERENCE_MAX_LAYERS];
    uint8_t has[REFERENCE_MAX_LAYERS]; /* true: output of another plan that was set in this pass */
};

struct split {
    const struct net *net;
    struct bench *b;
    int n;
    int of[REFERENCE_MAX_LAYERS]; /* part of each layer */
    struct part part[MAX_PARTS];
    uint8_t trained[REFERENCE_MAX_LAYERS];
    int compares; /* compares crossing tensors with the reference */
};

static enum backend_precision precision; /* precision of the plans to be created */

static struct split *split_create(const struct net *net, int n,
                                  const struct backend *const *backends,
                                  int (*place)(int layer, int n_layers, int n))
{
    struct split *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->net = net;
    s->b = bench_create(net);
    s->n = n;
    const struct reference *r = s->b->r;
    for (int i = 0; i < r->n_layers; i++) {
        s->of[i] = place(i, r->n_layers, n);
        s->part[s->of[i]].mine[i] = 1;
        s->trained[i] = r->layers[i].n_params > 0;
        for (int k = 0; k < r->layers[i].n_inputs; k++)
            if (r->layers[i].input[k] >= 0)
                s->trained[i] |= s->trained[r->layers[i].input[k]];
    }
    for (int p = 0; p < n; p++) {
        struct backend_plan_config cfg = bench_config(s->b, 1, 0);
        cfg.mine = s->part[p].mine;
        cfg.precision = precision;
        if (backends[p]->parts == NULL)
            cfg.parts = NULL;
        s->part[p].backend = backends[p];
        assert_int_equal(backends[p]->plan_create(&cfg, &s->part[p].plan), ST_OK);
    }
    return s;
}

static void split_destroy(struct split *s)
{
    for (int p = 0; p < s->n; p++)
        s->part[p].backend->plan_destroy(s->part[p].plan);
    bench_destroy(s->b);
    free(s);
}

static float *crossing(const struct split *s, int layer)
{
    size_t elems = (size_t)shape_elems(&s->b->r->layers[layer].out) * BENCH_BATCH;
    float *f = malloc(elems * sizeof *f);
    assert_non_null(f);
    return f;
}

static void split_forward(struct split *s, int n, int train)
{
    struct bench *b = s->b;
    const struct reference *r = b->r;
    for (int p = 0; p < s->n; p++) {
        memset(s->part[p].has, 0, sizeof s->part[p].has);
        assert_int_equal(
            s->part[p].backend->set_input(s->part[p].plan, b->image, b->labels, b->position, n),
            ST_OK);
    }
    for (int i = 0; i < r->n_layers; i++) {
        struct part *to = &s->part[s->of[i]];
        for (int k = 0; k < r->layers[i].n_inputs; k++) {
            int from = r->layers[i].input[k];
            if (from < 0 || to->mine[from] || to->has[from])
                continue;
            const struct part *giver = &s->part[s->of[from]];
            float *f = crossing(s, from);
            assert_int_equal(giver->backend->read_output(giver->plan, from, f), ST_OK);
            if (s->compares)
                bench_compare(s->net, "output that crosses, of layer", from, f, r->y[from],
                              n * shape_elems(&r->layers[from].out));
            assert_int_equal(to->backend->set_output(to->plan, from, f), ST_OK);
            to->has[from] = 1;
            free(f); /* not needed any more */
        }
        assert_int_equal(to->backend->forward(to->plan, i, train), ST_OK);
    }
}

/* Copies the gradient by the output of `layer` from the part `from`, which had received the output,
 * to the layer's own part. */
static void bring_gradient(const struct split *s, const struct part *from, int layer)
{
    const struct part *to = &s->part[s->of[layer]];
    float *f = crossing(s, layer);
    assert_int_equal(from->backend->read_output_grad(from->plan, layer, f), ST_OK);
    assert_int_equal(to->backend->set_output_grad(to->plan, layer, f), ST_OK);
    free(f);
}

/* Returns true if a layer of the part before `i` reads the output of `layer`. */
static int is_read_before(const struct split *s, const struct part *p, int layer, int i)
{
    const struct reference *r = s->b->r;
    for (int k = layer + 1; k < i; k++)
        for (int j = 0; j < r->layers[k].n_inputs; j++)
            if (p->mine[k] && r->layers[k].input[j] == layer)
                return 1;
    return 0;
}

/* Runs the backward pass; a gradient crosses to another part as soon as it is ready. */
static void split_backward(struct split *s)
{
    const struct reference *r = s->b->r;
    for (int i = r->n_layers - 1; i >= 0; i--) {
        const struct layer *l = &r->layers[i];
        struct part *p = &s->part[s->of[i]];
        assert_int_equal(p->backend->backward(p->plan, i), ST_OK);
        for (int k = 0; k < l->n_inputs; k++) {
            int from = l->input[k];
            if (from < 0 || !p->has[from] || !s->trained[from] || is_read_before(s, p, from, i))
                continue;
            bring_gradient(s, p, from);
            p->has[from] = 0;
        }
    }
    for (int i = r->n_layers - 1; i >= 0; i--) {
        const struct part *p = &s->part[s->of[i]];
        if (p->backend->wait_grads != NULL)
            assert_int_equal(p->backend->wait_grads(p->plan, i), ST_OK);
    }
    for (int p = 0; p < s->n; p++)
        if (s->part[p].backend->finish != NULL)
            assert_int_equal(s->part[p].backend->finish(s->part[p].plan), ST_OK);
}

static float split_loss(const struct split *s)
{
    const struct part *last = &s->part[s->of[s->b->r->n_layers - 1]];
    float loss;
    int n_correct;
    assert_int_equal(last->backend->result(last->plan, &loss, &n_correct), ST_OK);
    assert_int_equal(n_correct, s->b->r->n_correct);
    return loss;
}

/* Compares passes of two sizes, each with new parameters, with the reference. */
static void check_split(struct split *s)
{
    static const int sizes[] = {BENCH_BATCH, 5};
    struct bench *b = s->b;
    for (int round = 0; round < 2; round++) {
        bench_params(b, round);
        for (int k = 0; k < b->r->n_params; k++)
            for (int p = 0; p < s->n; p++)
                assert_int_equal(s->part[p].backend->load_param(s->part[p].plan, k), ST_OK);
        reference_forward(b->r, b->images, b->labels, b->position, sizes[round], 1);
        reference_backward(b->r);
        s->compares = 1;
        split_forward(s, sizes[round], 1);
        split_backward(s);
        float loss = split_loss(s);
        bench_compare(s->net, "loss of a split", round, &loss, &b->r->loss, 1);
        for (int k = 0; k < b->r->n_params; k++)
            bench_compare(s->net, "gradient by a split of parameter", k, b->grads[k], b->r->grad[k],
                          b->r->param_elems[k]);
    }
}

/* Decides the part of each layer: in blocks, in turns, or at random. */
static int in_blocks(int layer, int n_layers, int n)
{
    return layer * n / n_layers;
}

static int in_turns(int layer, int n_layers, int n)
{
    return layer % n;
}

static uint64_t lot;
static int by_lot(int layer, int n_layers, int n)
{
    /* each part has at least one layer */
    return layer < n
               ? layer
               : (int)rng_below(rng_key(BENCH_SEED, RNG_TEST, lot), (uint64_t)layer, (uint64_t)n);
}

static int (*const places[])(int, int, int) = {in_blocks, in_turns, by_lot};
enum { N_PLACES = sizeof places / sizeof places[0] };

/* Under a sanitizer, where the emulation needs minutes for all, one way to cut is enough. */
static int first_place(void)
{
    const char *sanitizer = getenv("WEIR_SANITIZE");
    return sanitizer && *sanitizer ? N_PLACES - 1 : 0;
}

static void check_cuts(const struct net *net, const struct backend *const *backends, int first)
{
    for (int n = 2; n <= MAX_PARTS; n++) {
        for (int k = first; k < N_PLACES; k++) {
            lot = (uint64_t)n;
            struct split *s = split_create(net, n, backends, places[k]);
            check_split(s);
            split_destroy(s);
        }
    }
}

static void test_cuts_of_all_nets(void **state)
{
    const struct backend *const same[MAX_PARTS] = {backend, backend, backend};
    for (int k = 0; k < bench_n_nets; k++)
        check_cuts(&bench_nets[k], same, first_place());
}

static void test_cuts_between_backends(void **state)
{
    const struct backend *cpu;
    if (backend_open("cpu", WEIR_TEST_BACKEND_DIR, &cpu) != ST_OK)
        skip_because("the CPU backend is not in this build");
    const struct backend *const mixed[2][MAX_PARTS] = {{backend, cpu, backend},
                                                       {cpu, backend, cpu}};
    for (int k = 0; k < bench_n_nets; k++)
        for (int m = 0; m < 2; m++)
            check_cuts(&bench_nets[k], mixed[m], N_PLACES - 1);
}

/* Returns true if the CPU backend sums the layer in an order that depends on its input's format. */
static int adds_by_format(const struct layer *l)
{
    const char *isa = backend->description;
    int has_512 = strstr(isa, "AVX-512") || strstr(isa, "AVX512") || strstr(isa, "AMX");
    int pools = l->kind == LAYER_MAX_POOL || l->kind == LAYER_AVG_POOL;
    int overlaps = l->kernel[0] > l->stride[0] || l->kernel[1] > l->stride[1];
    return l->kind == LAYER_BATCH_NORM || (pools && overlaps && !has_512);
}

/* Returns true if the CPU backend sums some layer of the net in such an order. */
static int net_adds_by_format(const struct reference *r)
{
    int some = 0;
    for (int i = 0; i < r->n_layers; i++)
        some |= strcmp(backend->name, "cpu") == 0 && adds_by_format(&r->layers[i]);
    return some;
}

/* Returns true if the bits may differ from those of one plan (see the opening comment). */
static int may_differ(const struct split *s)
{
    const struct reference *r = s->b->r;
    int readers[REFERENCE_MAX_LAYERS] = {0}, crosses[REFERENCE_MAX_LAYERS] = {0};
    int differ = net_adds_by_format(r);
    for (int i = 0; i < r->n_layers; i++)
        for (int k = 0; k < r->layers[i].n_inputs; k++) {
            int from = r->layers[i].input[k];
            if (from < 0)
                continue;
            readers[from]++;
            crosses[from] |= s->of[from] != s->of[i];
        }
    for (int i = 0; i < r->n_layers; i++)
        differ |= crosses[i] && readers[i] > 2;
    return differ;
}

/* Compares loss and gradients of one pass with those of one plan. Counts the cuts of nets whose
 * layers are all summed in one order, and those cuts whose bits must be equal. */
static void check_bits(const struct net *net, int n, int (*place)(int, int, int), int *n_tried,
                       int *n_equal)
{
    const struct backend *const same[MAX_PARTS] = {backend, backend, backend};
    struct bench *one = bench_create(net);
    struct split *s = split_create(net, n, same, place);
    float loss[2];
    int n_correct;
    assert_int_equal(bench_plan(one, 1, 0), ST_OK);
    bench_forward(one, 0, BENCH_BATCH, 1);
    bench_backward(one);
    assert_int_equal(backend->result(one->plan, &loss[0], &n_correct), ST_OK);
    s->b->r->n_correct = n_correct;
    split_forward(s, BENCH_BATCH, 1);
    split_backward(s);
    loss[1] = split_loss(s);
    int must = !may_differ(s), same_all = memcmp(&loss[0], &loss[1], sizeof loss[0]) == 0;
    for (int k = 0; k < one->r->n_params; k++)
        same_all &= memcmp(one->grads[k], s->b->grads[k],
                           (size_t)one->r->param_elems[k] * sizeof(float)) == 0;
    if (must && !same_all)
        fail_msg("net '%s' in %d parts: other bits than in one", net->name, n);
    *n_tried += !net_adds_by_format(one->r);
    *n_equal += must;
    bench_destroy(one);
    split_destroy(s);
}

static void test_cuts_keep_the_bits(void **state)
{
    int checked = 0, tried = 0;
    for (int k = 0; k < bench_n_nets; k++)
        for (int n = 2; n <= MAX_PARTS; n++)
            for (int p = first_place(); p < N_PLACES; p++) {
                lot = (uint64_t)k;
                check_bits(&bench_nets[k], n, places[p], &tried, &checked);
            }
    print_message("%d of %d cuts of nets that are summed in one order\n", checked, tried);
    assert_true(tried > 0 && checked * 2 > tried);
}

/* ---- no oneDNN primitive is created after the plans ---- */

/* The CPU backend is loaded at run time, and finds this program's function before that of oneDNN
 * (ENABLE_EXPORTS). */
static _Atomic long n_primitives;
typedef int primitive_create(void **primitive, const void *desc);
primitive_create dnnl_primitive_create;

int dnnl_primitive_create(void **primitive, const void *desc)
{
    Dl_info caller;
    void *theirs = NULL; /* the function of the caller's library */
    if (dladdr(__builtin_return_address(0), &caller) != 0)
        theirs = dlopen(caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void *real = theirs != NULL ? dlsym(theirs, "dnnl_primitive_create") : NULL;
    if (real == NULL) {
        fprintf(stderr, "no dnnl_primitive_create behind %s\n", caller.dli_fname);
        abort();
    }
    dlclose(theirs);
    atomic_fetch_add(&n_primitives, 1);
    return ((primitive_create *)real)(primitive, desc);
}

/* Runs a step like a worker, and reads the network's output like an evaluation. */
static void whole_step(struct split *s, int n)
{
    const struct bench *b = s->b;
    const struct part *last = &s->part[s->of[b->r->n_layers - 1]];
    float *out = crossing(s, b->r->n_layers - 1), loss;
    int n_correct;
    for (int k = 0; k < b->r->n_params; k++)
        for (int p = 0; p < s->n; p++)
            assert_int_equal(s->part[p].backend->load_param(s->part[p].plan, k), ST_OK);
    split_forward(s, n, 1);
    split_backward(s);
    assert_int_equal(last->backend->result(last->plan, &loss, &n_correct), ST_OK);
    split_forward(s, n, 0);
    assert_int_equal(last->backend->read_output(last->plan, b->r->n_layers - 1, out), ST_OK);
    free(out);
}

/* Only the first step of each size may create primitives: it creates the plan of a short batch. */
static void check_primitives(const struct net *net, int n, int (*place)(int, int, int))
{
    static const int sizes[] = {BENCH_BATCH, 5, BENCH_BATCH, 5, 5, BENCH_BATCH};
    const struct backend *const same[MAX_PARTS] = {backend, backend, backend};
    long before = atomic_load(&n_primitives);
    struct split *s = split_create(net, n, same, place);
    assert_true(atomic_load(&n_primitives) > before); /* the counting works */
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        before = atomic_load(&n_primitives);
        whole_step(s, sizes[k]);
        long made = atomic_load(&n_primitives) - before;
        if (k > 1 && made != 0)
            fail_msg("net '%s' in %d parts: step %zu made %ld primitives", net->name, n, k, made);
    }
    split_destroy(s);
}

static void check_primitives_of_all_nets(void)
{
    for (int k = 0; k < bench_n_nets; k++)
        for (int n = 1; n <= MAX_PARTS; n++)
            for (int p = n == 1 ? N_PLACES - 1 : first_place(); p < N_PLACES; p++) {
                lot = (uint64_t)k;
                check_primitives(&bench_nets[k], n, places[p]);
            }
}

static void test_steps_make_no_primitives(void **state)
{
    check_primitives_of_all_nets();
}

static void test_steps_make_no_primitives_in_bf16(void **state)
{
    if (!backend->has_precision(BACKEND_BF16))
        skip_because("backend 'cpu' (%s) refuses bf16 here", backend->description);
    precision = BACKEND_BF16;
    check_primitives_of_all_nets();
    precision = BACKEND_FP32;
}

/* An output of another part, or a missing one, is an error. */
static void test_wrong_uses_are_refused(void **state)
{
    const struct backend *const same[MAX_PARTS] = {backend, backend, backend};
    struct split *s = split_create(&bench_nets[BENCH_DEEP], 2, same, in_blocks);
    const struct part *first = &s->part[0], *last = &s->part[1];
    int cut = 0, n = s->b->r->n_layers;
    float loss, *f;
    int n_correct;
    while (s->of[cut + 1] == 0)
        cut++;
    split_forward(s, BENCH_BATCH, 1);
    f = crossing(s, cut);
    assert_int_equal(first->backend->result(first->plan, &loss, &n_correct), ST_UNSUPPORTED);
    assert_int_equal(first->backend->read_output(first->plan, n - 1, f), ST_UNSUPPORTED);
    /* the gradient by the crossing output was not set */
    assert_int_equal(first->backend->backward(first->plan, cut), ST_UNSUPPORTED);
    for (int i = n - 1; i > cut; i--)
        assert_int_equal(last->backend->backward(last->plan, i), ST_OK);
    assert_int_equal(last->backend->read_output_grad(last->plan, cut, f), ST_OK);
    assert_int_equal(first->backend->set_output_grad(first->plan, cut, f), ST_OK);
    assert_int_equal(first->backend->backward(first->plan, cut), ST_OK);
    free(f);
    split_destroy(s);
}

int main(int argc, char **argv)
{
    int skip = bench_open(argc, argv);
    if (skip)
        return skip;
    if (backend->set_output == NULL)
        return skip_program("backend '%s' computes whole networks alone", backend->name);
    int status = RUN_TESTS(test_cuts_of_all_nets, test_cuts_between_backends,
                           test_cuts_keep_the_bits, test_wrong_uses_are_refused);
    if (strcmp(backend->name, "cpu") == 0)
        status = RUN_TESTS(test_steps_make_no_primitives, test_steps_make_no_primitives_in_bf16);
    return status;
}
