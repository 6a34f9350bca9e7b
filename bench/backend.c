/* bench/backend.c - measures training steps of a model on one backend, through kernels/backend.h as
 * the worker calls it. A step copies pixels in, computes all layers forward, the loss and all
 * layers backward, copies the gradients to the host, and copies new parameters in. There is no
 * optimizer and no server: the pixels are random, and the gradients are not applied. If `how` is
 * graph or launches, it measures whole steps on the device through kernels/resident.h, including
 * Adam's update, as CUDA graphs or kernel by kernel.
 *     bench_backend BACKEND MODEL [batch [precision [rounds [steps in a round [how [tuning]]]]]]
 *     bench_backend BACKEND --devices      prints the backend; exit 77 without a device
 * precision: fp32, tf32, bf16; how: host, graph, launches; tuning: as --gpu_tuning.
 * WEIR_BACKEND_DIR: folder of the backends, if not ../lib; exit 77 if a card has no bf16. Prints
 * the median of the rounds in images/s, by the clock and by the process's own processor time, which
 * on the CPU a busy machine disturbs less, and the same figures as JSON. */
#include "kernels/backend.h"
#include "base/clock.h"
#include "base/rng.h"
#include "kernels/resident.h"
#include "kernels/tuning.h"
#include "worker/model/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ROUNDS = 200, SEED = 5, NOT_HERE = 77, DATA_BATCHES = 64 };

struct bench {
    const struct backend *backend;
    struct model *model;
    struct plan *plan;
    float **params, **grads; /* [n_params] */
    uint8_t *pixels, *labels;
    const uint8_t **images;
    uint64_t *position;
    int batch;
    float loss;
    struct backend_data *data; /* resident: DATA_BATCHES batches */
    uint32_t *item;            /* order of the data set's items, [number of items] */
    uint64_t n_steps, n_passes;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_backend: %s\n", what);
    exit(1);
}

static void ok(const char *what, enum status st)
{
    if (st != ST_OK)
        die(what);
}

static void *take(size_t bytes)
{
    void *p = calloc(1, bytes > 0 ? bytes : 1);
    if (p == NULL)
        die("no memory");
    return p;
}

/* Allocates one flat block, as the worker does, so that its pages can be pinned. */
static float *params_take(struct bench *b, float ***out)
{
    size_t n_params = (size_t)b->model->n_params, n = 0;
    for (size_t k = 0; k < n_params; k++)
        n += (size_t)shape_elems(&b->model->params[k].shape);
    float *flat = take(n * sizeof *flat), *at = flat;
    *out = take(n_params * sizeof(**out));
    for (size_t k = 0; k < n_params; k++) {
        (*out)[k] = at;
        at += shape_elems(&b->model->params[k].shape);
    }
    return flat;
}

static void batch_take(struct bench *b)
{
    size_t n = (size_t)b->batch, pixels = (size_t)shape_elems(&b->model->input);
    b->pixels = take(n * pixels);
    b->labels = take(n);
    b->images = take(n * sizeof(*b->images));
    b->position = take(n * sizeof *b->position);
    for (size_t i = 0; i < n; i++) {
        b->images[i] = b->pixels + i * pixels;
        b->labels[i] = (uint8_t)(i % (size_t)b->model->classes);
        b->position[i] = i;
        for (size_t k = 0; k < pixels; k++)
            b->pixels[i * pixels + k] = (uint8_t)rng_u64(SEED, i * pixels + k);
    }
}

static void step(struct bench *b)
{
    const struct backend *k = b->backend;
    int n_correct, n = b->model->n_layers;
    for (int i = 0; i < b->model->n_params; i++)
        ok("load_param", k->load_param(b->plan, i));
    ok("set_input", k->set_input(b->plan, b->images, b->labels, b->position, b->batch));
    for (int i = 0; i < n; i++)
        ok("forward", k->forward(b->plan, i, 1));
    for (int i = n - 1; i >= 0; i--)
        ok("backward", k->backward(b->plan, i));
    ok("result", k->result(b->plan, &b->loss, &n_correct));
    for (int i = n - 1; i >= 0 && k->wait_grads != NULL; i--)
        ok("wait_grads", k->wait_grads(b->plan, i));
}

/* ---- whole steps on the device ---- */

static void resident_begin(struct bench *b, int graphs)
{
    if (b->backend->resident == NULL)
        die("this backend does not offer training that stays on the device");
    size_t n = (size_t)b->batch * DATA_BATCHES, pixels = (size_t)shape_elems(&b->model->input);
    uint8_t *images = take(n * pixels), *labels = take(n);
    float *keep = take((size_t)b->model->n_params * sizeof *keep);
    b->item = take(n * sizeof *b->item);
    for (size_t i = 0; i < n; i++) {
        memcpy(images + i * pixels, b->images[i % (size_t)b->batch], pixels);
        labels[i] = b->labels[i % (size_t)b->batch];
        b->item[i] = (uint32_t)i;
    }
    for (int k = 0; k < b->model->n_params; k++)
        keep[k] = -1.0f;
    struct resident_config cfg = {.keep = keep, .stride = (uint64_t)b->batch, .graphs = graphs};
    optim_defaults(OPTIM_ADAM, &cfg.optim);
    ok("data_create",
       b->backend->data_create(0, images, labels, (int64_t)n, (int64_t)pixels, &b->data));
    cfg.data = b->data;
    ok("begin", b->backend->resident->begin(b->plan, &cfg));
    free(images);
    free(labels);
    free(keep);
}

/* Runs n steps and waits for their end. */
static void resident_steps(struct bench *b, int n)
{
    const struct resident_ops *ops = b->backend->resident;
    struct resident_result got = {0};
    int n_queued = 0;
    while (n > 0 || n_queued > 0) {
        if (n == 0 || n_queued == RESIDENT_RUNS) {
            ok("wait", ops->wait(b->plan, &got));
            n_queued--;
            continue;
        }
        int now = n < RESIDENT_STEPS ? n : RESIDENT_STEPS;
        for (; b->n_passes <= (b->n_steps + (uint64_t)now - 1) / DATA_BATCHES; b->n_passes++)
            ok("order", ops->order(b->plan, b->n_passes, b->item));
        ok("run", ops->run(b->plan, now));
        b->n_steps += (uint64_t)now;
        n -= now;
        n_queued++;
    }
    b->loss = got.loss;
}

static void steps(struct bench *b, int n)
{
    if (b->data != NULL)
        resident_steps(b, n);
    for (int k = 0; k < n && b->data == NULL; k++)
        step(b);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Returns the processor time of this process, which other programs disturb least. */
static int64_t cpu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns the median of images per second; *cpu: median of images per second of processor time. */
static double median_images_per_second(struct bench *b, int n_rounds, int n_steps, double *cpu)
{
    static double rate[2][MAX_ROUNDS];
    steps(b, 3);
    for (int k = 0; k < n_rounds; k++) {
        int64_t begin = clock_now_ns(), cpu_begin = cpu_now_ns();
        steps(b, n_steps);
        double images = (double)n_steps * b->batch * 1e9;
        rate[0][k] = images / (double)(clock_now_ns() - begin);
        rate[1][k] = images / (double)(cpu_now_ns() - cpu_begin);
    }
    for (int k = 0; k < 2; k++)
        qsort(rate[k], (size_t)n_rounds, sizeof **rate, ascending);
    *cpu = rate[1][n_rounds / 2];
    return rate[0][n_rounds / 2];
}

static void plan_make(struct bench *b, enum backend_precision precision, uint32_t tuning)
{
    float *flat = params_take(b, &b->params);
    params_take(b, &b->grads);
    model_init_params(b->model, SEED, flat);
    struct backend_plan_config cfg = {.layers = b->model->layers,
                                      .n_layers = b->model->n_layers,
                                      .batch = b->batch,
                                      .n_threads = 1,
                                      .n_params = b->model->n_params,
                                      .params = (const float *const *)b->params,
                                      .grads = b->grads,
                                      .seed = SEED,
                                      .precision = precision,
                                      .tuning = tuning};
    ok("plan_create", b->backend->plan_create(&cfg, &b->plan));
}

int main(int argc, char **argv)
{
    struct bench b = {.batch = argc > 3 ? atoi(argv[3]) : 512};
    const char *precision = argc > 4 ? argv[4] : "fp32";
    int n_rounds = argc > 5 ? atoi(argv[5]) : 9, n_steps = argc > 6 ? atoi(argv[6]) : 20;
    const char *how = argc > 7 ? argv[7] : "host", *tuned = argc > 8 ? argv[8] : "none", *bad;
    uint32_t tuning = 0;
    int n_bad;
    int graphs = strcmp(how, "graph") == 0, inside = graphs || strcmp(how, "launches") == 0;
    int tf32 = strcmp(precision, "tf32") == 0, bf16 = strcmp(precision, "bf16") == 0;
    if (argc < 3 || b.batch < 1 || n_rounds < 1 || n_rounds > MAX_ROUNDS || n_steps < 1 ||
        (!tf32 && !bf16 && strcmp(precision, "fp32") != 0) ||
        (!inside && strcmp(how, "host") != 0) ||
        tuning_parse(tuned, &tuning, &bad, &n_bad) != ST_OK) {
        fprintf(
            stderr,
            "usage: bench_backend BACKEND MODEL|--devices [batch [fp32|tf32|bf16 [rounds [steps [host|graph|launches [TUNING]]]]]]\n");
        return 2;
    }
    ok("no such backend in this build",
       backend_open(argv[1], getenv("WEIR_BACKEND_DIR"), &b.backend));
    int n_devices = b.backend->n_devices();
    if (n_devices == 0 || strcmp(argv[2], "--devices") == 0) {
        printf("backend '%s' (%s): %d devices\n", b.backend->name, b.backend->description,
               n_devices);
        return n_devices > 0 ? 0 : NOT_HERE;
    }
    if (bf16 && b.backend->has_precision != NULL && !b.backend->has_precision(BACKEND_BF16)) {
        printf("backend '%s' (%s) refuses bf16 here: not measured\n", b.backend->name,
               b.backend->description);
        return NOT_HERE;
    }
    ok("cannot read the model", model_read(argv[2], NULL, 0, &b.model));
    batch_take(&b);
    plan_make(&b, tf32 ? BACKEND_TF32 : bf16 ? BACKEND_BF16 : BACKEND_FP32, tuning);
    if (inside)
        resident_begin(&b, graphs);
    double cpu, rate = median_images_per_second(&b, n_rounds, n_steps, &cpu);
    size_t bytes = b.backend->plan_memory_bytes(b.plan);
    if (graphs && !b.backend->resident->is_graph(b.plan))
        die("a step could not be captured as a graph");
    printf(
        "backend '%s' (%s), model '%s', batch %d, %s, %s: %.0f images/s, %.0f a second of processor time, loss %.5f, %zu bytes\n",
        b.backend->name, b.backend->description, b.model->name, b.batch, precision, how, rate, cpu,
        (double)b.loss, bytes);
    printf(
        "{\"bench\": \"backend\", \"backend\": \"%s\", \"model\": \"%s\", \"batch\": %d, \"precision\": \"%s\", \"how\": \"%s\", \"tuning\": \"%s\", \"images_s\": %.1f, \"images_cpu_s\": %.1f, \"loss\": %.6f, \"bytes\": %zu, \"rounds\": %d}\n",
        b.backend->name, b.model->name, b.batch, precision, how, tuned, rate, cpu, (double)b.loss,
        bytes, n_rounds);
    b.backend->plan_destroy(b.plan);
    if (b.data != NULL)
        b.backend->data_destroy(b.data);
    return 0;
}
