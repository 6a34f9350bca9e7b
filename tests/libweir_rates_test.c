/* tests/libweir_rates_test.c - factors of the learning rate and the weight decay in libweir:
 * without servers, with local steps, and the errors of both calls. */
#include "tests/libweir_rig.h"
#include <math.h>
#include <stdlib.h>

enum { STEPS = 4 };

/* Trains scalars whose gradient is 1 by sgd with rate 0.5 and weight decay 0.1, without servers. */
static void alone_uses_factors(void **state)
{
    static const char *const settings[][2] = {{"optimizer", "sgd"},
                                              {"learning_rate", "0.5"},
                                              {"weight_decay", "0.1"},
                                              {"train_steps", "4"},
                                              {NULL, NULL}};
    static const double factors[][2] = {{1, 1}, {1, 0}, {0.1, 1}, {0, 1}, {2, 3}};
    static const double rates[STEPS] = {1, 0.25, 0, 1};
    enum { N = sizeof factors / sizeof *factors };
    const float first = 2, gradient = 1;
    double want[N];
    struct weir *w = open_with(settings);
    struct weir_step s;
    for (int i = 0; i < N; i++) {
        char name[2] = {(char)('a' + i), 0};
        assert_int_equal(weir_param(w, name, WEIR_FLOAT32, 0, NULL, &first), i);
        if (i > 0)
            assert_int_equal(weir_param_factors(w, i, factors[i][0], factors[i][1]), WEIR_OK);
        want[i] = 2;
    }
    for (int step = 0; weir_next(w, -1, &s) == WEIR_OK; step++) {
        if (rates[step] != 1) /* the factor of the step before does not stay */
            assert_int_equal(weir_step_rate(w, rates[step]), WEIR_OK);
        for (int i = 0; i < N; i++) {
            assert_int_equal(weir_push(w, i, &gradient, 4), WEIR_OK);
            want[i] -= 0.5 * factors[i][0] * rates[step] * (1 + 0.1 * factors[i][1] * want[i]);
        }
    }
    for (int i = 0; i < N; i++)
        if (!(fabs((double)*weir_values(w, i) - want[i]) < 1e-6))
            fail_msg("parameter %d: %.9g, not %.9g", i, (double)*weir_values(w, i), want[i]);
    weir_close(w);
}

static void wrong_factors_are_errors(void **state)
{
    static const double bad[] = {-1, NAN, INFINITY, 1e300};
    static const char *const settings[][2] = {{"optimizer", "sgd"}, {NULL, NULL}};
    const float gradient = 1;
    struct weir *w = open_with(settings);
    struct weir_step s;
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_param(w, (char[]){(char)('a' + i), 0}, WEIR_FLOAT32, 0, NULL, NULL),
                         i);
    assert_error(w, weir_param_factors(w, 3, 1, 1), WEIR_E_INVALID, "no parameter 3");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_error(w, weir_param_factors(w, 0, bad[i], 1), WEIR_E_INVALID,
                     "the factor of the learning rate is ");
        assert_error(w, weir_param_factors(w, 0, 1, bad[i]), WEIR_E_INVALID,
                     "the factor of the weight decay is ");
    }
    assert_int_equal(weir_param_factors(w, 0, 0.5, 0), WEIR_OK);
    assert_error(w, weir_param_average(w, 0, 0.5), WEIR_E_INVALID,
                 "'a' is a statistic, which has no learning rate");
    assert_int_equal(weir_param_average(w, 1, 0.5), WEIR_OK);
    assert_error(w, weir_param_factors(w, 1, 0.5, 1), WEIR_E_INVALID, "'b' is a statistic");
    assert_error(w, weir_step_rate(w, 1), WEIR_E_INVALID, "there is no step");
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    assert_error(w, weir_param_factors(w, 0, 1, 1), WEIR_E_INVALID, "before the first weir_next");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_error(w, weir_step_rate(w, bad[i]), WEIR_E_INVALID,
                     "the factor of the step's learning rate is ");
    assert_int_equal(weir_step_rate(w, 0.5), WEIR_OK);
    assert_int_equal(weir_step_rate(w, 0.25), WEIR_OK); /* the last call counts */
    assert_int_equal(weir_push(w, 0, &gradient, 1), WEIR_OK);
    assert_error(w, weir_step_rate(w, 0.5), WEIR_E_INVALID, "before the first push of step 0");
    weir_close(w);
}

/* The program makes the local steps itself, so that nothing would use the factors. */
static void own_local_steps_refuse_factors(void **state)
{
    static const char *const settings[][2] = {{"ps_hosts", "127.0.0.1:1"},
                                              {"n_workers", "1"},
                                              {"local_steps", "4"},
                                              {"own_local_steps", "true"},
                                              {NULL, NULL}};
    struct weir *w = open_with(settings);
    struct weir_step s;
    assert_int_equal(weir_param(w, "a", WEIR_FLOAT32, 0, NULL, NULL), 0);
    assert_int_equal(weir_param_factors(w, 0, 0.5, 1), WEIR_OK);
    assert_error(w, weir_next(w, -1, &s), WEIR_E_UNSUPPORTED, "own_local_steps: the program makes");
    weir_close(w);
}

static void local_steps_refuse_rate_of_a_step(void **state)
{
    static const char *const settings[][2] = {{"local_steps", "5"}, {NULL, NULL}};
    struct librig r;
    struct weir_step s;
    librig_open(&r, settings);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_OK);
    assert_error(r.w, weir_step_rate(r.w, 0.5), WEIR_E_UNSUPPORTED,
                 "cannot be used with local_steps");
    assert_int_equal(weir_step_rate(r.w, 1), WEIR_OK);
    librig_close(&r);
}

int main(void)
{
    return RUN_TESTS(alone_uses_factors, wrong_factors_are_errors, own_local_steps_refuse_factors,
                     local_steps_refuse_rate_of_a_step);
}
