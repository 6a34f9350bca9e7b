/* tests/kernel_forms_test.c - tests that the loops of kernels/vector compute the same bits with any
 * set of instructions. The build compiles them for plain x86-64, with AVX2 and with AVX-512
 * (form_<march>.so); each form that this processor supports does the same work as the program's own
 * loops, whose clone the loader chose, and every written byte is compared. A lower clone cannot be
 * forced from outside: GLIBC_TUNABLES does not affect GCC's resolvers. */
#include "base/rng.h"
#include "kernels/vector/digest.h"
#include "kernels/vector/dtype.h"
#include "kernels/vector/optim.h"
#include "kernels/vector/optim_rows.h"
#include "kernels/vector/vector.h"
#include "tests/check.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1039, N_OPTIMIZERS = 2 * OPTIM_N_KINDS, DIM = 1019 };

#define LOOPS(X)                                                                                   \
    X(vector_scale)                                                                                \
    X(vector_add_scaled)                                                                           \
    X(vector_sum_scaled)                                                                           \
    X(vector_clip)                                                                                 \
    X(vector_sum_squares)                                                                          \
    X(vector_digest)                                                                               \
    X(optim_begin)                                                                                 \
    X(optim_run)                                                                                   \
    X(optim_average)                                                                               \
    X(optim_change)                                                                                \
    X(optim_rows_begin)                                                                            \
    X(optim_rows_run)                                                                              \
    X(dtype_encode)                                                                                \
    X(dtype_encode_residual)                                                                       \
    X(dtype_decode)

struct form {
#define FIELD(name) __typeof__(&name) name;
    LOOPS(FIELD)
};

static const struct form own = {
#define OWN(name) .name = name,
    LOOPS(OWN)};

/* All buffers that the loops read and write. */
struct work {
    char unaligned[N * sizeof(float) + 1];
    float sum[N], old[N];
    float scaled[N], added[N], summed[N], averaged[N], clipped[N], change[2][N];
    double squares;
    uint64_t digest;
    float new_[N_OPTIMIZERS][N], slots[N_OPTIMIZERS][2 * N];
    struct optim_step step[N_OPTIMIZERS];
    struct optim_rows_step row_step[OPTIM_ROWS_N_KINDS];
    float row[OPTIM_ROWS_N_KINDS][DIM], row_slots[OPTIM_ROWS_N_KINDS][2 * DIM];
    float any[N]; /* any bits at all */
    uint16_t codes[DTYPE_N_KINDS][2 * N];
    float decoded[DTYPE_N_KINDS][2 * N], residual[DTYPE_N_KINDS][N];
};

/* Returns numbers of all sizes, with subnormals and zeros; no NaN, whose bits are not
 * guaranteed. */
static float number(uint64_t stream, size_t i)
{
    float u = rng_uniform(rng_key(stream, RNG_TEST, 0), i) * 2 - 1;
    if (i % 4)
        return u;
    return i % 64 ? ldexpf(u, (int)(i % 256) - 149) : 0.0f;
}

static void fill(struct work *w)
{
    memset(w, 0, sizeof *w);
    for (size_t i = 0; i < N; i++) {
        float v = number(1, i);
        memcpy(w->unaligned + 1 + i * sizeof v, &v, sizeof v);
        w->sum[i] = number(2, i);
        w->old[i] = number(3, i);
        w->added[i] = number(4, i);
        for (int k = 0; k < N_OPTIMIZERS; k++) {
            w->slots[k][i] = fabsf(number(5, i));
            w->slots[k][N + i] = fabsf(number(6, i));
        }
        uint32_t high = (uint32_t)(rng_uniform(rng_key(7, RNG_TEST, 0), i) * 65536);
        uint32_t bits = high << 16 | (uint32_t)(rng_uniform(rng_key(8, RNG_TEST, 0), i) * 65536);
        if (i % 8 == 0)
            bits |= 0x7f800000u;
        memcpy(&w->any[i], &bits, sizeof bits);
    }
}

static void run_optimizer(const struct form *f, struct work *w, int k)
{
    struct optim_config cfg;
    optim_defaults((enum optim_kind)(k % OPTIM_N_KINDS), &cfg);
    if (k >= OPTIM_N_KINDS) {
        cfg.weight_decay = 0.013f;
        cfg.momentum = 0.7f;
    }
    f->optim_begin(&cfg, 1 + 5 * (uint64_t)k, &w->step[k]);
    struct optim_run run = {.n = N,
                            .sum = w->sum,
                            .weight = 0.75f,
                            .scale = 0.37f,
                            .others = k % 2 ? w->added : NULL,
                            .old = w->old,
                            .slots = w->slots[k],
                            .new_slots = w->slots[k],
                            .slot_stride = N,
                            .new_ = w->new_[k]};
    f->optim_run(&w->step[k], &run);
}

static void run_row_optimizer(const struct form *f, struct work *w, int k)
{
    struct optim_rows_config cfg;
    optim_rows_defaults((enum optim_rows_kind)k, &cfg);
    cfg.l1 = 0.2f;
    memcpy(w->row_slots[k], w->slots[0], DIM * sizeof(float));
    memcpy(w->row_slots[k] + DIM, w->slots[0], DIM * sizeof(float));
    f->optim_rows_begin(&cfg, 7, 1, &w->row_step[k]);
    f->optim_rows_run(&w->row_step[k], &(struct optim_run){.n = DIM,
                                                           .sum = w->sum,
                                                           .weight = 0.75f,
                                                           .scale = 0.37f,
                                                           .old = w->old,
                                                           .slots = w->row_slots[k],
                                                           .new_slots = w->row_slots[k],
                                                           .slot_stride = DIM,
                                                           .new_ = w->row[k]});
}

static void run(const struct form *f, struct work *w)
{
    fill(w);
    f->vector_scale(w->scaled, w->unaligned + 1, 0.7f, N);
    f->vector_add_scaled(w->added, w->unaligned + 1, 0.3f, N);
    f->vector_sum_scaled(w->summed, w->old, w->unaligned + 1, 0.9f, N);
    f->vector_clip(w->clipped, w->unaligned + 1, 0.7f, 0.6f, 0.2f, N);
    w->squares = f->vector_sum_squares(w->old, 0.7f, N);
    w->digest = f->vector_digest(w->any, N);
    f->optim_average(0.99f, N, w->sum, 0.5f, w->old, w->averaged);
    f->optim_change(-1, N, w->old, w->sum, w->change[0]);
    f->optim_change(0.9f, N, w->old, w->sum, w->change[1]);
    for (int k = 0; k < N_OPTIMIZERS; k++)
        run_optimizer(f, w, k);
    for (int k = 0; k < OPTIM_ROWS_N_KINDS; k++)
        run_row_optimizer(f, w, k);
    for (int d = 0; d < DTYPE_N_KINDS; d++) {
        if (dtype_block((enum dtype)d) > 1) { /* infinities and NaNs have no guaranteed bits */
            memcpy(w->residual[d], w->old, sizeof w->old);
            f->dtype_encode_residual((enum dtype)d, w->codes[d], w->sum, w->residual[d], N);
            f->dtype_decode((enum dtype)d, w->decoded[d], w->codes[d], N);
            continue;
        }
        f->dtype_encode((enum dtype)d, w->codes[d], w->any, N);
        /* not an encoder's output: codes of all kinds, with signalling NaNs */
        f->dtype_decode((enum dtype)d, w->decoded[d], w->any, d == DTYPE_F32 ? N : 2 * N);
    }
}

static void compare(const char *march, const struct work *a, const struct work *b)
{
#define SAME(field)                                                                                \
    if (memcmp(&a->field, &b->field, sizeof a->field) != 0)                                        \
    fail_msg(#field " differs between %s and the chosen form, %s", march, vector_description())
    SAME(scaled);
    SAME(added);
    SAME(summed);
    SAME(averaged);
    SAME(clipped);
    SAME(change);
    SAME(squares);
    for (int k = 0; k < N_OPTIMIZERS; k++) {
        print_message("%s%s", k ? ", " : "", optim_name((enum optim_kind)(k % OPTIM_N_KINDS)));
        SAME(step[k]);
        SAME(new_[k]);
        SAME(slots[k]);
    }
    for (int k = 0; k < OPTIM_ROWS_N_KINDS; k++) {
        print_message(", rows: %s", optim_rows_name((enum optim_rows_kind)k));
        SAME(row_step[k]);
        SAME(row[k]);
        SAME(row_slots[k]);
    }
    for (int d = 0; d < DTYPE_N_KINDS; d++) {
        print_message(", %s", dtype_name((enum dtype)d));
        SAME(codes[d]);
        SAME(decoded[d]);
        SAME(residual[d]);
    }
    print_message("\n");
}

static void check_form(const char *march)
{
    char path[4096];
    struct form f;
    snprintf(path, sizeof path, "%s/form_%s.so", WEIR_TEST_FORMS_DIR, march);
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        fail_msg("%s", dlerror());
#define FIND(name)                                                                                 \
    f.name = (__typeof__(f.name))dlsym(lib, #name);                                                \
    assert_non_null(f.name);                                                                       \
    assert_true(f.name != name);
    LOOPS(FIND)
    struct work *expected = malloc(sizeof *expected), *got = malloc(sizeof *got);
    run(&own, expected);
    run(&f, got);
    compare(march, got, expected);
    free(expected);
    free(got);
    dlclose(lib);
}

#ifdef __x86_64__
static int has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("fma");
}

static void test_x86_64(void **state)
{
    check_form("x86-64");
}

static void test_x86_64_v3(void **state)
{
    if (!has_v3())
        skip_because("this processor has no AVX2, BMI2 or FMA");
    check_form("x86-64-v3");
}

static void test_x86_64_v4(void **state)
{
    if (!has_v3() || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        skip_because("this processor has no AVX-512 F, BW, CD, DQ or VL");
    check_form("x86-64-v4");
}
#endif

static void test_description(void **state)
{
    static const char *const all[] = {"AVX-512", "AVX2", "baseline x86-64", "portable"};
    int known = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        known |= strcmp(vector_description(), all[i]) == 0;
    assert_true(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef __x86_64__
        cmocka_unit_test(test_x86_64),
        cmocka_unit_test(test_x86_64_v3),
        cmocka_unit_test(test_x86_64_v4),
#endif
        cmocka_unit_test(test_description),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
