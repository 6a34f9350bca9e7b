/* tests/kernel_moves_emulated_test.c - tests host memory whose pages are replaced between two steps
 * (host_moves of kernels/backend.h): it is not pinned at that time, then it is pinned again, and
 * the results do not change. Argument: the folder of the emulation's library. */
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "tests/kernel_bench.h"
#include "tests/skip.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WIDE = 300, BYTES = WIDE * 1024 * 4 };

static size_t (*pinned_bytes)(const void *at, size_t bytes);

static void build_wide(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, WIDE);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}
static const struct net wide = {"wide", 1, 32, 32, build_wide};

static void *new_pages(void *at)
{
    void *map = mmap(at, BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    return map;
}

/* The first parameter, the weights of the wide layer, lies in `pages`. */
static struct bench *open_bench(void *pages)
{
    struct bench *b = bench_create(&wide);
    free(b->params[0]);
    b->params[0] = pages;
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    return b;
}

static void close_bench(struct bench *b)
{
    b->params[0] = NULL;
    bench_destroy(b);
}

static void set_moves(struct bench *const *b, int n, const void *at, int on)
{
    for (int i = 0; i < n; i++)
        backend->host_moves(b[i]->plan, at, BYTES, on);
}

/* Two plans share the memory, as the towers of a worker do. */
static void test_pages_are_replaced(void **state)
{
    void *pages = new_pages(NULL), *others = new_pages(NULL);
    struct bench *b[] = {open_bench(pages), open_bench(pages)}, *still = open_bench(others);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(pinned_bytes(pages, BYTES), BYTES);
        struct bench_outcome want = bench_step_of(still, round, BENCH_BATCH);
        bench_check_same(&wide, still, want, b[0], bench_step_of(b[0], round, BENCH_BATCH));
        bench_check_same(&wide, still, want, b[1], bench_step_of(b[1], round, BENCH_BATCH));
        assert_int_equal(backend->finish(b[0]->plan), ST_OK);
        assert_int_equal(backend->finish(b[1]->plan), ST_OK);
        set_moves(b, 2, (char *)pages + BYTES, 1); /* other memory moves */
        assert_int_equal(pinned_bytes(pages, BYTES), BYTES);
        set_moves(b, 2, pages, 1);
        assert_int_equal(pinned_bytes(pages, BYTES), 0);
        (void)new_pages(pages);
        capture_begin();
        set_moves(b, 2, pages, 0);
        capture_end();
        assert_int_equal(capture_lines(), 0);
    }
    set_moves(b, 2, pages, 1);
    close_bench(b[0]);
    set_moves(b + 1, 1, pages, 0);
    assert_int_equal(pinned_bytes(pages, BYTES), BYTES);
    set_moves(b + 1, 1, pages, 1);
    close_bench(b[1]);
    assert_int_equal(pinned_bytes(pages, BYTES), 0);
    close_bench(still);
    munmap(pages, BYTES);
    munmap(others, BYTES);
}

int main(int argc, char **argv)
{
    int status;
    void *so = emulated_open(argc > 1 ? argv[1] : WEIR_TEST_DIR, &backend, &status);
    if (so == NULL)
        return status;
    bench_tolerance = bench_tolerance_f32 = reference_tolerance("emulated");
    if (!emulated_look_up(so, "emulation_pinned_bytes", &pinned_bytes))
        return 1;
    return RUN_TESTS(test_pages_are_replaced);
}
