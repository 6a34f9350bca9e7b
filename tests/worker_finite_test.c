/* tests/worker_finite_test.c - a loss or gradient that is not finite, in the training loop. It ends
 * the run with an error that names it, or its whole contribution is skipped, up to a limit. */
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/trainer_rig.h"
#include <math.h>
#include <string.h>

/* Fault that the backend's results contain. */
static struct {
    int loss_at, gradient_at; /* number of the call of result, backward; from 1 */
    _Atomic int n_results, n_backwards;
    float value;
} bad;

static enum status bad_backward(struct plan *p, int layer)
{
    enum status st = fake_backward(p, layer);
    if (layer == 0 && ++bad.n_backwards == bad.gradient_at)
        p->cfg.grads[0][N_ELEMS - 2] = bad.value;
    return st;
}

static enum status bad_result(struct plan *p, float *loss, int *n_correct)
{
    enum status st = fake_result(p, loss, n_correct);
    if (!p->cfg.inference_only && ++bad.n_results == bad.loss_at)
        *loss = bad.value;
    return st;
}

static void make(struct rig *r, int n_towers, int skip, int64_t most)
{
    static struct backend b;
    b = fake_backend;
    b.backward = bad_backward;
    b.result = bad_result;
    rig_make(r, 3, 4, n_towers, 4);
    trainer_destroy(r->trainer);
    for (int i = 0; i < n_towers; i++)
        r->towers[i].own.backend = &b;
    strcpy(r->layers[0].name, "dense1");
    r->cfg.skip_nonfinite = skip;
    r->cfg.max_nonfinite = most;
    assert_int_equal(trainer_create(&r->cfg, &r->trainer), ST_OK);
    memset(&bad, 0, sizeof bad);
    bad.value = NAN;
}

static void test_a_gradient_ends_the_run(void **state)
{
    for (int n_towers = 1; n_towers <= 2; n_towers++) {
        struct rig r;
        struct trainer_result result;
        make(&r, n_towers, 0, 0);
        bad.gradient_at = 5 * n_towers + 1;
        assert_int_equal(CAPTURE(trainer_run(r.trainer, &r.start, &result)), ST_INVALID);
        assert_non_null(strstr(
            capture_text, "worker 3, step 5: the gradient of 'w' (layer 'dense1') is not finite"));
        assert_null(
            trainer_bad_param(r.trainer)); /* training ended before the parameters changed */
        rig_free(&r);
    }
}

/* A gradient may be finite although the sum of many workers' gradients, each multiplied by its
 * number of samples, is not. */
static void gradient_too_large_to_sum_ends_run(void **state)
{
    for (int fits = 0; fits < 2; fits++) {
        struct rig r;
        struct trainer_result result;
        make(&r, 1, 0, 0);
        bad.gradient_at = 6;
        bad.value = fits ? 1e33f : 1.1e34f; /* 3.4e38 / (4 samples * 2 * 4096) is 1.04e34 */
        assert_int_equal(CAPTURE(trainer_run(r.trainer, &r.start, &result)),
                         fits ? ST_OK : ST_INVALID);
        if (!fits)
            assert_non_null(strstr(
                capture_text,
                "worker 3, step 5: the gradient of 'w' (layer 'dense1') is too large to be added up in fp32: 1.1e+34"));
        rig_free(&r);
    }
}

static void test_a_loss_ends_the_run(void **state)
{
    struct rig r;
    struct trainer_result result;
    make(&r, 1, 0, 0);
    bad.loss_at = 8;
    bad.value = INFINITY;
    assert_int_equal(CAPTURE(trainer_run(r.trainer, &r.start, &result)), ST_INVALID);
    assert_non_null(strstr(capture_text, "worker 3, step 7: the loss of tower 0 is inf"));
    rig_free(&r);
}

static void test_a_parameter_ends_the_run(void **state)
{
    for (int skip = 0; skip < 2; skip++) {
        struct rig r;
        struct trainer_result result;
        make(&r, 1, skip, 100);
        r.params[7] = -INFINITY;
        assert_int_equal(CAPTURE(trainer_run(r.trainer, &r.start, &result)), ST_INVALID);
        assert_non_null(strstr(capture_text, "parameter 'w' is not finite"));
        assert_non_null(strstr(capture_text, "worker 3, step 0"));
        assert_string_equal(trainer_bad_param(r.trainer)->name, "w");
        rig_free(&r);
    }
}

/* Compares the run with a computation in which step 6 changes nothing. */
static void skipped_step_changes_nothing(void **state)
{
    for (int by_loss = 0; by_loss < 2; by_loss++)
        for (int n_towers = 1; n_towers <= 2; n_towers++) {
            struct rig r;
            struct trainer_result result;
            float with[N_ELEMS], p = 0;
            make(&r, n_towers, 1, 1);
            if (by_loss)
                bad.loss_at = 6 * n_towers + 1;
            else
                bad.gradient_at = 6 * n_towers + 1;
            assert_int_equal(CAPTURE(trainer_run(r.trainer, &r.start, &result)), ST_OK);
            assert_int_equal(result.skipped, 1);
            assert_int_equal(result.local_steps, 15);
            assert_non_null(strstr(capture_text, "step 6"));
            assert_non_null(strstr(capture_text, "it counts with weight 0 (1 so far)"));
            memcpy(with, r.params, sizeof with);
            for (int i = 1; i < N_ELEMS; i++)
                assert_true(with[i] == with[0]);
            for (int step = 0; step < 15; step++) { /* the fake's gradient depends on the samples */
                float mean = 0;
                for (int i = 0; i < 4; i++)
                    mean += (float)fake.reads[step * 4 + i] / 4;
                if (step != 6)
                    p -= 0.01f * (mean + p * 0.25f);
            }
            assert_true(fabsf(p - with[0]) < 1e-3f * fabsf(p));
            rig_free(&r);
        }
}

static void too_many_skipped_steps_end_run(void **state)
{
    struct rig r;
    struct trainer_result result;
    make(&r, 1, 1, 2);
    trainer_destroy(r.trainer);
    r.cfg.fault_nonfinite = 4; /* steps 3, 7, 11 */
    assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
    assert_int_equal(CAPTURE(trainer_run(r.trainer, &r.start, &result)), ST_INVALID);
    assert_non_null(strstr(capture_text, "worker 3, step 11"));
    assert_non_null(
        strstr(capture_text, "2 contributions were skipped before, and --max_nonfinite"));
    rig_free(&r);
}

int main(void)
{
    return RUN_TESTS(test_a_gradient_ends_the_run, gradient_too_large_to_sum_ends_run,
                     test_a_loss_ends_the_run, test_a_parameter_ends_the_run,
                     skipped_step_changes_nothing, too_many_skipped_steps_end_run);
}
