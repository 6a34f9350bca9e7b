/* tests/worker_observer_test.c - the calls of the training loop to an observer, over a fake
 * backend. */
#include "tests/check.h"
#include "tests/trainer_rig.h"
#include <math.h>
#include <string.h>

enum { STEPS = 15, BATCH = 4 }; /* same as in the rig */

static struct {
    int n_starts, n_steps, n_params, n_gradients, n_last;
    int64_t wanted;             /* interval of reports, in steps */
    double value[STEPS + 1];    /* value of the first element */
    double gradient[STEPS + 1]; /* gradient of the first element */
} seen;

static void on_start(void *ctx, const struct net_start *start)
{
    assert_ptr_equal(ctx, &seen);
    assert_int_equal(start->step, 0);
    seen.n_starts++;
}

static void on_step(void *ctx, const struct trainer_figures *f)
{
    seen.n_steps++;
    assert_int_equal(f->number, seen.n_steps);
    assert_int_equal(f->global_step, seen.n_steps);
    assert_int_equal(f->images, seen.n_steps * BATCH);
    assert_int_equal(f->is_last, seen.n_steps == STEPS);
    assert_true(f->accuracy >= 0 && f->accuracy <= 1 && f->wait_ns >= 0);
}

static int on_wants(void *ctx, int64_t number, int is_last)
{
    seen.n_last += is_last;
    return is_last || number % seen.wanted == 0;
}

static void on_values(void *ctx, const struct trainer_values *v)
{
    assert_int_equal(v->param->n_elems, N_ELEMS);
    assert_null(v->f16);
    assert_true(v->global_step % seen.wanted == 0);
    if (v->is_gradient) {
        seen.n_gradients++;
        seen.gradient[v->global_step] = (double)v->f[0];
    } else {
        seen.n_params++;
        seen.value[v->global_step] = (double)v->f[0];
    }
}

static void on_evaluated(void *ctx, int64_t step, const char *what, double accuracy, double loss)
{
}

static int64_t on_next(void *ctx, int64_t number)
{
    return number + 1;
}

/* Each step is reported once. Every fifth step's report has parameters and gradient, which match:
 * the rule of the rig is p -= rate * g. */
static void values_are_those_of_their_step(void **state)
{
    static const struct trainer_observer observer = {&seen,     on_start, on_step, on_wants,
                                                     on_values, on_next,  NULL,    on_evaluated};
    for (int n_towers = 1; n_towers <= 3; n_towers += 2)
        for (int every = 1; every <= 5; every += 4) {
            struct rig r;
            struct trainer_result result;
            rig_make(&r, 0, 1, n_towers, BATCH);
            trainer_destroy(r.trainer);
            memset(&seen, 0, sizeof seen);
            seen.wanted = every;
            r.cfg.observer = &observer;
            double rate = (double)r.updates.ops->rule(r.updates.ctx)->learning_rate;
            assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
            assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
            assert_int_equal(seen.n_starts, 1);
            assert_int_equal(seen.n_steps, STEPS);
            assert_int_equal(seen.n_gradients, STEPS / every);
            assert_int_equal(seen.n_params, STEPS / every + 1);
            assert_int_equal(seen.n_last, 1);
            for (int s = 0; s < STEPS && every == 1; s++)
                assert_float_equal(seen.value[s] - rate * seen.gradient[s], seen.value[s + 1],
                                   1e-3);
            assert_true(fabs(seen.gradient[0]) > 0);
            assert_true(seen.value[STEPS] == (double)r.params[0]);
            rig_free(&r);
        }
}

int main(void)
{
    return RUN_TESTS(values_are_those_of_their_step);
}
