/* tests/worker_batch_split_test.c - the towers of a placement: their stages, and one tower over
 * several devices. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/device/gpus.h"
#include "worker/place/batch_split.h"

enum { N = 4, BATCH = 10 };

static const struct layer layers[N] = {
    {.kind = LAYER_CONV2D,
     .name = "conv",
     .n_params = 2,
     .n_inputs = 1,
     .input = {LAYER_INPUT_IMAGE}},
    {.kind = LAYER_FLATTEN, .name = "flatten", .n_inputs = 1, .input = {0}},
    {.kind = LAYER_DENSE, .name = "fc", .n_params = 2, .n_inputs = 1, .input = {1}},
    {.kind = LAYER_SOFTMAX_XENT, .name = "loss", .n_inputs = 1, .input = {2}},
};
static int fp32_alone(enum backend_precision precision)
{
    return precision == BACKEND_FP32;
}

static const struct backend cpu = {.name = "cpu"}, cuda = {.name = "cuda"};
static const struct backend old_cpu = {.name = "cpu", .has_precision = fp32_alone};
static const struct backend *present = &cpu;
static enum backend_precision precision;
static struct gpus gpus;
static struct tower_plan towers;
static struct placement *placement;
static struct batch_split *spread;

/* Makes the split. The GPUs have the backend's numbers 5, 6, ... */
static enum status make(const char *rules, int n_gpus, int towers_per_gpu, int cpu_towers)
{
    gpus = (struct gpus){.backend = &cuda};
    gpus.chosen.n = n_gpus;
    for (int i = 0; i < n_gpus; i++) {
        gpus.chosen.gpu[i].ordinal = 5 + i;
        snprintf(gpus.chosen.gpu[i].name, DEVICE_NAME_SIZE, "card%d", i);
    }
    const struct tower_plan_request tr = {.gpus = &gpus,
                                          .cpu = present,
                                          .precision = precision,
                                          .cpu_towers = cpu_towers,
                                          .towers_per_gpu = towers_per_gpu,
                                          .batch = BATCH,
                                          .n_cores = 12};
    assert_int_equal(tower_plan_make(&tr, &towers), ST_OK);
    const struct placement_request pr = {.layers = layers,
                                         .n_layers = N,
                                         .rules = rules,
                                         .n_gpus = n_gpus,
                                         .cpu_towers = towers.n > towers.n_gpu};
    assert_int_equal(placement_create(&pr, &placement), ST_OK);
    const struct batch_split_request sr = {.placement = placement,
                                           .n_layers = N,
                                           .cpu = present,
                                           .n_cores = 12,
                                           .precision = precision,
                                           .batch = BATCH};
    enum status st = CAPTURE(batch_split_create(&sr, &towers, &spread));
    if (st != ST_OK)
        placement_destroy(placement);
    return st;
}

static void unmake(void)
{
    batch_split_destroy(spread);
    placement_destroy(placement);
}

static const struct tower_device *device_of(int tower, int layer)
{
    const struct tower_spec *t = &towers.tower[tower];
    int stage = t->stage_of ? t->stage_of[layer] : 0;
    assert_true(stage <= t->n_others);
    return stage == 0 ? &t->own : &t->others[stage - 1];
}

static void default_placement_logs_nothing(void **state)
{
    assert_int_equal(make(NULL, 2, 2, 1), ST_OK);
    assert_int_equal(towers.n, 5);
    for (int i = 0; i < 5; i++)
        assert_null(towers.tower[i].stage_of);
    unmake();
}

/* Every tower computes fc on the CPU. The tower on the CPU has no layers on other devices. */
static void towers_share_layers_on_cpu(void **state)
{
    assert_int_equal(make("fc=cpu", 2, 1, 1), ST_OK);
    assert_int_equal(towers.n, 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(device_of(i, 0)->device, 5 + i);
        assert_int_equal(device_of(i, 1)->device, 5 + i);
        assert_ptr_equal(device_of(i, 2)->backend, &cpu);
        assert_ptr_equal(device_of(i, 3)->backend, &cpu);
        assert_int_equal(device_of(i, 2)->n_threads, 4);
    }
    assert_null(towers.tower[2].stage_of);
    assert_int_equal(towers.tower[2].first + towers.tower[2].n, BATCH);
    unmake();
}

/* A layer on the CPU is rounded like the layers on the card, or a line reports that it is not. */
static void cpu_layers_round_or_warn(void **state)
{
    static const char said[] =
        "--precision=bf16: the CPU does not support products in this format; it computes in fp32";
    precision = BACKEND_BF16;
    for (int cpu_towers = 0; cpu_towers < 2; cpu_towers++) {
        present = &cpu;
        assert_int_equal(make("fc=cpu", 2, 1, cpu_towers), ST_OK);
        assert_string_equal(capture_text, "");
        assert_int_equal(device_of(0, 0)->precision, BACKEND_BF16);
        for (int i = 0; i < towers.n; i++)
            assert_int_equal(device_of(i, 2)->precision, BACKEND_BF16);
        unmake();
        present = &old_cpu;
        assert_int_equal(make("fc=cpu", 2, 1, cpu_towers), ST_OK);
        assert_int_equal(capture_lines(), !cpu_towers); /* CPU towers have logged the line */
        assert_int_equal(strstr(capture_text, said) != NULL, !cpu_towers);
        for (int i = 0; i < towers.n; i++)
            assert_int_equal(device_of(i, 2)->precision, BACKEND_FP32);
        unmake();
        assert_int_equal(make(NULL, 2, 1, cpu_towers), ST_OK);
        assert_string_equal(capture_text, ""); /* no layer is on the CPU */
        unmake();
    }
    precision = BACKEND_FP32;
    present = &cpu;
}

static void numbered_gpus_form_one_tower(void **state)
{
    assert_int_equal(make("conv=gpu:1,fc=cpu,loss=gpu", 2, 1, 0), ST_OK);
    assert_string_equal(capture_text, "");
    assert_int_equal(towers.n, 1);
    assert_int_equal(towers.n_gpu, 1);
    assert_int_equal(towers.tower[0].n, BATCH);
    assert_int_equal(device_of(0, 0)->device, 6);
    assert_int_equal(device_of(0, 1)->device, 6);
    assert_ptr_equal(device_of(0, 2)->backend, &cpu);
    assert_int_equal(device_of(0, 2)->n_threads, 12);
    assert_int_equal(device_of(0, 3)->device, 5);
    unmake();
}

/* gpu:0 is the tower's own device, not another plan on it. */
static void own_gpu_by_number_adds_no_stage(void **state)
{
    assert_int_equal(make("*=gpu:0", 1, 1, 0), ST_OK);
    assert_int_equal(towers.n, 1);
    assert_null(towers.tower[0].stage_of);
    unmake();
}

static void gpu_without_layers_warned_of(void **state)
{
    assert_int_equal(make("fc=gpu:2", 3, 1, 0), ST_OK);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "W "));
    assert_non_null(strstr(capture_text, "GPU 6 ('card1') computes nothing"));
    unmake();
}

static void several_towers_with_numbered_gpus_refused(void **state)
{
    assert_int_equal(make("fc=gpu:1", 2, 1, 3), ST_INVALID);
    assert_non_null(strstr(capture_text, "3 towers on the CPU and 2 on 2 GPUs"));
    assert_int_equal(make("fc=gpu:0", 1, 2, 0), ST_INVALID);
    assert_non_null(strstr(capture_text, "0 towers on the CPU and 2 on 1 GPU;"));
}

int main(void)
{
    log_init("worker", 0, LOG_LEVEL_INFO);
    return RUN_TESTS(default_placement_logs_nothing, towers_share_layers_on_cpu,
                     numbered_gpus_form_one_tower, own_gpu_by_number_adds_no_stage,
                     gpu_without_layers_warned_of, several_towers_with_numbered_gpus_refused,
                     cpu_layers_round_or_warn);
}
