/* tests/timeline_rig.c - see the header. The server and its connection are imitated by times alone:
 * a push only computes when its chunk is updated, when its answer is in the worker's parameters,
 * and when a wait for it ends. */
#include "tests/timeline_rig.h"
#include "base/aligned.h"
#include "kernels/tuning.h"
#include "kernels/vector/finite.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "worker/model/model.h"
#include "worker/train/trainer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, PIXELS = 28 * 28, N_IMAGES = 64, PAGE_BYTES = 4096 };

/* Durations in us of a step of 512 images in tf32. bench/results/2026-11-27-h100.md has these
 * times. Where it has one time for several kernels, this is divided here in proportion to the bytes
 * that each kernel moves. Each of the three products of the second convolution includes a third of
 * the time of its transposes. */
static const struct emulation_cost costs[] = {
    {"kernel", 34}, /* first convolution, with bias, relu and max pool */
    {"kernel", 64}, /* its gradients */
    {"cudnnConvolutionForward", 92},
    {"cudnnConvolutionBackwardFilter", 137},
    {"cudnnConvolutionBackwardData", 143},
    {"weir_max_tile_backward", 68}, /* second max pool */
    {"weir_max_tile_backward", 135},
    {"cublasLtMatmul", 24}, /* forward of the first dense layer */
    {"cublasLtMatmul", 4},
    {"cublasLtMatmul", 4},
    {"cublasLtMatmul", 24}, /* gradients of its weights and biases */
    {"cublasGemmEx", 4},
    {"cublasGemmEx", 24}, /* gradient with respect to its input */
};
/* Assumed durations: a call to CUDA, any other kernel, an empty copy, a message between worker and
 * server, the wake-up of a thread, the update of a chunk of few bytes, the worker's copy of an
 * answer of 1 MB. */
enum {
    CALL_US = 5,
    KERNEL_US = 4,
    COPY_US = 2,
    MESSAGE_US = 30,
    WAKE_US = 20,
    LEAST_UPDATE_US = 20,
    ANSWER_US = 30
};
/* The worker's check of gradients: 13.1 MB in 0.17 ms. Its digest of a version takes 2.3 times as
 * long, as on one core of a Xeon with AVX-512. */
static const double check_bytes_per_us = 77e3, digest_bytes_per_us = 33e3;

static struct {
    void (*start)(const struct emulation_clock *clock);
    double (*now)(void);
    void (*reach)(double us);
    const struct emulation_span *(*spans)(int *n);
} emulated;

/* The imitated server, and the steps of the worker. */
static struct {
    const struct chunks *chunks;
    float *params;
    struct optim_config optim;
    double server_us, server_free_us, network_free_us;
    int64_t version[TIMELINE_MAX_CHUNKS];
    struct timeline_chunk last[TIMELINE_MAX_CHUNKS], seen[TIMELINE_STEPS][TIMELINE_MAX_CHUNKS];
    double begin_us[TIMELINE_STEPS];
    int n_host_checks, n_digests;
} job;

/* Makes the new version in the worker's parameters, which the worker does not read before the time
 * of the copy. */
static void update(const struct net_chunk *c, int64_t step, const float *data, float weight)
{
    struct optim_step scalars;
    optim_begin(&job.optim, (uint64_t)step + 1, &scalars);
    struct optim_run run = {.n = (size_t)c->n_elems,
                            .sum = data,
                            .weight = weight,
                            .scale = (float)(1.0 / (double)weight),
                            .old = job.params + c->first,
                            .new_ = job.params + c->first};
    optim_run(&scalars, &run);
}

static enum status job_push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    const struct net_chunk *c = &job.chunks->chunks[chunk];
    struct timeline_chunk now = {.bytes = (size_t)c->n_elems * sizeof(float),
                                 .gradient = data,
                                 .value = job.params + c->first};
    double share = (double)now.bytes / CHUNKS_DEFAULT_BYTES;
    now.push_us = emulated.now();
    now.update_us = fmax(now.push_us + MESSAGE_US, job.server_free_us);
    now.updated_us = now.update_us + LEAST_UPDATE_US + share * (job.server_us - LEAST_UPDATE_US);
    now.copy_us = fmax(now.updated_us + MESSAGE_US, job.network_free_us);
    now.copied_us = now.copy_us + share * ANSWER_US;
    job.server_free_us = now.updated_us;
    job.network_free_us = now.copied_us;
    job.version[chunk] = step + 1;
    update(c, step, data, weight);
    job.last[chunk] = job.seen[step][chunk] = now;
    return ST_OK;
}

static enum status job_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    for (int c = first; c < first + n; c++) {
        assert_int_equal(job.version[c], step);
        if (job.last[c].copied_us > emulated.now())
            emulated.reach(job.last[c].copied_us + WAKE_US);
    }
    return ST_OK;
}

/* Returns the lowest chunk that is there, or waits for the next one. */
static enum status job_wait_any(void *ctx, const uint8_t *skip, int64_t step, int *chunk)
{
    int next = -1;
    for (int c = 0; c < job.chunks->n_chunks; c++) {
        if (skip[c])
            continue;
        assert_int_equal(job.version[c], step);
        *chunk = c;
        if (job.last[c].copied_us <= emulated.now())
            return ST_OK;
        if (next < 0 || job.last[c].copied_us < job.last[next].copied_us)
            next = c;
    }
    *chunk = next;
    return job_wait(ctx, next, 1, step, INT64_MAX);
}

static enum status job_pull(void *ctx, int chunk, int64_t step)
{
    return ST_OK;
}

static int64_t job_version(void *ctx, int chunk)
{
    return job.version[chunk];
}

static void job_ignore(void *ctx)
{
}

static const struct updates_ops job_ops = {.push = job_push,
                                           .pull = job_pull,
                                           .wait = job_wait,
                                           .wait_any = job_wait_any,
                                           .version = job_version,
                                           .flush = job_ignore,
                                           .cancel = job_ignore};

static enum status note_step(void *ctx, int64_t step)
{
    job.begin_us[step] = emulated.now();
    return ST_OK;
}

size_t __real_finite_first_above(enum dtype d, const void *src, size_t n, float limit);
size_t __wrap_finite_first_above(enum dtype d, const void *src, size_t n, float limit);

/* Adds the duration of the worker's check of its gradients. */
size_t __wrap_finite_first_above(enum dtype d, const void *src, size_t n, float limit)
{
    job.n_host_checks++;
    emulated.reach(emulated.now() + (double)dtype_bytes(d, n) / check_bytes_per_us);
    return __real_finite_first_above(d, src, n, limit);
}

uint64_t __real_vector_digest(const float *x, size_t n);
uint64_t __wrap_vector_digest(const float *x, size_t n);

/* Adds the duration of the worker's digest of a version. */
uint64_t __wrap_vector_digest(const float *x, size_t n)
{
    job.n_digests++;
    emulated.reach(emulated.now() + (double)(n * sizeof *x) / digest_bytes_per_us);
    return __real_vector_digest(x, n);
}

static void train(const struct timeline_config *cfg, const struct model *model)
{
    struct trainer *trainer;
    struct trainer_result result;
    static uint8_t images[N_IMAGES * PIXELS];
    static int32_t labels[N_IMAGES];
    for (int i = 0; i < N_IMAGES; i++)
        labels[i] = i % 10;
    struct dataset data = {.n = N_IMAGES,
                           .sample = {3, {1, 28, 28}},
                           .classes = 10,
                           .labels = labels,
                           .bytes = images};
    model_init_params(model, 1, job.params);
    struct updates updates = {&job_ops, NULL};
    struct tower_spec tower = {.own = {.backend = cfg->backend,
                                       .n_threads = 1,
                                       .precision = BACKEND_TF32,
                                       .tuning = cfg->tuning},
                               .n = BATCH};
    struct trainer_config tc = {.model = model,
                                .chunks = job.chunks,
                                .train = &data,
                                .updates = &updates,
                                .server_optim = &job.optim,
                                .params = job.params,
                                .towers = &tower,
                                .n_towers = 1,
                                .batch = BATCH,
                                .train_steps = TIMELINE_STEPS,
                                .log_every = 1000,
                                .progress = PROGRESS_LINES,
                                .at_step = note_step};
    struct net_start start = {.place = {.n_members = 1}};
    assert_int_equal(trainer_create(&tc, &trainer), ST_OK);
    assert_int_equal(trainer_run(trainer, &start, &result), ST_OK);
    trainer_destroy(trainer);
}

void timeline_run(const struct timeline_config *cfg, struct timeline *out)
{
    struct model *model;
    struct chunks *chunks;
    struct emulation_clock clock = {.call_us = CALL_US,
                                    .kernel_us = KERNEL_US,
                                    .copy_us = COPY_US,
                                    .copy_bytes_per_us = cfg->copy_bytes_per_us,
                                    .costs = costs,
                                    .n_costs = sizeof costs / sizeof *costs};
    assert_true(emulated_look_up(cfg->so, "emulation_clock_start", &emulated.start) &&
                emulated_look_up(cfg->so, "emulation_clock_now", &emulated.now) &&
                emulated_look_up(cfg->so, "emulation_clock_reach", &emulated.reach) &&
                emulated_look_up(cfg->so, "emulation_clock_spans", &emulated.spans));
    assert_int_equal(model_read("deep_mnist", WEIR_SOURCE_DIR "/examples/models", 0, &model),
                     ST_OK);
    assert_int_equal(chunks_create(model->params, model->n_params, CHUNKS_DEFAULT_BYTES, &chunks),
                     ST_OK);
    assert_in_range(chunks->n_chunks, 1, TIMELINE_MAX_CHUNKS);
    memset(&job, 0, sizeof job);
    job.chunks = chunks;
    job.params = aligned_take_units((size_t)chunks->n_elems * sizeof(float), PAGE_BYTES);
    assert_non_null(job.params);
    job.server_us = cfg->server_us;
    optim_defaults(OPTIM_SGD, &job.optim);
    emulated.start(&clock);
    train(cfg, model);
    out->begin_us = job.begin_us[TIMELINE_STEPS - 2];
    out->end_us = job.begin_us[TIMELINE_STEPS - 1];
    out->n_chunks = chunks->n_chunks;
    memcpy(out->chunk, job.seen[TIMELINE_STEPS - 2], sizeof out->chunk);
    memcpy(out->before, job.seen[TIMELINE_STEPS - 3], sizeof out->before);
    out->n_host_checks = job.n_host_checks;
    out->n_digests = job.n_digests;
    out->spans = emulated.spans(&out->n_spans);
    free(job.params);
    chunks_destroy(chunks);
    model_destroy(model);
}
