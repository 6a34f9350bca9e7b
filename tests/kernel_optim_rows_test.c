/* tests/kernel_optim_rows_test.c - compares the optimizers for rows with plain double-precision
 * ones, and the sums of contributions inside them with the loops for sums. */
#include "base/log.h"
#include "base/rng.h"
#include "kernels/vector/optim_rows.h"
#include "kernels/vector/vector.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 6, MAX_DIM = OPTIM_ROWS_MAX_DIM };
static const size_t dims[] = {1, 3, 16, 17, 64, MAX_DIM};
/* versions that have a gradient for the row; the row does not change in those between */
static const uint64_t versions[STEPS] = {1, 2, 5, 6, 40, 1000};

struct exact { /* a row in double precision */
    double p[MAX_DIM], a[MAX_DIM], b[MAX_DIM];
};

static float number(uint64_t stream, size_t i)
{
    return rng_uniform(rng_key(stream, RNG_TEST, 0), i) * 2 - 1;
}

static double mean_of_squares(const double *g, size_t dim)
{
    double sum = 0;
    for (size_t i = 0; i < dim; i++)
        sum += g[i] * g[i];
    return sum / (double)dim;
}

/* McMahan et al. 2013, algorithm 1, for one coordinate: z is a, n is b. */
static double reference_ftrl(const struct optim_rows_config *c, double g, double p, double *z,
                             double *n)
{
    double alpha = (double)c->common.learning_rate, beta = (double)c->ftrl_beta;
    double l1 = (double)c->l1, l2 = (double)c->l2;
    double sigma = (sqrt(*n + g * g) - sqrt(*n)) / alpha;
    *z += g - sigma * p;
    *n += g * g;
    if (fabs(*z) <= l1)
        return 0;
    return -(*z - (*z > 0 ? l1 : -l1)) / ((beta + sqrt(*n)) / alpha + l2);
}

/* The update of PyTorch's _functional.sparse_adam for one element. */
static double reference_adam(const struct optim_config *c, uint64_t step, double g, double p,
                             double *m, double *v)
{
    double b1 = (double)c->beta1, b2 = (double)c->beta2;
    *m += (1 - b1) * (g - *m);
    *v += (1 - b2) * (g * g - *v);
    double correction1 = 1 - pow(b1, (double)step), correction2 = 1 - pow(b2, (double)step);
    double size = (double)c->learning_rate * sqrt(correction2) / correction1;
    return p - size * (*m / (sqrt(*v) + (double)c->epsilon));
}

static void reference(const struct optim_rows_config *c, uint64_t step, size_t dim, const double *g,
                      struct exact *row)
{
    double lr = (double)c->common.learning_rate, eps = (double)c->common.epsilon;
    if (c->kind == OPTIM_ROWS_ROWWISE_ADAGRAD)
        row->a[0] += mean_of_squares(g, dim);
    for (size_t i = 0; i < dim; i++) {
        double *p = &row->p[i], *a = &row->a[i], *b = &row->b[i];
        switch (c->kind) {
        case OPTIM_ROWS_MOMENTUM:
            *a = (double)c->common.momentum * *a + g[i];
            *p -= lr * *a;
            break;
        case OPTIM_ROWS_ADAGRAD:
            *a += g[i] * g[i];
            *p -= lr * g[i] / (sqrt(*a) + eps);
            break;
        case OPTIM_ROWS_ROWWISE_ADAGRAD:
            *p -= lr * g[i] / (sqrt(row->a[0]) + eps);
            break;
        case OPTIM_ROWS_ADAM:
            *p = reference_adam(&c->common, step, g[i], *p, a, b);
            break;
        case OPTIM_ROWS_FTRL:
            *p = reference_ftrl(c, g[i], *p, a, b);
            break;
        default:
            *p -= lr * g[i];
        }
    }
}

static void compare(const struct optim_rows_config *c, const char *name, size_t dim,
                    const float *got, const double *expected)
{
    for (size_t i = 0; i < dim; i++)
        if (!(fabs((double)got[i] - expected[i]) <= 4e-6 * (1 + fabs(expected[i]))))
            fail_msg("%s, dim %zu, %s %zu: %.9g, not %.9g", optim_rows_name(c->kind), dim, name, i,
                     (double)got[i], expected[i]);
}

/* Trains one row with three contributions in each step. */
static void check(const struct optim_rows_config *c, size_t dim)
{
    static struct exact row;
    static double g[MAX_DIM];
    float p[MAX_DIM + 1], slots[2 * MAX_DIM + 1] = {0}, sum[MAX_DIM], last[MAX_DIM];
    size_t n_slots = optim_rows_slots(c->kind, dim);
    const float guard = 12345.0f, scale = 1.0f / 3.0f;
    memset(&row, 0, sizeof row);
    p[dim] = slots[n_slots] = guard;
    for (size_t i = 0; i < dim; i++)
        row.p[i] = (double)(p[i] = c->kind == OPTIM_ROWS_FTRL ? 0.0f : number(1, i));
    for (int s = 0; s < STEPS; s++) {
        struct optim_rows_step step;
        for (size_t i = 0; i < dim; i++) {
            sum[i] = 4.0f * number(10 + versions[s], i);
            last[i] = number(2000 + versions[s], i);
            g[i] = ((double)sum[i] + 0.75 * (double)last[i]) * (double)scale;
            if (c->common.clip_value > 0)
                g[i] =
                    fmax(fmin(g[i], (double)c->common.clip_value), -(double)c->common.clip_value);
        }
        optim_rows_begin(c, versions[s], 1, &step);
        optim_rows_run(&step, &(struct optim_run){.n = dim,
                                                  .sum = last,
                                                  .weight = 0.75f,
                                                  .scale = scale,
                                                  .others = sum,
                                                  .old = p,
                                                  .slots = slots,
                                                  .new_slots = slots,
                                                  .slot_stride = dim,
                                                  .new_ = p});
        reference(c, versions[s], dim, g, &row);
        compare(c, "value", dim, p, row.p);
    }
    compare(c, "slot", n_slots < dim ? n_slots : dim, slots, row.a);
    if (n_slots > dim)
        compare(c, "second slot", dim, slots + dim, row.b);
    assert_true(p[dim] == guard);
    assert_true(slots[n_slots] == guard);
}

static void test_updates_match_the_formulas(void **state)
{
    for (int kind = 0; kind < OPTIM_ROWS_N_KINDS; kind++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
            struct optim_rows_config c;
            optim_rows_defaults((enum optim_rows_kind)kind, &c);
            check(&c, dims[d]);
            c.common.clip_value = 0.4f;
            check(&c, dims[d]);
            /* an epsilon that matters, to distinguish the two forms of Adam */
            c.common.epsilon = 0.05f;
            c.l1 = 0.3f;
            c.l2 = 0.2f;
            c.ftrl_beta = 0.5f;
            check(&c, dims[d]);
        }
}

static void test_ftrl_sets_small_sums_to_zero(void **state)
{
    struct optim_rows_config c;
    struct optim_rows_step step;
    float p[2] = {0}, slots[4] = {0}, g[2] = {0.5f, -2.0f};
    optim_rows_defaults(OPTIM_ROWS_FTRL, &c);
    c.l1 = 1;
    optim_rows_begin(&c, 1, 1, &step);
    optim_rows_run(&step, &(struct optim_run){.n = 2,
                                              .sum = g,
                                              .weight = 1,
                                              .scale = 1,
                                              .old = p,
                                              .slots = slots,
                                              .new_slots = slots,
                                              .slot_stride = 2,
                                              .new_ = p});
    assert_true(p[0] == 0);
    assert_true(p[1] > 0);
    assert_true(slots[0] == 0.5f);
}

/* A gradient inside the call has the bits of the same sum by the loops for sums. */
static void test_sum_inside_has_the_same_bits(void **state)
{
    enum { DIM = 19 };
    for (int kind = 0; kind < OPTIM_ROWS_N_KINDS; kind++) {
        struct optim_rows_config c;
        struct optim_rows_step step;
        float p[2][DIM], slots[2][2 * DIM] = {{0}}, sum[DIM], last[DIM], whole[DIM];
        optim_rows_defaults((enum optim_rows_kind)kind, &c);
        optim_rows_begin(&c, 3, 1, &step);
        for (size_t i = 0; i < DIM; i++) {
            p[0][i] = p[1][i] = number(1, i);
            sum[i] = number(2, i);
            last[i] = number(3, i);
        }
        vector_sum_scaled(whole, sum, last, 0.7f, DIM);
        for (int k = 0; k < 2; k++)
            optim_rows_run(&step, &(struct optim_run){.n = DIM,
                                                      .sum = k ? whole : last,
                                                      .weight = k ? 1.0f : 0.7f,
                                                      .scale = 0.37f,
                                                      .others = k ? NULL : sum,
                                                      .old = p[k],
                                                      .slots = slots[k],
                                                      .new_slots = slots[k],
                                                      .slot_stride = DIM,
                                                      .new_ = p[k]});
        assert_memory_equal(p[0], p[1], sizeof p[0]);
        assert_memory_equal(slots[0], slots[1], sizeof slots[0]);
    }
}

/* A factor of 1/2 has the bits of half the learning rate. */
static void test_a_factor_multiplies_the_learning_rate(void **state)
{
    for (int kind = 0; kind < OPTIM_ROWS_FTRL; kind++) {
        struct optim_rows_config c;
        struct optim_rows_step half, halved, whole;
        optim_rows_defaults((enum optim_rows_kind)kind, &c);
        optim_rows_begin(&c, 3, 1, &whole);
        optim_rows_begin(&c, 3, 0.5f, &half);
        c.common.learning_rate /= 2;
        optim_rows_begin(&c, 3, 1, &halved);
        assert_true(half.common.rate == halved.common.rate);
        assert_true(half.common.rate < whole.common.rate);
    }
}

static void test_config_refuses_settings_that_need_all_rows(void **state)
{
    struct optim_rows_config good, c;
    optim_rows_defaults(OPTIM_ROWS_ADAM, &good);
    assert_int_equal(optim_rows_check(&good, "table 'a'"), ST_OK);
#define REFUSED(field, value)                                                                      \
    c = good;                                                                                      \
    c.field = value;                                                                               \
    assert_int_equal(optim_rows_check(&c, "table 'a'"), ST_INVALID)
    REFUSED(kind, OPTIM_ROWS_N_KINDS);
    REFUSED(kind, OPTIM_ROWS_SGD); /* its loop is not that of adam */
    REFUSED(common.weight_decay, 0.1f);
    REFUSED(common.ema_decay, 0.9f);
    REFUSED(common.clip_norm, 1);
    REFUSED(common.learning_rate, 0);
    REFUSED(l1, -1);
    REFUSED(l2, NAN);
    REFUSED(ftrl_beta, -0.5f);
    c = good;
    c.common.beta2 = 1; /* the table is named by each of the two checks */
    assert_int_equal(CAPTURE(optim_rows_check(&c, "table 'a'")), ST_INVALID);
    assert_non_null(strstr(capture_text, "table 'a': beta2 1 is not between 0 and 1"));
    c = good;
    c.l1 = -1;
    assert_int_equal(CAPTURE(optim_rows_check(&c, "table 'a'")), ST_INVALID);
    assert_non_null(strstr(capture_text, "table 'a': l1 -1 is not 0 or above"));
    optim_rows_defaults(OPTIM_ROWS_FTRL, &good);
    assert_int_equal(optim_rows_check(&good, "table 'a'"), ST_OK);
    REFUSED(common.warmup_steps, 10);
    good.common.total_steps = 100;
    REFUSED(common.schedule, SCHEDULE_COSINE);
}

int main(void)
{
    return RUN_TESTS(test_updates_match_the_formulas, test_ftrl_sets_small_sums_to_zero,
                     test_sum_inside_has_the_same_bits, test_a_factor_multiplies_the_learning_rate,
                     test_config_refuses_settings_that_need_all_rows);
}
