/* tests/ps_finite_test.c - contributions that are not finite: the store refuses them before it adds
 * anything, and reports the worker and the parameter. Contributions that their senders skip count
 * with weight 0 (I2, I3). Each mode and number format is tested. */
#include "base/digest.h"
#include "base/log.h"
#include "base/rng.h"
#include "checkpoint/shard_file.h"
#include "kernels/vector/finite.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MEMBERS = 3, GENERATION = 7, N_W = 700, N_B = 300, N_ELEMS = N_W + N_B };

static const struct net_param model[] = {
    {.name = "fc/weights", .shape = {1, {N_W}}},
    {.name = "fc/biases", .shape = {1, {N_B}}},
};
static const int members[N_MEMBERS] = {0, 4, 9}; /* indices, after other workers left */

struct fixture {
    struct chunks *chunks;
    struct net_job job;
    int server[1];
    struct store *store;
    int n_answers;
};

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct fixture *f = ctx;
    assert_int_equal(a->kind, PIECE_APPLIED);
    assert_int_equal(a->crc32c, digest_crc32c(0, a->payload->data, a->payload->bytes));
    f->n_answers++;
}

static void setup(struct fixture *f, const struct net_job *job)
{
    *f = (struct fixture){.job = *job};
    assert_int_equal(chunks_create(model, 2, 4096, &f->chunks), ST_OK);
    assert_int_equal(f->chunks->n_chunks, 1); /* small parameters share a chunk */
    struct store_config cfg = {.chunks = f->chunks,
                               .job = &f->job,
                               .server = f->server,
                               .n_members = job->n_workers,
                               .member = members,
                               .generation = GENERATION,
                               .answer = on_answer,
                               .ctx = f};
    f->store = store_rig_open(&cfg, job->n_workers, 1000);
    store_sum(f->store);
}

static void teardown(struct fixture *f)
{
    store_destroy(f->store);
    chunks_destroy(f->chunks);
}

static struct net_job job_of(enum job_sync_mode mode, enum optim_kind kind, int n_workers)
{
    struct net_job job = {.n_workers = n_workers, .sync_mode = mode, .train_steps = 100};
    optim_defaults(kind, &job.optim);
    return job;
}

static char why[256]; /* reason of the last refusal */

/* Sends values; NULL: an empty payload. Returns the answer's kind. */
static enum piece_kind send_values(struct fixture *f, enum piece_kind kind, int member,
                                   int64_t step, float weight, const float *values)
{
    enum dtype d = kind == PIECE_INIT ? DTYPE_F32 : f->job.push_dtype;
    uint8_t bytes[1 + N_ELEMS * sizeof(float)];
    size_t n = values ? dtype_bytes(d, N_ELEMS) : 0;
    if (values)
        dtype_encode(d, bytes + 1, values, N_ELEMS);
    struct net_frame_head head = {GENERATION, (uint32_t)member, 1000 + (uint64_t)member};
    struct net_piece piece = {
        .kind = kind, .step = (uint64_t)step, .weight = weight, .dtype = d, .payload.bytes = n};
    struct store_answer a = store_rig_send(f->store, &head, piece, bytes + 1, 0);
    snprintf(why, sizeof why, "%s", a.kind == PIECE_REFUSED ? a.text : "");
    buf_unref(a.payload);
    return a.kind;
}

static void fill(float *values, int member, int64_t step)
{
    for (int i = 0; i < N_ELEMS; i++)
        values[i] = store_rig_number(member, step, i);
}

static enum piece_kind push(struct fixture *f, int member, int64_t step, float weight)
{
    float values[N_ELEMS];
    fill(values, member, step);
    return send_values(f, PIECE_PUSH, member, step, weight, weight > 0 ? values : NULL);
}

static void init(struct fixture *f)
{
    float values[N_ELEMS];
    fill(values, 77, 0);
    assert_int_equal(send_values(f, PIECE_INIT, 0, 0, 0, values), PIECE_VERSION);
}

static void read_version(struct fixture *f, int64_t version, float *out)
{
    store_rig_read_all(f->store, f->chunks, version, out);
}

/* The bad element is before, at or behind the cut of the payload, in every format. */
static void contribution_that_is_not_finite_is_refused(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const int places[] = {0, 2, 5, N_W - 1, N_W, N_ELEMS - 1};
    for (int d = 0; d < DTYPE_N_KINDS; d++) {
        struct net_job job = job_of(JOB_SYNC, OPTIM_ADAM, N_MEMBERS);
        struct fixture f, clean;
        float values[N_ELEMS], got[N_ELEMS], want[N_ELEMS];
        job.push_dtype = (enum dtype)d;
        setup(&f, &job);
        setup(&clean, &job);
        fill(values, 77, 0);
        values[3] = NAN;
        assert_int_equal(send_values(&f, PIECE_INIT, 0, 0, 0, values), PIECE_REFUSED);
        assert_string_equal(why,
                            "worker 0: the first value of 'fc/weights' at step 0 is not finite");
        init(&f);
        init(&clean);
        push(&f, 0, 0, 10);
        push(&clean, 0, 0, 10);
        for (int k = 0; k < 3 * 6; k++) {
            fill(values, 1, 0);
            values[places[k / 3]] = bad[k % 3];
            assert_int_equal(send_values(&f, PIECE_PUSH, 1, 0, 10, values), PIECE_REFUSED);
            /* If a block's scale is not finite, no element of the block is. */
            int block = d == DTYPE_TOPK ? 1 : (int)dtype_block((enum dtype)d);
            assert_string_equal(why, places[k / 3] / block * block < N_W
                                         ? "worker 4: the gradient of 'fc/weights' at step 0 is "
                                           "not finite"
                                         : "worker 4: the gradient of 'fc/biases' at step 0 is not "
                                           "finite");
        }
        for (int m = 1; m < N_MEMBERS; m++) {
            push(&f, m, 0, 10);
            push(&clean, m, 0, 10);
        }
        read_version(&f, 1, got); /* the refused contribution is not part of it */
        read_version(&clean, 1, want);
        assert_memory_equal(got, want, sizeof got);
        teardown(&f);
        teardown(&clean);
    }
}

/* Each contribution is finite, but their sum would not be. The store refuses a contribution whose
 * size, in any element, could cause this, and adds nothing of it. */
static void contribution_too_large_for_the_sum_is_refused(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {1, 0, 2}, {2, 0, 1}, {0, 2, 1}, {2, 1, 0}};
    for (int d = 0; d < DTYPE_F16; d++) /* 65504 times all samples is far below fp32's limit */
        for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
            for (int k = 0; k < 3; k++) {
                struct net_job job = job_of(JOB_SYNC, OPTIM_SGD, N_MEMBERS);
                struct fixture f, clean;
                float values[N_ELEMS], got[N_ELEMS], want[N_ELEMS];
                job.push_dtype = (enum dtype)d;
                setup(&f, &job);
                setup(&clean, &job);
                init(&f);
                init(&clean);
                for (int i = 0; i < 3; i++) {
                    int m = orders[o][i];
                    fill(values, m, 0);
                    values[N_W + 1] = -3e38f;
                    if (i == k) {
                        assert_int_equal(send_values(&f, PIECE_PUSH, m, 0, 10, values),
                                         PIECE_REFUSED);
                        assert_non_null(strstr(
                            why,
                            ": the gradient of 'fc/biases' at step 0 is too large for the sum"));
                    }
                    push(&f, m, 0, 10);
                    push(&clean, m, 0, 10);
                }
                read_version(&f, 1, got);
                read_version(&clean, 1, want);
                assert_memory_equal(got, want, sizeof got);
                teardown(&f);
                teardown(&clean);
            }
}

/* All members send the largest accepted values, and the mean is finite. If one contribution makes a
 * version, its weight has no effect, and any finite number is accepted. */
static void largest_accepted_values_have_a_finite_mean(void **state)
{
    static const float weights[] = {1.2e-38f, 0.5f, 1, 10, 1e30f};
    float values[N_ELEMS], got[N_ELEMS];
    for (int w = 0; w < 5; w++) {
        struct net_job job = job_of(JOB_SYNC, OPTIM_SGD, N_MEMBERS);
        struct fixture f;
        double times = (double)weights[w] * N_MEMBERS;
        float most = (float)((double)FLT_MAX / (times > 1 ? times : 1) / 2);
        setup(&f, &job);
        init(&f);
        for (int i = 0; i < N_ELEMS; i++)
            values[i] = i % 2 ? most : -most;
        for (int m = 0; m < N_MEMBERS; m++)
            assert_int_equal(send_values(&f, PIECE_PUSH, m, 0, weights[w], values), PIECE_NONE);
        read_version(&f, 1, got);
        assert_int_equal(finite_first_bad(DTYPE_F32, got, N_ELEMS), N_ELEMS);
        values[3] = nextafterf(most, INFINITY);
        assert_int_equal(send_values(&f, PIECE_PUSH, 0, 1, weights[w], values), PIECE_REFUSED);
        assert_int_equal(send_values(&f, PIECE_PUSH, 0, 1, 1e-39f, values), PIECE_REFUSED);
        assert_non_null(strstr(why, " must be 0, or finite and at least 1.17549e-38"));
        teardown(&f);
    }
    struct net_job job = job_of(JOB_ASYNC, OPTIM_SGD, 1);
    struct fixture f;
    setup(&f, &job);
    init(&f);
    for (int i = 0; i < N_ELEMS; i++)
        values[i] = FLT_MAX;
    assert_int_equal(send_values(&f, PIECE_PUSH, 0, 0, 10, values), PIECE_APPLIED);
    read_version(&f, 1, got);
    assert_int_equal(finite_first_bad(DTYPE_F32, got, N_ELEMS), N_ELEMS);
    teardown(&f);
}

/* The learning rate makes a value infinite. The store logs one line with the parameter. */
static void infinite_update_is_logged(void **state)
{
    struct net_job job = job_of(JOB_ASYNC, OPTIM_SGD, 1);
    struct fixture f;
    float values[N_ELEMS];
    job.optim.learning_rate = 1000;
    setup(&f, &job);
    init(&f);
    fill(values, 0, 0);
    values[N_W + 2] = 1e38f;
    assert_int_equal(CAPTURE(send_values(&f, PIECE_PUSH, 0, 0, 1, values)), PIECE_APPLIED);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(
        strstr(capture_text, "step 0: the update makes parameter 'fc/biases' not finite"));
    values[N_W + 2] = 0;
    assert_int_equal(CAPTURE(send_values(&f, PIECE_PUSH, 0, 1, 1, values)), PIECE_APPLIED);
    assert_string_equal(capture_text, "");
    teardown(&f);
}

/* The line is not repeated after a step without contributions, whose version equals the previous
 * one. */
static void infinite_update_is_logged_once(void **state)
{
    struct net_job job = job_of(JOB_SYNC, OPTIM_SGD, 1);
    struct fixture f;
    float values[N_ELEMS];
    job.optim.learning_rate = 1000;
    setup(&f, &job);
    init(&f);
    fill(values, 0, 0);
    values[N_W + 2] = 1e38f;
    assert_int_equal(CAPTURE(send_values(&f, PIECE_PUSH, 0, 0, 1, values)), PIECE_NONE);
    assert_int_equal(capture_lines(), 1);
    values[N_W + 2] = 0;
    for (int step = 1; step <= 2; step++) {
        int skips = step == 1;
        const float *with = skips ? NULL : values;
        assert_int_equal(CAPTURE(send_values(&f, PIECE_PUSH, 0, step, !skips, with)), PIECE_NONE);
        assert_string_equal(capture_text, "");
    }
    assert_int_equal(f.n_answers, 3);
    teardown(&f);
}

/* The store refuses the contribution that would have completed the version. Contributions of
 * later members that arrived before it wait as copies. */
static void last_contribution_is_refused(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {2, 1, 0}};
    struct net_job job = job_of(JOB_SYNC, OPTIM_ADAM, N_MEMBERS);
    float values[N_ELEMS], got[N_ELEMS], want[N_ELEMS];
    for (int o = 0; o < 3; o++) {
        struct fixture f, clean;
        setup(&f, &job);
        setup(&clean, &job);
        init(&f);
        init(&clean);
        for (int k = 0; k < 2; k++)
            push(&f, orders[o][k], 0, 10);
        for (int place = 0; place < N_ELEMS; place += N_ELEMS - 1) {
            fill(values, orders[o][2], 0);
            values[place] = NAN;
            assert_int_equal(send_values(&f, PIECE_PUSH, orders[o][2], 0, 10, values),
                             PIECE_REFUSED);
        }
        push(&f, orders[o][2], 0, 10);
        for (int m = 0; m < N_MEMBERS; m++)
            push(&clean, m, 0, 10);
        read_version(&f, 1, got);
        read_version(&clean, 1, want);
        assert_memory_equal(got, want, sizeof got);
        teardown(&f);
        teardown(&clean);
    }
}

/* The version is the mean of the contributions that are not skipped, added in member order,
 * whatever the order of arrival and whichever members skip. */
static void skipped_contributions_add_nothing(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int kind = 0; kind < OPTIM_N_KINDS; kind++)
        for (unsigned skip = 0; skip < 8; skip++) {
            float old[N_ELEMS], want[N_ELEMS], sum[N_ELEMS], slots[2 * N_ELEMS] = {0};
            struct net_job job = job_of(JOB_SYNC, (enum optim_kind)kind, N_MEMBERS);
            double total = 0;
            for (int m = 0; m < N_MEMBERS; m++)
                for (int i = 0; !(skip >> m & 1) && i < N_ELEMS; i++) {
                    volatile float product = (float)(10 + m) * store_rig_number(m, 0, i);
                    sum[i] = total > 0 ? sum[i] + product : product;
                    if (i == N_ELEMS - 1)
                        total += 10 + m;
                }
            fill(old, 77, 0);
            memcpy(want, old, sizeof want);
            if (total > 0)
                optim_apply(&job.optim, 1, N_ELEMS, sum, (float)(1 / total), old, slots, want);
            for (int o = 0; o < 6; o++) {
                struct fixture f;
                float got[N_ELEMS];
                setup(&f, &job);
                init(&f);
                for (int k = 0; k < N_MEMBERS; k++) {
                    int m = orders[o][k];
                    push(&f, m, 0, skip >> m & 1 ? 0 : (float)(10 + m));
                }
                assert_int_equal(f.n_answers, N_MEMBERS);
                read_version(&f, 1, got);
                assert_memory_equal(got, want, sizeof got);
                for (int m = 0; m < N_MEMBERS; m++) {
                    struct late_total t;
                    stragglers_total(store_stragglers(f.store), m, &t);
                    assert_int_equal(t.skipped, skip >> m & 1);
                }
                teardown(&f);
            }
        }
}

/* A step that all members skip leaves the slots unchanged, whichever buffers are reused: only the
 * step's number changes. */
static void step_that_all_skip_changes_nothing(void **state)
{
    for (int mode = 0; mode < JOB_N_MODES; mode++)
        for (int d = 0; dtype_block((enum dtype)d) == 1; d++) {
            struct fixture f;
            float before[N_ELEMS], after[N_ELEMS], want[N_ELEMS], g[N_ELEMS], slots[N_ELEMS] = {0};
            struct net_job job = job_of((enum job_sync_mode)mode, OPTIM_MOMENTUM, 1);
            job.version_dtype = (enum dtype)d;
            setup(&f, &job);
            init(&f);
            fill(want, 77, 0);
            for (int64_t step = 0; step < 9; step++) {
                int skips = step % 3 != 0;
                push(&f, 0, step, skips ? 0 : 5);
                read_version(&f, step + 1, after);
                if (skips)
                    assert_memory_equal(after, before, sizeof after);
                memcpy(before, after, sizeof before);
                for (int i = 0; i < N_ELEMS; i++) {
                    volatile float weighted =
                        (mode == JOB_SYNC ? 5.0f : 1.0f) * store_rig_number(0, step, i);
                    g[i] = weighted;
                }
                if (!skips)
                    optim_apply(&job.optim, (uint64_t)step + 1, N_ELEMS, g,
                                mode == JOB_SYNC ? 0.2f : 1.0f, want, slots, want);
                assert_memory_equal(after, want, sizeof after);
            }
            teardown(&f);
        }
}

/* A skipped contribution counts once, like any other, and has no payload. */
static void skipped_contribution_counts_once(void **state)
{
    struct net_job job = job_of(JOB_SYNC, OPTIM_SGD, N_MEMBERS);
    struct fixture f;
    float values[N_ELEMS];
    struct late_total t;
    setup(&f, &job);
    init(&f);
    fill(values, 0, 0);
    assert_int_equal(send_values(&f, PIECE_PUSH, 0, 0, 0, values), PIECE_REFUSED);
    assert_int_equal(send_values(&f, PIECE_PUSH, 0, 0, 5, NULL), PIECE_REFUSED);
    assert_int_equal(send_values(&f, PIECE_PUSH, 0, 0, -1, values), PIECE_REFUSED);
    assert_int_equal(send_values(&f, PIECE_PUSH, 0, 0, NAN, values), PIECE_REFUSED);
    assert_int_equal(push(&f, 0, 0, 0), PIECE_NONE);
    assert_int_equal(push(&f, 0, 0, 0), PIECE_NONE); /* a repeat */
    push(&f, 1, 0, 3);
    push(&f, 2, 0, 3);
    assert_int_equal(push(&f, 0, 0, 0), PIECE_DUPLICATE);
    stragglers_total(store_stragglers(f.store), 0, &t);
    assert_int_equal(t.skipped, 1);
    assert_int_equal(store_step(f.store), 1);
    teardown(&f);
}

/* Compares both functions with the result of encoding and decoding each number. Then tests every
 * place of a bad element in arrays of many lengths. */
static void first_bad_element_is_found(void **state)
{
    float values[300];
    uint8_t raw[sizeof values + 1];
    uint64_t key = rng_key(5, RNG_TEST, 0);
    for (int d = 0; d < DTYPE_N_KINDS; d++)
        for (uint64_t i = 0; i < 200000; i++) {
            uint32_t bits = (uint32_t)rng_below(key, i, (uint64_t)1 << 32);
            if (i % 2) /* near the format's limits */
                bits = (bits & 0x800fffffu) | (d == DTYPE_F16 ? 0x47700000u : 0x7f700000u);
            float x, back;
            uint8_t wire[8];
            memcpy(&x, &bits, sizeof x);
            assert_true(finite_all(&x, 1) == (isfinite(x) != 0));
            dtype_encode((enum dtype)d, wire, &x, 1);
            dtype_decode((enum dtype)d, &back, wire, 1);
            size_t misfit = finite_first_misfit((enum dtype)d, &x, 1);
            if (dtype_block((enum dtype)d) == 1 ||
                !isfinite(back)) /* blocks: x may be near the limit */
                assert_int_equal(misfit, isfinite(back) ? 1 : 0);
            assert_int_equal(finite_first_bad((enum dtype)d, wire, 1), isfinite(back) ? 1 : 0);
        }
    for (int d = 0; d < DTYPE_N_KINDS && dtype_block((enum dtype)d) == 1; d++)
        for (size_t n = 0; n < 300; n += 1 + n / 8)
            for (size_t at = 0; at <= n; at++) {
                for (size_t i = 0; i < n; i++)
                    values[i] = i == at ? -INFINITY : -1.5f;
                dtype_encode((enum dtype)d, raw + 1, values, n);
                assert_int_equal(finite_first_bad((enum dtype)d, raw + 1, n), at);
                assert_int_equal(finite_first_misfit((enum dtype)d, values, n), at);
                assert_true(finite_all(values, n) == (at == n));
            }
}

/* Tests magnitudes above a limit and equal to it, in each format. */
static void first_element_above_the_limit_is_found(void **state)
{
    static const float limits[] = {1.0f, 3.0e33f, 65504.0f, 1.00001f, 2.5e-3f};
    for (int d = 0; d < DTYPE_N_KINDS && dtype_block((enum dtype)d) == 1; d++)
        for (size_t l = 0; l < sizeof limits / sizeof *limits; l++)
            for (int i = -3; i <= 3; i++) {
                float x = -limits[l] * (1 + (float)i * 0.01f), back, values[9] = {0};
                uint8_t wire[sizeof values];
                values[7] = x;
                dtype_encode((enum dtype)d, wire, values, 9);
                dtype_decode((enum dtype)d, &back, wire + dtype_bytes((enum dtype)d, 7), 1);
                assert_int_equal(finite_first_above((enum dtype)d, wire, 9, limits[l]),
                                 fabsf(back) <= limits[l] ? 9 : 7);
            }
}

/* A checkpoint from which training cannot continue is not written, since it would have precedence
 * over a useful one. */
static void no_checkpoint_of_infinite_parameters(void **state)
{
    static float value[N_ELEMS], slots[2 * N_ELEMS];
    float *const at[] = {&value[3], &value[N_W], &slots[N_W - 1], &slots[N_ELEMS + N_W + 5]};
    const char *const what[] = {": parameter 'fc/weights' is", ": parameter 'fc/biases' is",
                                "the optimizer's state of parameter 'fc/weights' is",
                                "the optimizer's state of parameter 'fc/biases' is"};
    struct fixture f;
    struct net_job job = {.n_workers = 1, .train_steps = 10, .seed = 3};
    struct safetensors_written written;
    optim_defaults(OPTIM_ADAM, &job.optim);
    setup(&f, &job);
    const struct checkpoint_shard_chunk chunk = {.value = value, .slots = slots};
    const struct checkpoint_shard_file file = {
        .folder = "/nowhere", .step = 5, .n_servers = 1, .job = &job, .chunks = f.chunks};
    for (int i = 0; i < 4; i++) {
        *at[i] = i % 2 ? INFINITY : NAN;
        assert_int_equal(CAPTURE(checkpoint_shard_file_write(&file, &chunk, 1, &written)),
                         ST_INVALID);
        assert_non_null(strstr(capture_text, what[i]));
        *at[i] = 0;
    }
    teardown(&f);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_INFO);
    return RUN_TESTS(contribution_that_is_not_finite_is_refused,
                     contribution_too_large_for_the_sum_is_refused,
                     largest_accepted_values_have_a_finite_mean, infinite_update_is_logged,
                     infinite_update_is_logged_once, last_contribution_is_refused,
                     skipped_contributions_add_nothing, step_that_all_skip_changes_nothing,
                     skipped_contribution_counts_once, first_bad_element_is_found,
                     first_element_above_the_limit_is_found, no_checkpoint_of_infinite_parameters);
}
