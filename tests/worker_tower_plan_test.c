/* tests/worker_tower_plan_test.c - the towers of a worker, their parts of the batch, the check that
 * driver and backend number the GPUs in the same way, and TensorFlow's rule for growth. */
#include "kernels/device_report.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/device/gpus.h"
#include "worker/place/tower_plan.h"
#include <stdlib.h>
#include <string.h>

static const struct backend cpu = {.name = "cpu"};
static struct backend_device cards[3];

static enum status card_info(int device, struct backend_device *out)
{
    if (device >= 3)
        return ST_NOT_FOUND;
    *out = cards[device];
    return ST_OK;
}

static const struct backend cuda = {.name = "cuda", .device_info = card_info};

static struct tower_plan towers;

/* Makes n GPUs; the first has number 0 in the driver's list. */
static void gpus_make(struct gpus *g, int n)
{
    memset(g, 0, sizeof *g);
    memset(cards, 0, sizeof cards);
    g->backend = &cuda;
    g->chosen.n = n;
    for (int i = 0; i < n; i++) {
        struct device_info *d = &g->chosen.gpu[i];
        d->ordinal = i;
        snprintf(d->uuid, sizeof d->uuid, "GPU-%02x000000-0000-0000-0000-000000000000",
                 0xa0u + (unsigned)i);
        snprintf(d->pci, sizeof d->pci, "0000:3%d:00.0", i);
        g->chosen.claim[i] = (struct device_claim){.lock = -1, .mark = -1};
        cards[i].uuid[0] = (uint8_t)(0xa0 + i);
        cards[i].pci[1] = 0x30 + i;
    }
}

/* Checks the parts of all towers, in order and without a gap. */
static void check_parts(int n, const int *parts)
{
    int at = 0;
    assert_int_equal(towers.n, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(towers.tower[i].first, at);
        assert_int_equal(towers.tower[i].n, parts[i]);
        at += parts[i];
    }
}

static void test_towers_without_gpus(void **state)
{
    struct gpus g;
    gpus_make(&g, 0);
    struct tower_plan_request r = {
        .gpus = &g, .cpu = &cpu, .towers_per_gpu = 1, .batch = 10, .cpu_batch = 3, .n_cores = 8};
    assert_int_equal(tower_plan_make(&r, &towers), ST_OK);
    check_parts(1, (int[]){10}); /* cpu_batch applies only beside GPUs */
    assert_ptr_equal(towers.tower[0].own.backend, &cpu);
    assert_null(towers.tower[0].own.gpu);
    assert_int_equal(towers.tower[0].own.n_threads, 8);
    r.cpu_towers = 4;
    assert_int_equal(tower_plan_make(&r, &towers), ST_OK);
    check_parts(4, (int[]){2, 3, 2, 3});
    assert_int_equal(towers.tower[3].own.n_threads, 2);
    assert_int_equal(towers.n_gpu, 0);
}

static void test_towers_of_both_kinds(void **state)
{
    struct gpus g;
    gpus_make(&g, 2);
    g.chosen.gpu[1].ordinal = 5;
    struct tower_plan_request r = {.gpus = &g,
                                   .cpu = &cpu,
                                   .towers_per_gpu = 1,
                                   .batch = 100,
                                   .n_cores = 8,
                                   .precision = BACKEND_TF32,
                                   .deterministic = 1};
    assert_int_equal(tower_plan_make(&r, &towers), ST_OK);
    check_parts(2, (int[]){50, 50}); /* no CPU tower without a request */
    r.cpu_towers = 2;
    assert_int_equal(tower_plan_make(&r, &towers), ST_OK);
    check_parts(4, (int[]){25, 25, 25, 25});
    assert_int_equal(towers.tower[3].own.n_threads, 3); /* each GPU's thread has a core */
    r.cpu_batch = 5;
    r.towers_per_gpu = 2;
    r.n_threads = 7;
    assert_int_equal(tower_plan_make(&r, &towers), ST_OK);
    check_parts(6, (int[]){23, 24, 24, 24, 2, 3});
    assert_int_equal(towers.n_gpu, 4);
    for (int i = 0; i < 6; i++) {
        const struct tower_device *d = &towers.tower[i].own;
        assert_ptr_equal(d->backend, i < 4 ? &cuda : &cpu);
        assert_int_equal(d->device, i < 2 ? 0 : i < 4 ? 5 : 0);
        assert_int_equal(d->gpu_index, i < 4 ? i / 2 : -1);
        assert_int_equal(d->precision, i < 4 ? BACKEND_TF32 : BACKEND_FP32);
        assert_int_equal(d->deterministic, i < 4);
        assert_int_equal(d->n_threads, i < 4 ? 1 : 7);
    }
}

static int fp32_alone(enum backend_precision precision)
{
    return precision == BACKEND_FP32;
}

/* A CPU without bf16 refuses this precision, in its backend, if there are no GPUs. Beside GPUs it
 * computes in fp32. */
static void test_bf16_on_the_cpu(void **state)
{
    static const struct backend old = {.name = "cpu", .has_precision = fp32_alone};
    struct gpus g;
    for (int n_gpus = 0; n_gpus < 2; n_gpus++)
        for (int is_old = 0; is_old < 2; is_old++) {
            gpus_make(&g, n_gpus);
            struct tower_plan_request r = {.gpus = &g,
                                           .cpu = is_old ? &old : &cpu,
                                           .cpu_towers = 1,
                                           .towers_per_gpu = 1,
                                           .batch = 100,
                                           .n_cores = 2,
                                           .precision = BACKEND_BF16};
            assert_int_equal(tower_plan_make(&r, &towers), ST_OK);
            assert_int_equal(towers.tower[n_gpus].own.precision,
                             is_old && n_gpus > 0 ? BACKEND_FP32 : BACKEND_BF16);
        }
}

static void test_parts_that_do_not_work_out(void **state)
{
    struct gpus g;
    gpus_make(&g, 3);
    const struct {
        int per_gpu, cpu_towers, batch, cpu_batch;
        const char *word;
    } wrong[] = {
        {1, 0, 2, 0, "3 towers (3 on GPUs, 0 on the CPU) cannot share a --batch_size of 2"},
        {2, 3, 20, 2, "leaves 18 samples for 6 GPU towers and 2 for 3 CPU towers"},
        {2, 3, 20, 15, "leaves 5 samples for 6 GPU towers and 15 for 3 CPU towers"},
        {2, 3, 20, 1000, "for 6 GPU towers and 1000 for 3"},
        {16, 250, 1000, 0, "at most 256 are supported"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct tower_plan_request r = {.gpus = &g,
                                       .cpu = &cpu,
                                       .towers_per_gpu = wrong[i].per_gpu,
                                       .cpu_towers = wrong[i].cpu_towers,
                                       .batch = wrong[i].batch,
                                       .cpu_batch = wrong[i].cpu_batch,
                                       .n_cores = 1};
        capture_begin();
        enum status st = tower_plan_make(&r, &towers);
        capture_end();
        assert_int_equal(st, ST_INVALID);
        assert_int_equal(capture_lines(), 1);
        assert_non_null(strstr(capture_text, wrong[i].word));
    }
}

static void gpu_numbers_of_driver_and_backend_compared(void **state)
{
    struct gpus g;
    gpus_make(&g, 3);
    assert_int_equal(gpus_check(&g.chosen, &cuda), ST_OK);
    cards[2].uuid[15] = 1; /* another card at the same position */
    assert_int_equal(gpus_check(&g.chosen, &cuda), ST_MISMATCH);
    cards[2].uuid[15] = 0;
    g.chosen.gpu[1].ordinal = 2; /* the backend numbers GPUs in reverse */
    g.chosen.gpu[2].ordinal = 1;
    capture_begin();
    enum status st = gpus_check(&g.chosen, &cuda);
    capture_end();
    assert_int_equal(st, ST_MISMATCH);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "the driver reports GPU 2 as GPU-a1000000-"));
    assert_non_null(strstr(capture_text, "reports it as GPU-a2000000-"));
    assert_non_null(strstr(capture_text, "CUDA_VISIBLE_DEVICES=GPU-a1000000-"));

    /* an instance's UUID differs from the card's: its position on the bus counts */
    gpus_make(&g, 3);
    g.chosen.gpu[1].is_mig = true;
    snprintf(g.chosen.gpu[1].uuid, sizeof g.chosen.gpu[1].uuid, "MIG-12345678");
    assert_int_equal(gpus_check(&g.chosen, &cuda), ST_OK);
    cards[1].pci[2] = 1;
    capture_begin();
    st = gpus_check(&g.chosen, &cuda);
    capture_end();
    assert_int_equal(st, ST_MISMATCH);
}

static void test_growth(void **state)
{
    const struct {
        int flag;
        const char *value;
        int growth, lines;
    } cases[] = {
        {-1, NULL, 0, 0},   {0, NULL, 0, 0}, {1, NULL, 1, 0},     {-1, "true", 1, 0},
        {-1, "TRUE", 1, 0}, {-1, "1", 1, 0}, {-1, "False", 0, 0}, {0, "true", 1, 1},
        {1, "false", 0, 1}, {1, "0", 0, 1},  {1, "true", 1, 0},
    };
    static const char *const bad[] = {"yes", "", "x", "10"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        capture_begin();
        int growth = gpus_growth(cases[i].flag, cases[i].value);
        capture_end();
        assert_int_equal(growth, cases[i].growth);
        assert_int_equal(capture_lines(), cases[i].lines);
        assert_int_equal(gpus_growth_check(cases[i].value), ST_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(CAPTURE(gpus_growth_check(bad[i])), ST_INVALID);
        assert_int_equal(capture_lines(), 1);
    }
}

int main(void)
{
    return RUN_TESTS(test_towers_without_gpus, test_towers_of_both_kinds, test_bf16_on_the_cpu,
                     test_parts_that_do_not_work_out, gpu_numbers_of_driver_and_backend_compared,
                     test_growth);
}
