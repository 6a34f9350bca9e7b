/* tests/worker_ahead_test.c - a worker whose card updates the parameters ahead of the servers
 * (worker/train/trainer_ahead.h), on the emulated CUDA backend. An imitated server makes the
 * versions, and answers a chunk's push as late as possible: when the worker waits for it. Until
 * then it holds the worker's gradient. */
#include "kernels/tuning.h"
#include "kernels/vector/digest.h"
#include "kernels/vector/vector.h"
#include "net/wire/chunks.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "worker/model/model.h"
#include "worker/train/trainer.h"
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 4,
    SIDE = 12,
    PIXELS = SIDE * SIDE,
    N_IMAGES = 64,
    STEPS = 9,
    CHUNK_BYTES = 20000,
    MAX_CHUNKS = 40
};

/* Its largest parameter has several chunks, and a chunk of it several blocks of digests. The
 * gradients are so large that the backend pins them, and copies straight into them. Batch norm has
 * running averages, which no optimizer updates. */
static const char net[] =
    "{\"name\": \"net\", \"input\": [1, 12, 12], \"classes\": 10, \"layers\": ["
    "{\"type\": \"conv2d\", \"filters\": 4, \"kernel\": 3, \"padding\": \"same\"},"
    "{\"type\": \"batch_norm\"}, {\"type\": \"relu\"}, {\"type\": \"max_pool\", \"kernel\": 2},"
    "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 200}, {\"type\": \"relu\"},"
    "{\"type\": \"dense\", \"units\": 10}, {\"type\": \"softmax_cross_entropy\"}]}";

static const struct backend *backend;
static struct model *model;
static struct chunks *chunks;
static uint8_t images[N_IMAGES * PIXELS];
static int32_t labels[N_IMAGES];

/* The imitated server. */
static struct {
    struct optim_config optim;
    float *params; /* the worker's */
    float *version, *slots;
    float *held; /* copies of the gradients that are not answered */
    const float *gradient[MAX_CHUNKS];
    int64_t made[MAX_CHUNKS], answered[MAX_CHUNKS];
    /* An earlier process of the worker has pushed the chunk's first gradient, so the first gradient
     * of this process does not count. */
    bool ignores[MAX_CHUNKS];
    int64_t end;    /* version after which the generation ends; 0: never */
    int64_t bad_at; /* version of chunk `bad_chunk` with a wrong bit; 0: none */
    int bad_chunk;
    int n_starts;
} server;

/* Makes the next version of a chunk. */
static void make_version(int chunk, int64_t step, const float *data, float weight)
{
    const struct net_chunk *c = &chunks->chunks[chunk];
    const struct net_param *param = &chunks->params[c->param];
    float scale = (float)(1.0 / (double)weight), *to = server.version + c->first;
    float *held = server.held + c->first;
    size_t n = (size_t)c->n_elems;
    struct optim_step scalars;
    if (param->rule == PARAM_AVERAGE) {
        vector_scale(held, data, weight, n);
        optim_average(param->keep, n, held, scale, to, to);
    } else {
        float *slots = server.slots + 2 * c->first;
        optim_begin(&server.optim, (uint64_t)step + 1, &scalars);
        struct optim_run run = {.n = n,
                                .sum = data,
                                .weight = weight,
                                .scale = scale,
                                .old = to,
                                .slots = slots,
                                .new_slots = slots,
                                .slot_stride = n,
                                .new_ = to};
        optim_run(&scalars, &run);
    }
    memcpy(held, data, n * sizeof *data);
}

static enum status push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    const struct net_chunk *c = &chunks->chunks[chunk];
    if (server.end > 0 && step >= server.end)
        return ST_REBASED;
    for (int k = 0; k < chunks->n_chunks; k++)
        assert_true(server.answered[k] >= step);
    server.gradient[chunk] = data;
    if (server.ignores[chunk]) {
        assert_int_equal(server.made[chunk], step + 1);
        memcpy(server.held + c->first, data, (size_t)c->n_elems * sizeof *data);
        server.ignores[chunk] = false;
        return ST_OK;
    }
    assert_int_equal(server.made[chunk], step);
    make_version(chunk, step, data, weight);
    server.made[chunk] = step + 1;
    return ST_OK;
}

static void answer(int chunk)
{
    const struct net_chunk *c = &chunks->chunks[chunk];
    size_t bytes = (size_t)c->n_elems * sizeof(float);
    if (server.answered[chunk] == server.made[chunk] || server.ignores[chunk])
        return;
    assert_memory_equal(server.gradient[chunk], server.held + c->first, bytes);
    memcpy(server.params + c->first, server.version + c->first, bytes);
    server.answered[chunk] = server.made[chunk];
    if (server.bad_at == server.made[chunk] && server.bad_chunk == chunk) {
        uint32_t bits;
        float *at = server.params + c->first + c->n_elems - 1;
        memcpy(&bits, at, sizeof bits);
        bits ^= 1;
        memcpy(at, &bits, sizeof bits);
    }
}

static enum status wait_for(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    if (server.end > 0 && step > server.end)
        return ST_REBASED;
    for (int k = first; k < first + n; k++) {
        assert_true(server.made[k] >= step);
        answer(k);
    }
    return ST_OK;
}

static enum status wait_any(void *ctx, const uint8_t *skip, int64_t step, int *chunk)
{
    *chunk = 0;
    while (skip[*chunk])
        ++*chunk;
    return wait_for(ctx, *chunk, 1, step, INT64_MAX);
}

/* The next generation begins at the last version of the one before. */
static enum status start(void *ctx, struct net_start *out)
{
    *out = (struct net_start){.step = server.end, .generation = 2, .place = {.n_members = 1}};
    server.end = 0;
    server.n_starts++;
    return ST_OK;
}

static enum status pull(void *ctx, int chunk, int64_t step)
{
    return ST_OK;
}

static int64_t version(void *ctx, int chunk)
{
    return server.answered[chunk];
}

static void ignore(void *ctx)
{
}

static const struct updates_ops ops = {.start = start,
                                       .push = push,
                                       .pull = pull,
                                       .wait = wait_for,
                                       .wait_any = wait_any,
                                       .version = version,
                                       .flush = ignore,
                                       .cancel = ignore};

static void server_make(enum optim_kind kind)
{
    size_t n = (size_t)chunks->n_elems;
    free(server.params);
    free(server.version);
    free(server.slots);
    free(server.held);
    memset(&server, 0, sizeof server);
    optim_defaults(kind, &server.optim);
    server.optim.learning_rate = 0.01f;
    server.params = calloc(n, sizeof(float));
    server.version = calloc(n, sizeof(float));
    server.slots = calloc(n, 2 * sizeof(float));
    server.held = calloc(n, sizeof(float));
    assert_true(server.params && server.version && server.slots && server.held);
    model_init_params(model, 1, server.params);
    memcpy(server.version, server.params, n * sizeof(float));
}

/* The job is at this step, of which an earlier process of the worker has pushed every other chunk,
 * with other gradients than this process will have. */
static void server_begin_at(int64_t step)
{
    for (int k = 0; k < chunks->n_chunks; k++) {
        const struct net_chunk *c = &chunks->chunks[k];
        server.ignores[k] = k % 2 == 1;
        server.answered[k] = step;
        server.made[k] = step + server.ignores[k];
        for (int64_t i = c->first; server.ignores[k] && i < c->first + c->n_elems; i++)
            server.version[i] += 0.001f;
    }
}

/* Trains the steps from `first` on with this tuning. Returns the digest of the last version. */
static enum status train_from(const struct net_start *first, uint32_t tuning, uint64_t *digest)
{
    struct trainer *trainer;
    struct trainer_result result;
    struct dataset data = {.n = N_IMAGES,
                           .sample = {3, {1, SIDE, SIDE}},
                           .classes = 10,
                           .labels = labels,
                           .bytes = images};
    struct updates updates = {&ops, NULL};
    struct tower_spec tower = {
        .own = {.backend = backend, .n_threads = 1, .deterministic = 1, .tuning = tuning},
        .n = BATCH};
    struct trainer_config tc = {.model = model,
                                .chunks = chunks,
                                .train = &data,
                                .updates = &updates,
                                .server_optim = &server.optim,
                                .params = server.params,
                                .towers = &tower,
                                .n_towers = 1,
                                .batch = BATCH,
                                .train_steps = STEPS,
                                .log_every = 1000,
                                .progress = PROGRESS_LINES};
    assert_int_equal(trainer_create(&tc, &trainer), ST_OK);
    enum status st = trainer_run(trainer, first, &result);
    trainer_destroy(trainer);
    if (st == ST_OK) {
        assert_int_equal(result.global_step, STEPS);
        assert_memory_equal(server.params, server.version, (size_t)chunks->n_elems * sizeof(float));
    }
    *digest = vector_digest(server.version, (size_t)chunks->n_elems);
    return st;
}

static enum status train(uint32_t tuning, uint64_t *digest)
{
    const struct net_start first = {.generation = 1, .place = {.n_members = 1}};
    return train_from(&first, tuning, digest);
}

static void test_last_version_is_the_same(void **state)
{
    for (int kind = 0; kind < OPTIM_N_KINDS; kind++) {
        uint64_t want, got;
        server_make((enum optim_kind)kind);
        assert_int_equal(train(TUNING_CAPTURE, &want), ST_OK);
        server_make((enum optim_kind)kind);
        assert_int_equal(train(TUNING_CAPTURE | TUNING_UPDATES, &got), ST_OK);
        assert_true(want == got);
    }
}

/* The card continues with its own updates in the next generation if the optimizer is SGD. If it is
 * Adam, the servers have the slots. */
static void test_generation_ends(void **state)
{
    for (int kind = OPTIM_SGD; kind <= OPTIM_ADAM; kind += OPTIM_ADAM - OPTIM_SGD)
        for (int64_t end = 1; end < STEPS; end += 3) {
            uint64_t want, got;
            server_make((enum optim_kind)kind);
            assert_int_equal(train(0, &want), ST_OK);
            server_make((enum optim_kind)kind);
            server.end = end;
            capture_begin();
            assert_int_equal(train(TUNING_UPDATES, &got), ST_OK);
            capture_end();
            assert_int_equal(server.n_starts, 1);
            assert_true(want == got);
            assert_int_equal(strstr(capture_text, "the optimizer's slots are on the servers") !=
                                 NULL,
                             kind == OPTIM_ADAM);
        }
}

/* A restarted worker repeats a step, and the servers keep the gradients of its last process. */
static void test_worker_repeats_a_step(void **state)
{
    for (int kind = OPTIM_SGD; kind <= OPTIM_ADAM; kind += OPTIM_ADAM - OPTIM_SGD)
        for (int64_t step = 0; step < STEPS; step += STEPS - 1) {
            uint64_t want, got;
            const struct net_start first = {
                .step = step, .generation = 1, .redoes = step == 0, .place = {.n_members = 1}};
            server_make((enum optim_kind)kind);
            server_begin_at(step);
            assert_int_equal(train_from(&first, 0, &want), ST_OK);
            server_make((enum optim_kind)kind);
            server_begin_at(step);
            capture_begin();
            enum status st = train_from(&first, TUNING_UPDATES, &got);
            capture_end();
            assert_int_equal(st, ST_OK);
            assert_true(want == got);
            assert_int_equal(strstr(capture_text, "updates the parameters itself") != NULL,
                             kind == OPTIM_SGD);
        }
}

static void test_another_version_ends_training(void **state)
{
    char what[100];
    const int some[] = {0, 3, chunks->n_chunks - 1};
    for (int k = 0; k < 3; k++)
        for (int64_t at = 1; at <= STEPS; at += 4) {
            uint64_t digest;
            server_make(OPTIM_ADAM);
            server.bad_at = at;
            server.bad_chunk = some[k];
            capture_begin();
            assert_int_equal(train(TUNING_UPDATES, &digest), ST_MISMATCH);
            capture_end();
            snprintf(what, sizeof what, "worker 0, step %d: elements ", (int)at);
            assert_non_null(strstr(capture_text, what));
            snprintf(what, sizeof what, "(chunk %d) have the digest ", some[k]);
            assert_non_null(strstr(capture_text, what));
        }
}

static int make(void **state)
{
    for (int i = 0; i < N_IMAGES; i++)
        labels[i] = i % 10;
    for (int i = 0; i < N_IMAGES * PIXELS; i++)
        images[i] = (uint8_t)(i * 2654435761u >> 24);
    assert_int_equal(model_parse(net, strlen(net), "net", 0, &model), ST_OK);
    assert_int_equal(chunks_create(model->params, model->n_params, CHUNK_BYTES, &chunks), ST_OK);
    assert_in_range(chunks->n_chunks, 5, MAX_CHUNKS);
    return 0;
}

int main(void)
{
    int status;
    if (emulated_open(WEIR_TEST_DIR, &backend, &status) == NULL)
        return status;
    return RUN_GROUP(make, NULL, test_last_version_is_the_same, test_generation_ends,
                     test_worker_repeats_a_step, test_another_version_ends_training);
}
