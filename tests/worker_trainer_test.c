/* tests/worker_trainer_test.c - the training loop over a fake backend: the samples of each tower
 * (I6), the sum of towers, and the end of a run. */
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/trainer_rig.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A backend with late gradients: backward only records its call, and wait_grads writes them; until
 * then they are NaN, which would show in the parameters. */
static struct {
    _Atomic int queued[3];  /* calls of backward minus waits, per layer */
    _Atomic int overlapped; /* waits for layer 1 after the call of layer 0's backward */
    _Atomic int results_before_backward;
} late;

static enum status late_backward(struct plan *p, int layer)
{
    if (layer == 0)
        for (int i = 0; i < N_ELEMS; i++)
            p->cfg.grads[0][i] = NAN;
    late.queued[layer]++;
    return ST_OK;
}

static enum status late_wait(struct plan *p, int layer)
{
    assert_int_equal(late.queued[layer], 1); /* once, after its backward */
    late.overlapped += layer == 1 && late.queued[0] == 1;
    late.queued[layer]--;
    return fake_backward(p, layer);
}

static enum status late_result(struct plan *p, float *loss, int *n_correct)
{
    late.results_before_backward += !p->cfg.inference_only && late.queued[0] == 0;
    return fake_result(p, loss, n_correct);
}

/* 3 workers x batch 4 x 15 steps = 3 passes over 60 items: each item is read three times, and once
 * within each 5 steps. */
static void test_each_sample_once_a_pass(void **state)
{
    int seen[3][N_ITEMS] = {{0}};
    for (int task = 0; task < 3; task++) {
        struct rig r;
        struct trainer_result result;
        rig_make(&r, task, 3, 1, 4);
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        assert_int_equal(result.images, 60);
        assert_int_equal(fake.n_reads, 60);
        for (int i = 0; i < fake.n_reads; i++)
            seen[i / 20][fake.reads[i]]++;
        rig_free(&r);
    }
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < N_ITEMS; i++)
            assert_int_equal(seen[pass][i], 1);
}

/* Servers that also have other workers: chunk c advances by c + 1 versions at each push, up to
 * 15. */
static struct {
    int64_t version[16];
    int n_pushes[16], n_pulls[16];
    int late;
} apart;

static enum status apart_push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    assert_int_equal(step, apart.version[chunk]); /* each chunk has its own version */
    apart.late += step >= 15;
    apart.n_pushes[chunk]++;
    apart.version[chunk] += chunk + 1;
    if (apart.version[chunk] > 15)
        apart.version[chunk] = 15;
    return ST_OK;
}

static enum status apart_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    for (int c = first; c < first + n; c++)
        assert_true(apart.version[c] >= step); /* otherwise the wait would never return */
    return ST_OK;
}

/* Returns the last version, as the servers do after they have saved it. */
static enum status apart_pull(void *ctx, int chunk, int64_t step)
{
    assert_int_equal(step, 15);
    apart.n_pulls[chunk]++;
    return ST_OK;
}

static int64_t apart_version(void *ctx, int chunk)
{
    return apart.version[chunk];
}

static void apart_flush(void *ctx)
{
}

static void apart_cancel(void *ctx)
{
}

/* Each chunk advances at its own pace. The run ends when the last chunk has all its versions, and
 * no chunk is pushed after its last version. */
static void chunks_advance_at_own_pace(void **state)
{
    static const struct updates_ops ops = {.push = apart_push,
                                           .pull = apart_pull,
                                           .wait = apart_wait,
                                           .version = apart_version,
                                           .flush = apart_flush,
                                           .cancel = apart_cancel};
    for (int n_towers = 1; n_towers <= 3; n_towers++) {
        struct rig r;
        struct trainer_result result;
        rig_make(&r, 0, 2, n_towers, 6);
        trainer_destroy(r.trainer);
        struct updates fake_exchange = {&ops, NULL};
        r.cfg.updates = &fake_exchange;
        r.cfg.own_pace = true;
        assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
        memset(&apart, 0, sizeof apart);
        fake.n_loads = 0;
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        assert_int_equal(fake.n_loads,
                         15 * n_towers); /* each parameter is loaded once per version */
        assert_int_equal(result.global_step, 15);
        assert_int_equal(result.local_steps, 15);
        assert_int_equal(apart.late, 0);
        for (int c = 0; c < r.chunks->n_chunks; c++) {
            assert_int_equal(apart.version[c], 15);
            assert_int_equal(apart.n_pulls[c], 1);
            assert_int_equal(apart.n_pushes[c], (15 + c) / (c + 1));
        }
        rig_free(&r);
    }
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Two towers that share a batch of 8 read the same samples as two workers with batches of 4, and as
 * one tower. */
static void test_towers_share_the_batch(void **state)
{
    int reads[2][MAX_READS], n[2];
    float end[2][N_ELEMS];
    for (int k = 0; k < 2; k++) {
        struct rig r;
        struct trainer_result result;
        rig_make(&r, 0, 1, k + 1, 8);
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        assert_int_equal(result.global_step, 15);
        n[k] = fake.n_reads;
        memcpy(reads[k], fake.reads, sizeof reads[k]);
        memcpy(end[k], r.params, sizeof end[k]);
        rig_free(&r);
        qsort(reads[k], (size_t)n[k], sizeof(int), ascending);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(reads[0], reads[1], (size_t)n[0] * sizeof(int));
    for (int i = 0; i < N_ELEMS; i++) {
        assert_true(end[0][i] != 0);
        assert_float_equal(end[0][i], end[1][i], 1e-5f * (end[0][i] < 0 ? -end[0][i] : end[0][i]));
    }
}

/* The parameters are the same as with immediate gradients. A layer's gradient is pushed after all
 * backwards. */
static void late_gradients_yield_same_parameters(void **state)
{
    float params[2][N_ELEMS];
    struct backend backend = fake_backend;
    backend.backward = late_backward;
    backend.wait_grads = late_wait;
    backend.result = late_result;
    memset(&late, 0, sizeof late);
    for (int k = 0; k < 2; k++) {
        struct rig r;
        struct trainer_result result;
        rig_make(&r, 0, 1, 1, 4);
        if (k == 1) {
            trainer_destroy(r.trainer);
            r.towers[0].own.backend = &backend;
            assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
        }
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        memcpy(params[k], r.params, sizeof params[k]);
        rig_free(&r);
    }
    assert_memory_equal(params[0], params[1], sizeof params[0]);
    assert_int_equal(late.overlapped, 15);
    assert_int_equal(late.queued[0] + late.queued[1], 0);
    assert_int_equal(late.results_before_backward, 0);
}

/* One tower has late gradients, another tower has immediate ones, and their parts are unequal. The
 * parameters are those of one tower with the whole batch. */
static void test_towers_of_two_backends(void **state)
{
    float params[2][N_ELEMS];
    struct backend backend = fake_backend;
    backend.backward = late_backward;
    backend.wait_grads = late_wait;
    memset(&late, 0, sizeof late);
    for (int k = 0; k < 2; k++) {
        struct rig r;
        struct trainer_result result;
        double accuracy, loss, auc;
        rig_make(&r, 0, 1, k + 1, 8);
        if (k == 1) {
            trainer_destroy(r.trainer);
            r.towers[0] = (struct tower_spec){.own = {.backend = &fake_backend}, .n = 7};
            r.towers[1] = (struct tower_spec){.own = {.backend = &backend}, .first = 7, .n = 1};
            assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
        }
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        assert_int_equal(trainer_evaluate(r.trainer, &accuracy, &loss, &auc), ST_OK);
        memcpy(params[k], r.params, sizeof params[k]);
        rig_free(&r);
    }
    assert_int_equal(late.overlapped, 15);
    for (int i = 0; i < N_ELEMS; i++)
        assert_float_equal(params[0][i], params[1][i], 1e-5f * fabsf(params[0][i]));
}

/* Two towers have a backend that adds their gradients. They run alone, and with a third tower
 * before or between them: the parameters are those of one tower. A single such tower forms no
 * group. */
static void test_towers_of_a_group(void **state)
{
    float params[5][N_ELEMS];
    struct backend backend = group_backend();
    static const int in_group[5][3] = {{0}, {1}, {1, 1}, {0, 1, 1}, {1, 0, 1}};
    static const int n_towers[] = {1, 1, 2, 3, 3}, groups[] = {0, 0, 1, 1, 1};
    for (int k = 0; k < 5; k++) {
        struct rig r;
        struct trainer_result result;
        rig_make(&r, 0, 1, n_towers[k], 8);
        trainer_destroy(r.trainer);
        for (int i = 0; i < n_towers[k]; i++)
            r.towers[i].own.backend = in_group[k][i] ? &backend : &fake_backend;
        n_groups = 0;
        assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
        assert_int_equal(n_groups, groups[k]);
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        memcpy(params[k], r.params, sizeof params[k]);
        rig_free(&r);
    }
    for (int k = 1; k < 5; k++)
        for (int i = 0; i < N_ELEMS; i++)
            assert_float_equal(params[0][i], params[k][i], 1e-5f * fabsf(params[0][i]));
}

/* Servers whose generation ends once, in step 5: chunk 0 has no further version there, while the
 * last contribution to chunk 1 has no answer until a thread waits for that chunk alone. If the
 * worker leaves, its requests are dropped instead, and chunk 1 never has an answer. */
static struct {
    int leaves;
    _Atomic int is_unanswered; /* chunk 1 has a request without an answer */
    _Atomic int n_rebased;     /* waits that reported the end of the generation */
    struct net_start start;    /* start of the next generation */
} ending;

static enum status ending_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    if (ending.start.step > 0) /* the next generation */
        return ST_OK;
    if (first == 0 && step >= 5) {
        if (ending.n_rebased++ == 0)
            ending.is_unanswered = 1;
        return ST_REBASED;
    }
    if (ending.leaves)
        return ending.n_rebased > 0 ? ST_REBASED : ST_OK;
    if (first == 1 && n == 1)
        ending.is_unanswered = 0;
    return ST_OK;
}

static int ending_is_busy(void *ctx, int chunk)
{
    return chunk == 1 && ending.is_unanswered && !ending.leaves;
}

static int ending_is_leaving(void *ctx)
{
    return ending.leaves;
}

static enum status ending_start(void *ctx, struct net_start *out)
{
    if (ending.leaves)
        return ST_CANCELLED;
    if (ending.n_rebased > 0)
        ending.start.step = 5;
    *out = ending.start;
    return ST_OK;
}

static enum status (*group_writes)(struct plan *p, int layer);
static enum status write_answered(struct plan *p, int layer)
{
    assert_int_equal(ending.is_unanswered, 0);
    return group_writes(p, layer);
}

/* Trains with a group of towers until the generation ends. No gradient is written that a server may
 * still read, because the server has not answered its push. */
static void end_generation(int leaves, struct trainer_result *result)
{
    struct rig r;
    struct backend backend = group_backend();
    group_writes = backend.wait_grads;
    backend.wait_grads = write_answered;
    rig_make(&r, 0, 1, 2, 8);
    trainer_destroy(r.trainer);
    for (int i = 0; i < 2; i++)
        r.towers[i].own.backend = &backend;
    struct updates_ops ops = *r.updates.ops;
    struct updates wrapped = {&ops, r.updates.ctx};
    ops.wait = ending_wait;
    ops.is_busy = ending_is_busy;
    ops.is_leaving = ending_is_leaving;
    ops.start = ending_start;
    memset(&ending, 0, sizeof ending);
    ending.leaves = leaves;
    ending.start = r.start;
    r.cfg.updates = &wrapped;
    assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
    assert_int_equal(trainer_run(r.trainer, &r.start, result), ST_OK);
    assert_true(ending.n_rebased > 0);
    rig_free(&r);
}

/* A group of towers computes to the end of an invalid step. */
static void invalid_step_waits_for_answers(void **state)
{
    struct trainer_result result;
    end_generation(0, &result);
    assert_false(result.left);
    assert_int_equal(result.global_step, 15);
}

static void leaving_worker_computes_no_invalid_step(void **state)
{
    struct trainer_result result;
    end_generation(1, &result);
    assert_true(result.left);
}

/* One tower of a group fails, or sees the stop, while all others wait for it: the run ends. */
static void test_a_group_ends_with_a_tower(void **state)
{
    struct backend backend = group_backend();
    for (int k = 0; k < 20; k++) {
        struct rig r;
        struct trainer_result result;
        rig_make(&r, 0, 1, 3, 6);
        trainer_destroy(r.trainer);
        for (int i = 0; i < 3; i++)
            r.towers[i].own.backend = &backend;
        assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
        atomic_store(&fake.fail_at_forward, 20 + k);
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_INTERNAL);
        rig_free(&r);
    }
}

/* Puts a layer without parameters below all layers. */
static void flatten_first(struct rig *r)
{
    r->layers[2] = r->layers[1];
    r->layers[1] = r->layers[0];
    r->layers[0] = (struct layer){.kind = LAYER_FLATTEN};
    r->model.n_layers = 3;
}

static enum status slow_at_the_bottom(struct plan *p, int layer)
{
    if (layer == 0)
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    return fake_backward(p, layer);
}

/* Reads the captured lines "training step N done ... loss L"; returns their losses by step. */
static int losses_read(double loss[16])
{
    int n = 0, step;
    for (const char *at = capture_text; (at = strstr(at, "training step ")) != NULL; at++) {
        assert_int_equal(sscanf(at, "training step %d done", &step), 1);
        assert_int_equal(step, n + 1); /* each once, in order */
        loss[n++] = atof(strstr(at, "loss ") + 5);
    }
    return n;
}

/* The lowest layer has no parameters, so a fast tower does not wait there for a slow one: each step
 * is still reported once, with the loss of all its samples. */
static void slow_tower_keeps_reports_complete(void **state)
{
    double loss[2][16];
    struct backend slow = fake_backend;
    slow.backward = slow_at_the_bottom;
    for (int k = 0; k < 2; k++) {
        struct rig r;
        struct trainer_result result;
        rig_make(&r, 0, 1, k + 1, 8);
        trainer_destroy(r.trainer);
        flatten_first(&r);
        r.cfg.log_every = 1;
        r.towers[1].own.backend = &slow;
        assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
        capture_begin();
        enum status st = trainer_run(r.trainer, &r.start, &result);
        capture_end();
        assert_int_equal(st, ST_OK);
        assert_int_equal(losses_read(loss[k]), 15);
        rig_free(&r);
    }
    for (int i = 0; i < 15; i++)
        assert_float_equal(loss[0][i], loss[1][i], 1e-3);
}

static void test_towers_are_deterministic(void **state)
{
    float end[2][N_ELEMS];
    for (int k = 0; k < 2; k++) {
        struct rig r;
        struct trainer_result result;
        rig_make(&r, 0, 1, 3, 7);
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        memcpy(end[k], r.params, sizeof end[k]);
        rig_free(&r);
    }
    assert_memory_equal(end[0], end[1], sizeof end[0]);
}

static void test_resumes_at_a_step(void **state)
{
    struct rig r;
    struct trainer_result result;
    rig_make(&r, 0, 1, 1, 4);
    r.start.step = 10;
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
    assert_int_equal(result.local_steps, 5);
    assert_int_equal(result.global_step, 15);
    assert_int_equal(fake.n_reads, 20);
    rig_free(&r);
}

static void test_a_failing_tower_ends_the_run(void **state)
{
    struct rig r;
    struct trainer_result result;
    rig_make(&r, 0, 1, 3, 6);
    atomic_store(&fake.fail_at_forward, 20);
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_INTERNAL);
    rig_free(&r);
}

static void *stop_main(void *arg)
{
    struct rig *r = arg;
    for (;;) { /* until the run has begun */
        pthread_mutex_lock(&fake.lock);
        int n = fake.n_reads;
        pthread_mutex_unlock(&fake.lock);
        if (n > 0)
            break;
        sched_yield();
    }
    trainer_stop(r->trainer);
    return NULL;
}

static void check_stop(const struct backend *backend)
{
    struct rig r;
    struct trainer_result result;
    pthread_t thread;
    rig_make(&r, 0, 1, 2, 4);
    trainer_destroy(r.trainer);
    r.towers[0].own.backend = r.towers[1].own.backend = backend;
    r.cfg.train_steps = (int64_t)1 << 50;
    assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
    assert_int_equal(pthread_create(&thread, NULL, stop_main, &r), 0);
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_CANCELLED);
    pthread_join(thread, NULL);
    rig_free(&r);
}

static void test_stop_ends_the_run(void **state)
{
    struct backend backend = group_backend();
    check_stop(&fake_backend);
    for (int k = 0; k < 20; k++) {
        group_hangs = k % 2;
        check_stop(&backend);
    }
    group_hangs = 0;
}

static void test_evaluate_counts_all(void **state)
{
    struct rig r;
    double accuracy, loss, auc;
    rig_make(&r, 0, 1, 1, 4);
    assert_int_equal(trainer_evaluate(r.trainer, &accuracy, &loss, &auc), ST_OK);
    assert_float_equal(accuracy, 0.5, 1e-9);
    assert_float_equal(loss, (N_ITEMS - 1) / 2.0, 1e-5);
    rig_free(&r);
}

static struct {
    const struct updates *updates;
    int n_chunks, n_evaluations;
    int early; /* chunks that were evaluated before they had the version of that step */
} watched;

static enum status watched_load(struct plan *p, int param)
{
    watched.n_evaluations += p->cfg.inference_only;
    for (int c = 0; p->cfg.inference_only && c < watched.n_chunks; c++)
        watched.early +=
            watched.updates->ops->version(watched.updates->ctx, c) < watched.n_evaluations;
    return ST_OK;
}

static enum status slow_at_the_parameters(struct plan *p, int layer)
{
    if (layer == 1)
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    return fake_backward(p, layer);
}

/* An evaluation between steps uses one version, even if the lowest layer has no parameters and no
 * tower waits there for a slow tower's gradients. */
static void test_evaluates_whole_versions(void **state)
{
    struct rig r;
    struct trainer_result result;
    struct backend slow = fake_backend, watching = fake_backend;
    slow.backward = slow_at_the_parameters;
    watching.load_param = watched_load;
    rig_make(&r, 0, 1, 2, 8);
    trainer_destroy(r.trainer);
    watched.updates = &r.updates;
    watched.n_chunks = r.chunks->n_chunks;
    flatten_first(&r);
    r.cfg.eval_every = 1;
    r.towers[0].own.backend = &watching;
    r.towers[1].own.backend = &slow;
    assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
    assert_int_equal(watched.n_evaluations, 14);
    assert_int_equal(watched.early, 0);
    rig_free(&r);
}

int main(void)
{
    return RUN_TESTS(
        test_each_sample_once_a_pass, chunks_advance_at_own_pace, test_towers_share_the_batch,
        late_gradients_yield_same_parameters, test_towers_of_two_backends, test_towers_of_a_group,
        invalid_step_waits_for_answers, leaving_worker_computes_no_invalid_step,
        test_a_group_ends_with_a_tower, slow_tower_keeps_reports_complete,
        test_towers_are_deterministic, test_resumes_at_a_step, test_a_failing_tower_ends_the_run,
        test_stop_ends_the_run, test_evaluate_counts_all, test_evaluates_whole_versions);
}
