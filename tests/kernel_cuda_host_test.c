/* tests/kernel_cuda_host_test.c - decisions of the CUDA backend without a GPU: the account of its
 * memory and the error when it is full, the choice of algorithms, the splitting of copies. */
#include "kernels/cuda/conv/algo.h"
#include "kernels/cuda/memory/arena.h"
#include "kernels/cuda/memory/budget.h"
#include "kernels/cuda/memory/pieces.h"
#include "kernels/cuda/plan/diffs.h"
#include "tests/check.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the log of a failure: stderr is a pipe during the call ---- */

static int log_pipe[2], kept_stderr;

static void log_capture(void)
{
    assert_int_equal(pipe(log_pipe), 0);
    kept_stderr = dup(2);
    assert_true(kept_stderr >= 0 && dup2(log_pipe[1], 2) == 2);
}

static void log_release(char *out, size_t size)
{
    assert_int_equal(dup2(kept_stderr, 2), 2);
    close(kept_stderr);
    close(log_pipe[1]);
    ssize_t n = read(log_pipe[0], out, size - 1);
    assert_true(n >= 0);
    out[n] = '\0';
    close(log_pipe[0]);
}

/* ---- a host without memory ---- */

void *__real_realloc(void *at, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);
static int no_memory;

void *__wrap_realloc(void *at, size_t bytes)
{
    return no_memory ? NULL : __real_realloc(at, bytes);
}

/* ---- arena ---- */

static void test_arena_deals_out_apart(void **state)
{
    enum { N = 100 };
    static char block[N * 512] __attribute__((aligned(256)));
    struct gpu_arena a;
    char *where[N];
    gpu_arena_init(&a, sizeof block, 1);
    for (int i = 0; i < N; i++)
        assert_int_equal(gpu_arena_reserve(&a, "l", "t", (uint64_t)(i * 5 + 1), &where[i]), ST_OK);
    assert_true(a.bytes <= sizeof block);
    assert_int_equal(gpu_arena_left(&a), sizeof block - a.bytes);
    gpu_arena_bind(&a, block);
    for (int i = 0; i < N; i++) {
        assert_int_equal((uintptr_t)where[i] % GPU_ARENA_ALIGN, 0);
        const char *end = i + 1 < N ? where[i + 1] : block + a.bytes;
        assert_true(where[i] >= block && where[i] + i * 5 + 1 <= end);
    }
    gpu_arena_free(&a);
}

static void test_arena_limit_is_hard(void **state)
{
    struct gpu_arena a;
    void *p, *q = NULL;
    char log[1024];
    gpu_arena_init(&a, 10 * GPU_ARENA_ALIGN + 100, 1);
    assert_int_equal(gpu_arena_reserve(&a, "conv1", "weights", 7 * GPU_ARENA_ALIGN, &p), ST_OK);
    log_capture();
    enum status st =
        gpu_arena_reserve(&a, "fc1", "output", 3 * GPU_ARENA_ALIGN + 50, &q); /* unaligned */
    log_release(log, sizeof log);
    assert_int_equal(st, ST_RANGE);
    assert_non_null(strstr(log, "'fc1'"));
    assert_non_null(strstr(log, "output"));
    assert_non_null(strstr(log, "818 bytes"));  /* requested */
    assert_non_null(strstr(log, "2660 bytes")); /* the limit */
    assert_non_null(strstr(log, "868 are left"));
    assert_int_equal(a.bytes, 7 * GPU_ARENA_ALIGN); /* no memory was allocated */
    assert_int_equal(gpu_arena_reserve(&a, "fc1", "output", 3 * GPU_ARENA_ALIGN, &q), ST_OK);
    assert_int_equal(gpu_arena_left(&a), 100);
    assert_int_equal(gpu_arena_reserve(&a, "fc1", "nothing", 0, &q), ST_OK);
    assert_int_equal(gpu_arena_reserve(&a, "fc1", "bias", 1, &q), ST_RANGE);
    gpu_arena_free(&a);
}

static void test_arena_does_not_wrap(void **state)
{
    struct gpu_arena a;
    void *p;
    gpu_arena_init(&a, UINT64_MAX, 0);
    assert_int_equal(gpu_arena_reserve(&a, "l", "t", 300, &p), ST_OK);
    assert_int_equal(gpu_arena_reserve(&a, "l", "t", UINT64_MAX, &p), ST_NOMEM);
    assert_int_equal(gpu_arena_reserve(&a, "l", "t", UINT64_MAX - 300, &p), ST_NOMEM);
    assert_int_equal(a.bytes, 512);
    gpu_arena_free(&a);
}

static void test_arena_without_host_memory(void **state)
{
    struct gpu_arena a;
    float *p = NULL;
    char text[512];
    gpu_arena_init(&a, 4096, 1);
    no_memory = 1;
    log_capture();
    enum status st = gpu_arena_reserve(&a, "fc1", "weights", 4, &p);
    log_release(text, sizeof text);
    no_memory = 0;
    assert_int_equal(st, ST_NOMEM);
    assert_non_null(strstr(text, "out of memory on the host"));
    assert_int_equal(gpu_arena_left(&a), 4096);
    assert_int_equal(gpu_arena_reserve(&a, "fc1", "weights", 4, &p), ST_OK);
    gpu_arena_free(&a);
}

static void test_budget_without_host_memory(void **state)
{
    struct gpu_budget b;
    uint64_t at;
    gpu_budget_init(&b, 4096, 1);
    no_memory = 1;
    assert_int_equal(gpu_budget_reserve(&b, 4, &at), ST_NOMEM);
    no_memory = 0;
    assert_int_equal(b.taken, 0);
    assert_int_equal(gpu_budget_reserve(&b, 4, &at), ST_OK);
    gpu_budget_free(&b);
}

static void test_arena_names_the_largest(void **state)
{
    struct gpu_arena a;
    void *p;
    const char *layer, *what;
    uint64_t bytes;
    gpu_arena_init(&a, UINT64_MAX, 0);
    gpu_arena_largest(&a, &layer, &what, &bytes);
    assert_int_equal(bytes, 0);
    assert_int_equal(gpu_arena_reserve(&a, "conv1", "output", 1000, &p), ST_OK);
    assert_int_equal(gpu_arena_reserve(&a, "fc1", "weights", 4096, &p), ST_OK);
    assert_int_equal(gpu_arena_reserve(&a, "fc2", "bias", 40, &p), ST_OK);
    gpu_arena_largest(&a, &layer, &what, &bytes);
    assert_string_equal(layer, "fc1");
    assert_string_equal(what, "weights");
    assert_int_equal(bytes, 4096);
    gpu_arena_free(&a);
}

/* ---- budget: several plans under one limit ---- */

static void test_budget_counts(void **state)
{
    struct gpu_budget b;
    uint64_t at;
    gpu_budget_init(&b, 1000, 0);
    assert_int_equal(gpu_budget_left(&b), 1000);
    assert_int_equal(gpu_budget_reserve(&b, 600, &at), ST_OK);
    assert_int_equal(gpu_budget_reserve(&b, 401, &at), ST_NOMEM);
    assert_int_equal(gpu_budget_left(&b), 400);
    assert_int_equal(gpu_budget_reserve(&b, 400, &at), ST_OK);
    assert_int_equal(gpu_budget_reserve(&b, 1, &at), ST_NOMEM);
    gpu_budget_release(&b, 0, 600);
    assert_int_equal(gpu_budget_left(&b), 600);
    assert_int_equal(b.taken, 400);
    gpu_budget_free(&b);
    gpu_budget_init(&b, UINT64_MAX, 0);
    assert_int_equal(gpu_budget_reserve(&b, 300, &at), ST_OK);
    assert_int_equal(gpu_budget_reserve(&b, UINT64_MAX - 299, &at), ST_NOMEM);
    gpu_budget_free(&b);
}

/* Allocates and releases at random: no two parts overlap, all are in the block, and
 * gpu_budget_left() is the size of the widest gap. */
static void test_budget_deals_out_a_block(void **state)
{
    enum { N = 200, LIMIT = 100000 };
    struct gpu_budget b;
    uint64_t at[N], bytes[N], taken = 0;
    unsigned seed = 1;
    int n = 0, refused = 0;
    gpu_budget_init(&b, LIMIT, 1);
    for (int round = 0; round < 3000; round++) {
        uint64_t left = gpu_budget_left(&b), wish = (uint64_t)(rand_r(&seed) % 3000);
        if (n < N && rand_r(&seed) % 5 < 3) {
            enum status st = gpu_budget_reserve(&b, wish, &at[n]);
            assert_int_equal(st, wish <= left ? ST_OK : ST_NOMEM);
            refused += st != ST_OK;
            if (st != ST_OK)
                continue;
            bytes[n] = wish < 1 ? 256 : (wish + 255) / 256 * 256;
            assert_true(at[n] % GPU_ARENA_ALIGN == 0 && at[n] + bytes[n] <= LIMIT);
            for (int k = 0; k < n; k++)
                assert_true(at[k] + bytes[k] <= at[n] || at[n] + bytes[n] <= at[k]);
            taken += bytes[n++];
        } else if (n > 0) {
            int k = rand_r(&seed) % n;
            gpu_budget_release(&b, at[k], bytes[k]);
            taken -= bytes[k];
            at[k] = at[--n];
            bytes[k] = bytes[n];
        }
        assert_int_equal(b.taken, taken);
    }
    assert_true(refused > 10);
    while (n-- > 0)
        gpu_budget_release(&b, at[n], bytes[n]);
    assert_int_equal(gpu_budget_left(&b), LIMIT / 256 * 256);
    assert_int_equal(b.taken, 0);
    gpu_budget_free(&b);
}

/* ---- algorithms ---- */

static void test_first_algorithm_that_fits(void **state)
{
    static const struct gpu_algo list[] = {
        {.usable = 0, .deterministic = 1, .workspace_bytes = 0},
        {.usable = 1, .deterministic = 1, .tf32 = 1, .workspace_bytes = 10},
        {.usable = 1, .deterministic = 0, .workspace_bytes = 1000},
        {.usable = 1, .deterministic = 0, .workspace_bytes = 50},
        {.usable = 1, .deterministic = 1, .workspace_bytes = 2000},
        {.usable = 1, .deterministic = 1, .workspace_bytes = 0},
    };
    enum { N = sizeof list / sizeof list[0] };
    const struct {
        struct gpu_algo_wish wish;
        int n, want;
    } cases[] = {
        {{.workspace_limit = 4000, .tf32 = 1}, N, 1},
        {{.workspace_limit = 9, .tf32 = 1}, N, 5},
        {{.workspace_limit = 4000}, N, 2},
        {{.workspace_limit = 1000}, N, 2}, /* the limit itself is allowed */
        {{.workspace_limit = 999}, N, 3},
        {{.workspace_limit = 4000, .deterministic = 1}, N, 4},
        {{.workspace_limit = 1999, .deterministic = 1}, N, 5},
        {{.workspace_limit = 0}, N, 5},
        {{.workspace_limit = 49}, 5, -1},
        {{.workspace_limit = 4000}, 1, -1},
        {{.workspace_limit = 4000}, 0, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(gpu_algo_choose(list, cases[i].n, &cases[i].wish), cases[i].want);
}

/* ---- copies ---- */

static void test_only_whole_pages_are_pinned(void **state)
{
    struct gpu_range r = gpu_pieces_whole_pages((struct gpu_range){4097, 12288}, 4096);
    assert_true(r.first == 8192 && r.end == 12288);
    r = gpu_pieces_whole_pages((struct gpu_range){4096, 12287}, 4096);
    assert_true(r.first == 4096 && r.end == 8192);
    r = gpu_pieces_whole_pages((struct gpu_range){4097, 8191}, 4096);
    assert_true(r.first == r.end);
    r = gpu_pieces_whole_pages((struct gpu_range){4097, 12287}, 4096);
    assert_true(r.first == r.end);
}

static void test_neighbours_are_joined(void **state)
{
    struct gpu_range r[] = {{500, 600}, {100, 200}, {200, 300}, {310, 400}, {120, 130}};
    assert_int_equal(gpu_pieces_join_ranges(r, 5, 10), 2);
    assert_true(r[0].first == 100 && r[0].end == 400);
    assert_true(r[1].first == 500 && r[1].end == 600);
    struct gpu_range apart[] = {{311, 400}, {100, 300}};
    assert_int_equal(gpu_pieces_join_ranges(apart, 2, 10), 2);
    assert_true(apart[0].first == 100 && apart[1].first == 311);
    assert_int_equal(gpu_pieces_join_ranges(apart, 0, 10), 0);
}

static void assert_pieces_of(size_t size, uintptr_t host, int64_t elems, struct gpu_range pinned,
                             struct gpu_pieces want)
{
    struct gpu_pieces got = gpu_pieces_of((const void *)host, elems, size, pinned);
    assert_int_equal(got.head, want.head);
    assert_int_equal(got.middle, want.middle);
    assert_int_equal(got.tail, want.tail);
    assert_int_equal(got.head + got.middle + got.tail, elems);
}

static void assert_pieces(uintptr_t host, int64_t elems, struct gpu_range pinned,
                          struct gpu_pieces want)
{
    assert_pieces_of(sizeof(float), host, elems, pinned, want);
}

static void test_copies_are_cut_at_the_pins(void **state)
{
    struct gpu_range pinned = {8192, 16384};
    assert_pieces(8192, 2048, pinned, (struct gpu_pieces){0, 2048, 0});
    assert_pieces(8000, 2048, pinned, (struct gpu_pieces){48, 2000, 0});
    assert_pieces(9000, 2048, pinned, (struct gpu_pieces){0, 1846, 202});
    assert_pieces(4096, 4096, pinned, (struct gpu_pieces){1024, 2048, 1024});
    assert_pieces(100, 20, pinned, (struct gpu_pieces){20, 0, 0});
    assert_pieces(16384, 20, pinned, (struct gpu_pieces){20, 0, 0});
    assert_pieces(8192, 20, (struct gpu_range){0, 0}, (struct gpu_pieces){20, 0, 0});
    assert_pieces_of(2, 8002, 5000, pinned, (struct gpu_pieces){95, 4096, 809});
}

/* ---- buffers of gradients ---- */

enum { MAX_NET = 8 };

/* Makes a dense layer of `elems` outputs, with one parameter. */
static struct layer layer_of(int64_t elems, int n_inputs, const int *inputs)
{
    struct layer l = {.kind = LAYER_DENSE, .n_params = 1, .n_inputs = n_inputs};
    l.in = l.out = (struct shape){1, {elems}};
    memcpy(l.input, inputs, (size_t)n_inputs * sizeof *inputs);
    return l;
}

static void plan_diffs(const struct layer *layers, int n, const uint8_t *mine, struct gpu_diffs *d)
{
    struct backend_plan_config cfg = {.layers = layers, .n_layers = n, .batch = 2, .mine = mine};
    struct graph_node node[MAX_NET];
    graph_fill(&cfg, node);
    gpu_diffs_plan(&cfg, node, d);
}

/* Two buffers alternate, each as large as its largest gradient. */
static void test_a_chain_has_two_buffers(void **state)
{
    static const int64_t elems[] = {10, 700, 30, 500, 50, 60};
    struct layer layers[6];
    struct gpu_diffs d;
    for (int i = 0; i < 6; i++)
        layers[i] = layer_of(elems[i], 1, (int[]){i - 1});
    assert_int_equal(gpu_diffs_create(6, &d), ST_OK);
    plan_diffs(layers, 6, NULL, &d);
    assert_int_equal(d.n_buffers, 2);
    for (int i = 4; i > 0; i--) {
        assert_int_equal(d.ops[i].dy, i % 2 == 0 ? 0 : 1);
        assert_int_equal(d.ops[i].edge[0].dx, i % 2 == 0 ? 1 : 0);
    }
    assert_int_equal(d.ops[5].dy, -1);
    assert_int_equal(d.ops[0].edge[0].dx, -1);
    assert_int_equal(d.buffers[0].elems, 2 * 50); /* largest of layers 4, 2, 0 */
    assert_int_equal(d.buffers[1].elems, 2 * 700);
    gpu_diffs_destroy(&d);
}

/* The gradient by a sum is also the gradient by both of its inputs, the shortcut and the longer
 * path. Its buffer is not overwritten while a layer of the longer path still reads it. */
static void test_a_shortcut_shares_its_gradient(void **state)
{
    const struct layer layers[] = {
        layer_of(8, 1, (int[]){-1}),   layer_of(8, 1, (int[]){0}), layer_of(8, 1, (int[]){1}),
        layer_of(8, 2, (int[]){2, 0}), layer_of(8, 1, (int[]){3}),
    };
    struct gpu_diffs d;
    assert_int_equal(gpu_diffs_create(5, &d), ST_OK);
    d.ops[3].way = GPU_DIFF_SAME;
    d.ops[2].way = GPU_DIFF_IN_PLACE;
    plan_diffs(layers, 5, NULL, &d);
    int dy = d.ops[3].dy;
    assert_int_equal(d.ops[2].dy, dy);
    assert_int_equal(d.ops[3].edge[1].dx, dy);
    assert_int_not_equal(d.ops[2].edge[0].dx, dy); /* not in place */
    assert_int_equal(d.ops[1].edge[0].other, dy);
    assert_int_equal(d.ops[1].edge[0].sum, dy); /* the last reader may overwrite it */
    assert_int_equal(d.ops[0].dy, dy);
    assert_int_equal(d.n_buffers, 3);
    gpu_diffs_destroy(&d);
}

/* The second part of a gradient arrives while the buffer of the first part also holds the gradient
 * of another layer, so the sum is in another buffer. */
static void test_a_shared_gradient_is_not_added_to(void **state)
{
    const struct layer layers[] = {
        layer_of(8, 1, (int[]){-1}),   layer_of(8, 1, (int[]){0}),    layer_of(8, 1, (int[]){0}),
        layer_of(8, 2, (int[]){1, 0}), layer_of(8, 2, (int[]){2, 3}), layer_of(8, 1, (int[]){4}),
    };
    struct gpu_diffs d;
    assert_int_equal(gpu_diffs_create(6, &d), ST_OK);
    d.ops[3].way = GPU_DIFF_SAME;
    plan_diffs(layers, 6, NULL, &d);
    assert_int_equal(d.ops[2].edge[0].other, d.ops[1].dy);
    assert_int_not_equal(d.ops[2].edge[0].sum, d.ops[1].dy);
    assert_int_equal(d.ops[2].edge[0].sum, d.ops[2].edge[0].dx);
    gpu_diffs_destroy(&d);
}

/* A layer computes the gradients by all its inputs before it adds one of them to another, so each
 * has its own buffer. */
static void test_a_layers_gradients_lie_apart(void **state)
{
    const struct layer layers[] = {
        layer_of(8, 1, (int[]){-1}),
        layer_of(8, 1, (int[]){0}),
        layer_of(8, 4, (int[]){1, 0, 1, 0}),
        layer_of(8, 1, (int[]){2}),
    };
    struct gpu_diffs d;
    assert_int_equal(gpu_diffs_create(4, &d), ST_OK);
    plan_diffs(layers, 4, NULL, &d);
    for (int k = 0; k < 4; k++) {
        assert_int_not_equal(d.ops[2].edge[k].dx, d.ops[2].dy);
        for (int j = 0; j < k; j++)
            assert_int_not_equal(d.ops[2].edge[k].dx, d.ops[2].edge[j].dx);
    }
    assert_int_equal(d.ops[2].edge[2].sum, d.ops[2].edge[0].dx);
    assert_int_equal(d.ops[2].edge[3].sum, d.ops[2].edge[1].dx);
    gpu_diffs_destroy(&d);
}

/* A gradient from another plan may arrive before this plan has computed the gradients of its higher
 * layers, so it has its own buffer. The buffer of an exported gradient is not reused. */
static void test_crossing_gradients_are_kept(void **state)
{
    static const uint8_t low[] = {1, 1, 0, 1, 1}, high[] = {0, 0, 1, 1, 1};
    struct layer layers[5];
    struct gpu_diffs d;
    for (int i = 0; i < 5; i++)
        layers[i] = layer_of(8, 1, (int[]){i - 1});
    assert_int_equal(gpu_diffs_create(5, &d), ST_OK);
    plan_diffs(layers, 5, low, &d);
    assert_true(d.ops[1].given >= 0 && d.ops[1].dy == d.ops[1].given && d.ops[1].own == -1);
    assert_int_not_equal(d.ops[1].given, d.ops[3].dy);
    assert_int_not_equal(d.ops[1].given, d.ops[3].edge[0].dx);
    assert_int_not_equal(d.ops[1].edge[0].dx, d.ops[1].given);
    assert_int_equal(d.value[2], d.ops[3].edge[0].dx);
    assert_int_equal(d.buffers[d.value[2]].users, 1);
    gpu_diffs_destroy(&d);
    assert_int_equal(gpu_diffs_create(5, &d), ST_OK);
    plan_diffs(layers, 5, high, &d);
    assert_int_equal(d.value[1], d.ops[2].edge[0].dx);
    assert_int_equal(d.buffers[d.value[1]].users, 1);
    gpu_diffs_destroy(&d);
}

int main(void)
{
    return RUN_TESTS(test_arena_deals_out_apart, test_arena_limit_is_hard, test_arena_does_not_wrap,
                     test_arena_names_the_largest, test_arena_without_host_memory,
                     test_budget_without_host_memory, test_budget_counts,
                     test_budget_deals_out_a_block, test_first_algorithm_that_fits,
                     test_only_whole_pages_are_pinned, test_neighbours_are_joined,
                     test_copies_are_cut_at_the_pins, test_a_chain_has_two_buffers,
                     test_a_shortcut_shares_its_gradient, test_a_shared_gradient_is_not_added_to,
                     test_a_layers_gradients_lie_apart, test_crossing_gradients_are_kept);
}
