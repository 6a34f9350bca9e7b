/* tests/kernel_optim_test.c - compares optimizers and float loops with plain double-precision
 * ones. */
#include "base/rng.h"
#include "kernels/vector/optim.h"
#include "kernels/vector/vector.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5 };
static const size_t sizes[] = {0, 1, 7, 1000003};

static float number(uint64_t stream, size_t i)
{
    return rng_uniform(rng_key(stream, RNG_TEST, 0), i) * 2 - 1;
}

/* Computes the factor of PyTorch's OneCycleLR with its defaults; `start` is pct_start. If the rise
 * has only one step, PyTorch divides by 0: here the first step has the full rate. */
static double reference_one_cycle(double at, double total, double start, int is_linear)
{
    double initial = 1.0 / 25, lowest = initial / 1e4, top = start * total - 1, end = total - 1;
    int is_first = at <= top && top != 0;
    double from = is_first ? initial : 1, to = is_first ? 1 : lowest;
    double part = is_first ? at / top : top < end ? (at - top) / (end - top) : 0;
    return is_linear ? (to - from) * part + from : to + (from - to) / 2 * (cos(M_PI * part) + 1);
}

/* Computes the rate of optim.h with libm. */
static double reference_rate(const struct optim_config *c, uint64_t step)
{
    double b = (double)(step - 1), warm = (double)c->warmup_steps, total = (double)c->total_steps;
    double at = total > 0 && b >= total ? total - 1 : b, base = (double)c->learning_rate;
    double part = at > warm && total > warm ? (at - warm) / (total - warm) : 0, falls = 0;
    for (int i = 0; i < c->n_boundaries; i++)
        falls += at >= (double)c->boundary[i];
    if (c->schedule >= SCHEDULE_ONE_CYCLE && total > 0)
        return base * reference_one_cycle(at, total, warm > 0 ? warm / total : 0.3,
                                          c->schedule == SCHEDULE_ONE_CYCLE_LINEAR);
    double course[SCHEDULE_N_KINDS] = {
        1,
        1 - part,
        (1 + cos(M_PI * part)) / 2,
        pow((double)c->lr_decay, falls),
        c->lr_decay_steps ? pow((double)c->lr_decay, at / (double)c->lr_decay_steps) : 1,
        1,
        1};
    return base * course[c->schedule] * (b < warm ? (b + 1) / warm : 1);
}

/* Computes one element through one step, in doubles, as torch.optim's documentation defines it. */
static double reference(const struct optim_config *c, int step, double g, double p, double *a,
                        double *b)
{
    double lr = reference_rate(c, (uint64_t)step), eps = (double)c->epsilon;
    double b1 = (double)c->beta1, b2 = (double)c->beta2, d = (double)c->decay;
    double mom = (double)c->momentum, wd = (double)c->weight_decay;
    if (c->clip_value > 0)
        g = fmin(fmax(g, -(double)c->clip_value), (double)c->clip_value);
    if (c->kind == OPTIM_ADAMW)
        p -= lr * wd * p;
    else
        g += wd * p;
    switch (c->kind) {
    case OPTIM_MOMENTUM:
        *a = mom * *a + g;
        return p - lr * *a;
    case OPTIM_NESTEROV:
        *a = mom * *a + g;
        return p - lr * (g + mom * *a);
    case OPTIM_ADAGRAD:
        *a += g * g;
        return p - lr * g / (sqrt(*a) + eps);
    case OPTIM_RMSPROP:
        *a = d * *a + (1 - d) * g * g;
        if (mom == 0)
            return p - lr * g / (sqrt(*a) + eps);
        *b = mom * *b + g / (sqrt(*a) + eps);
        return p - lr * *b;
    case OPTIM_ADAM:
    case OPTIM_ADAMW:
        *a = b1 * *a + (1 - b1) * g;
        *b = b2 * *b + (1 - b2) * g * g;
        return p - lr * (*a / (1 - pow(b1, step))) / (sqrt(*b / (1 - pow(b2, step))) + eps);
    default:
        return p - lr * g;
    }
}

static void check(const struct optim_config *cfg, size_t n)
{
    float *old = malloc((n + 1) * sizeof *old), *sum = malloc((n + 1) * sizeof *sum);
    float *slots = calloc(3 * n + 1, sizeof *slots), *new_ = malloc((n + 1) * sizeof *new_);
    double *p = malloc((n + 1) * sizeof *p), *a = calloc(n + 1, sizeof *a);
    double *b = calloc(n + 1, sizeof *b), *e = calloc(n + 1, sizeof *e);
    double decay = (double)cfg->ema_decay;
    size_t ema = decay > 0 ? ((size_t)optim_n_slots(cfg) - 1) * n : 0;
    const float guard = 12345.0f;
    slots[(size_t)optim_n_slots(cfg) * n] = new_[n] = guard;
    for (size_t i = 0; i < n; i++)
        p[i] = (double)(old[i] = number(1, i));
    if (decay > 0) /* a first value that the average must forget at once */
        vector_copy(slots + ema, old, n);
    for (int step = 1; step <= STEPS; step++) {
        for (size_t i = 0; i < n; i++)
            sum[i] = 3.0f * number((uint64_t)(10 + step), i);
        /* odd steps write to another array, even steps in place */
        float *to = step % 2 ? new_ : old;
        optim_apply(cfg, (uint64_t)step, n, sum, 1.0f / 3.0f, old, slots, to);
        if (to != old)
            memcpy(old, to, n * sizeof *old);
        for (size_t i = 0; i < n; i++) {
            double g = (double)sum[i] * (double)(1.0f / 3.0f);
            p[i] = reference(cfg, step, g, p[i], &a[i], &b[i]);
            if (fabs(p[i] - (double)old[i]) > 2e-6 * (1 + fabs(p[i])))
                fail_msg("%s, n %zu, step %d, element %zu: %.9g, not %.9g", optim_name(cfg->kind),
                         n, step, i, (double)old[i], p[i]);
            e[i] = step > 1 ? decay * e[i] + (1 - decay) * p[i] : p[i];
            if (decay > 0 && fabs(e[i] - (double)slots[ema + i]) > 2e-6 * (1 + fabs(e[i])))
                fail_msg("%s, average, n %zu, step %d, element %zu: %.9g, not %.9g",
                         optim_name(cfg->kind), n, step, i, (double)slots[ema + i], e[i]);
        }
    }
    assert_true(slots[(size_t)optim_n_slots(cfg) * n] == guard);
    assert_true(new_[n] == guard);
    free(old);
    free(sum);
    free(slots);
    free(new_);
    free(p);
    free(a);
    free(b);
    free(e);
}

static void test_optimizers(void **state)
{
    for (int kind = 0; kind < OPTIM_N_KINDS; kind++) {
        struct optim_config cfg;
        optim_defaults((enum optim_kind)kind, &cfg);
        assert_int_equal(optim_check(&cfg), ST_OK);
        cfg.epsilon = 1e-3f; /* without it tiny gradients make the reference itself unstable */
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check(&cfg, sizes[i]);
        cfg.weight_decay = 0.1f;
        if (kind == OPTIM_RMSPROP)
            cfg.momentum = 0.9f;
        check(&cfg, 1000);
        cfg.clip_value = 0.2f;
        check(&cfg, 5000); /* more than one block */
        cfg.clip_value = 0;
        cfg.ema_decay = 0.9f;
        check(&cfg, 1000);
        cfg.ema_decay = 0;
        cfg.total_steps = 10;
        for (int s = SCHEDULE_LINEAR; s < SCHEDULE_N_KINDS; s++) {
            cfg.schedule = (enum optim_schedule)s;
            check(&cfg, 100);
        }
    }
}

/* Trains some elements with factors of rate and decay, and compares them with the reference. */
static void check_factors(const struct optim_config *cfg, const struct optim_factors *by)
{
    enum { N = 100 };
    float value[N], slots[2 * N] = {0}, sum[N];
    double p[N], a[N] = {0}, b[N] = {0};
    struct optim_config scaled = *cfg;
    scaled.learning_rate *= by->rate;
    scaled.weight_decay *= by->decay;
    for (size_t i = 0; i < N; i++)
        p[i] = (double)(value[i] = number(1, i));
    for (int step = 1; step <= STEPS; step++) {
        struct optim_step scalars;
        for (size_t i = 0; i < N; i++)
            sum[i] = number((uint64_t)(10 + step), i);
        optim_begin_scaled(cfg, (uint64_t)step, 0, by, &scalars);
        const struct optim_run run = {.n = N,
                                      .sum = sum,
                                      .weight = 1,
                                      .scale = 1,
                                      .old = value,
                                      .slots = slots,
                                      .new_slots = slots,
                                      .slot_stride = N,
                                      .new_ = value};
        optim_run(&scalars, &run);
        for (size_t i = 0; i < N; i++) {
            p[i] = reference(&scaled, step, (double)sum[i], p[i], &a[i], &b[i]);
            if (!(fabs(p[i] - (double)value[i]) <= 2e-6 * (1 + fabs(p[i]))))
                fail_msg("%s, rate x %g, decay x %g, step %d, element %zu: %.9g, not %.9g",
                         optim_name(cfg->kind), (double)by->rate, (double)by->decay, step, i,
                         (double)value[i], p[i]);
        }
    }
}

static void test_factors(void **state)
{
    static const struct optim_factors cases[] = {{1, 0},        {0, 1}, {0.1f, 1},  {1, 10},
                                                 {3.5f, 0.25f}, {0, 0}, {1e-8f, 2}, {1, 1e-8f}};
    for (int kind = 0; kind < OPTIM_N_KINDS; kind++) {
        struct optim_config cfg;
        optim_defaults((enum optim_kind)kind, &cfg);
        cfg.epsilon = 1e-3f;
        cfg.weight_decay = 0.1f;
        cfg.total_steps = 10;
        for (int momentum = 0; momentum < 1 + (kind == OPTIM_RMSPROP); momentum++) {
            cfg.momentum = momentum || kind != OPTIM_RMSPROP ? 0.9f : 0;
            for (int s = SCHEDULE_CONSTANT; s <= SCHEDULE_COSINE; s++) {
                cfg.schedule = (enum optim_schedule)s;
                for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                    check_factors(&cfg, &cases[i]);
            }
        }
    }
}

/* If the rate's factor is 0, no parameter moves. Factors of 1 change no bits of the scalars. */
static void test_factors_at_the_bounds(void **state)
{
    static const float bad[] = {-1, -1e-30f, NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < OPTIM_N_KINDS; kind++) {
        struct optim_config cfg;
        struct optim_step plain, scaled;
        optim_defaults((enum optim_kind)kind, &cfg);
        cfg.weight_decay = 0.1f;
        memset(&plain, 0, sizeof plain);
        memset(&scaled, 0, sizeof scaled);
        optim_begin_since(&cfg, 7, 2, &plain);
        optim_begin_scaled(&cfg, 7, 2, &(struct optim_factors){1, 1}, &scaled);
        assert_memory_equal(&plain, &scaled, sizeof plain);
        optim_begin_scaled(&cfg, 7, 2, &(struct optim_factors){0, 1}, &scaled);
        assert_true(scaled.rate == 0 && scaled.keep == 1);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(optim_factor_ok(bad[i]));
    assert_true(optim_factor_ok(0) && optim_factor_ok(1) && optim_factor_ok(1e30f));
}

/* A schedule starts at the full rate, never rises, ends above 0 and stays there. */
static void test_schedules(void **state)
{
    struct optim_config cfg;
    optim_defaults(OPTIM_SGD, &cfg);
    cfg.learning_rate = 0.5f;
    cfg.total_steps = 100;
    assert_true(optim_rate(&cfg, 1) == 0.5f && optim_rate(&cfg, 100) == 0.5f);
    for (int s = SCHEDULE_LINEAR; s <= SCHEDULE_COSINE; s++) {
        cfg.schedule = (enum optim_schedule)s;
        assert_true(optim_rate(&cfg, 1) == 0.5f);
        assert_float_equal(optim_rate(&cfg, 51), 0.25f, 1e-6f);
        for (uint64_t step = 2; step <= 100; step++)
            assert_true(optim_rate(&cfg, step) < optim_rate(&cfg, step - 1));
        assert_true(optim_rate(&cfg, 100) > 0);
        assert_true(optim_rate(&cfg, 101) == optim_rate(&cfg, 100));
        assert_true(optim_rate(&cfg, UINT64_MAX) == optim_rate(&cfg, 100));
    }
    cfg.schedule = SCHEDULE_N_KINDS;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
}

/* Each schedule is exact to about a float's last bit, over a long job and with every warm-up. */
static void test_schedules_against_the_reference(void **state)
{
    static const uint64_t warm[] = {0, 1, 7, 1000, 20000, 30000}, totals[] = {0, 1, 20000};
    static const float decays[] = {0.1f, 0.96f, 1.0f, 1e-30f, 0.75f};
    struct optim_config cfg;
    optim_defaults(OPTIM_SGD, &cfg);
    cfg.learning_rate = 0.3f;
    cfg.lr_decay_steps = 777;
    cfg.n_boundaries = 3;
    cfg.boundary[0] = 1;
    cfg.boundary[1] = 500;
    cfg.boundary[2] = 9000;
    for (int s = 0; s < SCHEDULE_N_KINDS; s++)
        for (int k = 0; k < 6 * 3 * 5; k++) {
            cfg.schedule = (enum optim_schedule)s;
            cfg.warmup_steps = warm[k % 6];
            cfg.total_steps = totals[k / 6 % 3];
            cfg.lr_decay = decays[k / 18];
            assert_int_equal(optim_check(&cfg), ST_OK);
            for (uint64_t step = 1; step < 25000; step += 1 + step / 50) {
                double want = reference_rate(&cfg, step), got = (double)optim_rate(&cfg, step);
                if (fabs(got - want) > 1.2e-7 * want + 1e-44)
                    fail_msg("schedule %d, step %d: %.12g, not %.12g", s, (int)step, got, want);
            }
        }
}

static void test_schedules_that_cannot_be(void **state)
{
    struct optim_config cfg;
    optim_defaults(OPTIM_SGD, &cfg);
    cfg.lr_decay = 0;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
    cfg.lr_decay = 1.5f;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
    cfg.lr_decay = NAN;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
    cfg.lr_decay = 0.5f;
    cfg.clip_value = -1;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
    cfg.clip_value = 0;
    cfg.clip_norm = INFINITY;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
    cfg.clip_norm = 0;
    cfg.ema_decay = 1;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
    cfg.ema_decay = 0;
    cfg.n_boundaries = 2;
    cfg.boundary[0] = cfg.boundary[1] = 5;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
    cfg.boundary[1] = UINT64_MAX;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
    cfg.boundary[1] = 6;
    assert_int_equal(optim_check(&cfg), ST_OK);
    cfg.warmup_steps = UINT64_MAX;
    assert_int_equal(optim_check(&cfg), ST_INVALID);
}

/* An element has the same bits whether it is computed alone or as part of an array: vector width,
 * tail and position have no effect. The test runs the machine's widest clone, whose scalar tail is
 * the computation of the default clone. */
static void test_bit_identity(void **state)
{
    enum { N = 1031 };
    static float old[N], sum[N], whole[N], slots[2 * N], one_slots[2], one;
    for (int kind = 0; kind < OPTIM_N_KINDS; kind++) {
        struct optim_config cfg;
        optim_defaults((enum optim_kind)kind, &cfg);
        for (size_t i = 0; i < N; i++) {
            old[i] = number(2, i);
            sum[i] = number(3, i);
            slots[i] = fabsf(number(4, i));
            slots[N + i] = fabsf(number(5, i));
        }
        float before[2 * N];
        memcpy(before, slots, sizeof before);
        optim_apply(&cfg, 9, N, sum, 0.3f, old, slots, whole);
        for (size_t i = 0; i < N; i++) {
            one_slots[0] = before[i];
            one_slots[1] = before[N + i];
            optim_apply(&cfg, 9, 1, sum + i, 0.3f, old + i, one_slots, &one);
            assert_memory_equal(&one, &whole[i], sizeof one);
            if (optim_n_slots(&cfg) > 0)
                assert_memory_equal(&one_slots[0], &slots[i], sizeof one);
            if (optim_n_slots(&cfg) > 1)
                assert_memory_equal(&one_slots[1], &slots[N + i], sizeof one);
        }
    }
}

/* Updates a chunk in runs of any lengths, and writes the new slots to another array: the bits must
 * be those of one call in place. has_others: the runs also sum the gradient. */
static void check_runs(int has_others)
{
    enum { N = 2053 };
    static float old[N], sum[N], whole[N], cut[N], slots[3 * N], from[3 * N], cut_slots[3 * N];
    static float last[N], others[N];
    const float weight = has_others ? 0.7f : 1;
    for (int kind = 0; kind <= OPTIM_N_KINDS; kind++) { /* the last: rmsprop with momentum */
        struct optim_config cfg;
        optim_defaults((enum optim_kind)(kind % OPTIM_N_KINDS), &cfg);
        if (kind == OPTIM_N_KINDS) {
            optim_defaults(OPTIM_RMSPROP, &cfg);
            cfg.momentum = 0.9f;
        }
        cfg.ema_decay = kind % 2 ? 0.9f : 0;
        for (size_t i = 0; i < N; i++) {
            old[i] = number(12, i);
            last[i] = number(13, i);
            others[i] = number(16, i);
            slots[i] = from[i] = cut_slots[i] = fabsf(number(14, i));
            slots[N + i] = from[N + i] = cut_slots[N + i] = fabsf(number(15, i));
            slots[2 * N + i] = from[2 * N + i] = cut_slots[2 * N + i] = number(17, i);
        }
        struct optim_step step;
        vector_copy(sum, last, N);
        if (has_others)
            vector_sum_scaled(sum, others, last, weight, N);
        optim_apply(&cfg, 7, N, sum, 0.3f, old, slots, whole);
        optim_begin(&cfg, 7, &step);
        size_t length = 0;
        for (size_t i = 0; i < N; i += length, length = length % 97 + 1) {
            struct optim_run run = {.n = length < N - i ? length : N - i,
                                    .sum = last + i,
                                    .weight = weight,
                                    .scale = 0.3f,
                                    .others = has_others ? others + i : NULL,
                                    .old = old + i,
                                    .slots = optim_n_slots(&cfg) ? from + i : NULL,
                                    .new_slots = optim_n_slots(&cfg) ? cut_slots + i : NULL,
                                    .slot_stride = N,
                                    .new_ = cut + i};
            optim_run(&step, &run);
        }
        assert_memory_equal(cut, whole, sizeof cut);
        assert_memory_equal(cut_slots, slots, sizeof slots);
    }
}

static void test_runs(void **state)
{
    check_runs(0);
    check_runs(1);
}

static void test_average(void **state)
{
    enum { N = 100 };
    float old[N], sum[N], new_[N];
    for (size_t i = 0; i < N; i++) {
        old[i] = number(6, i);
        sum[i] = number(7, i);
    }
    optim_average(0.9f, N, sum, 0.5f, old, new_);
    for (size_t i = 0; i < N; i++)
        assert_true(fabs((double)new_[i] - (0.9 * (double)old[i] + 0.05 * (double)sum[i])) < 1e-6);
    optim_average(0.0f, N, sum, 1.0f, old, old);
    for (size_t i = 0; i < N; i++)
        assert_true(old[i] == sum[i]);
    /* frozen elements keep their bits for any gradient */
    float kept[N];
    memcpy(kept, old, sizeof kept);
    kept[0] = old[0] = -0.0f;
    sum[0] = INFINITY;
    sum[1] = NAN;
    optim_average(1.0f, N, sum, 1.0f, old, old);
    optim_average(1.0f, N, sum, 1.0f, old, new_);
    assert_memory_equal(old, kept, sizeof kept);
    assert_memory_equal(new_, kept, sizeof kept);
}

/* A member contributes the change by its local steps: the rule then moves the parameters to the
 * member's values. */
static void test_change(void **state)
{
    enum { N = 100 };
    float base[N], now[N], change[N], end[N];
    for (size_t i = 0; i < N; i++) {
        base[i] = number(8, i);
        now[i] = number(9, i);
    }
    optim_change(-1, N, base, now, change);
    for (size_t i = 0; i < N; i++)
        assert_true(change[i] == base[i] - now[i]);
    memcpy(end, base, sizeof end);
    optim_change(-1, N, end, now, end);
    assert_memory_equal(end, change, sizeof end);
    optim_change(0.9f, N, base, now, change);
    memcpy(end, base, sizeof end);
    optim_change(0.9f, N, end, now, end);
    assert_memory_equal(end, change, sizeof end);
    optim_average(0.9f, N, change, 1.0f, base, end);
    for (size_t i = 0; i < N; i++)
        assert_true(fabsf(end[i] - now[i]) < 1e-5f);
}

static void test_config(void **state)
{
    struct optim_config cfg, bad;
    optim_defaults(OPTIM_ADAM, &cfg);
    assert_int_equal(optim_n_slots(&cfg), 2);
    assert_string_equal(optim_name(OPTIM_ADAMW), "adamw");
#define BAD(field, value)                                                                          \
    bad = cfg;                                                                                     \
    bad.field = value;                                                                             \
    assert_int_equal(optim_check(&bad), ST_INVALID)
    BAD(kind, OPTIM_N_KINDS);
    BAD(learning_rate, 0);
    BAD(learning_rate, NAN);
    BAD(learning_rate, INFINITY);
    BAD(momentum, 1.5f);
    BAD(decay, -1);
    BAD(beta1, 1);
    BAD(beta2, NAN);
    BAD(epsilon, 0);
    BAD(weight_decay, -0.5f);
}

static void test_loops(void **state)
{
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        float *src = malloc(n * sizeof *src + 1), *dst = malloc((n + 1) * sizeof *dst);
        char *bytes = malloc(n * sizeof *src + 4);
        for (size_t i = 0; i < n; i++)
            src[i] = number(8, i);
        for (size_t shift = 0; shift < 4; shift++) {
            memcpy(bytes + shift, src, n * sizeof *src);
            dst[n] = 99;
            vector_scale(dst, bytes + shift, 0.7f, n);
            for (size_t i = 0; i < n; i++)
                assert_true(dst[i] == 0.7f * src[i]);
            vector_add_scaled(dst, bytes + shift, 3.0f, n);
            for (size_t i = 0; i < n; i++) {
                volatile float a = 0.7f * src[i], b = 3.0f * src[i];
                assert_true(dst[i] == a + b);
            }
            vector_copy(dst, bytes + shift, n);
            assert_memory_equal(dst, src, n * sizeof *src);
            assert_true(dst[n] == 99);
        }
        free(src);
        free(dst);
        free(bytes);
    }
}

int main(void)
{
    return RUN_TESTS(test_optimizers, test_factors, test_factors_at_the_bounds, test_schedules,
                     test_schedules_against_the_reference, test_schedules_that_cannot_be,
                     test_bit_identity, test_average, test_change, test_config, test_loops,
                     test_runs);
}
