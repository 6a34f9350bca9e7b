/* tests/kernel_epilogues_emulated_test.c - tests --gpu_tuning=epilogues: cuBLASLt computes the
 * products of a dense layer together with bias, relu and the gradient of the bias. The results must
 * be the same as without this tuning. If cuBLASLt does not offer a product, the plan computes it as
 * without the tuning, with one log line. Argument: the folder of the emulation's library
 * (tests/emulation). */
#include "kernels/tuning.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "tests/emulation/blas.h"
#include "tests/kernel_bench.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_DENSE = 3, N_PARAMS = 2 * N_DENSE, MOST_ELEMS = 1 << 12, FEW = 3 };
static void (*lt_refuse)(enum emulation_lt what);
static int (*lt_done)(int gradient);

/* Dense layers with a relu and without. The first layer has no gradient by its input. */
static void build(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 37);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 21);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}
static const struct net net = {"dense", 1, 9, 9, build};

/* Result of a step. */
struct result {
    float hidden[BENCH_BATCH * 37], output[BENCH_BATCH * 10], grad[N_PARAMS][MOST_ELEMS];
    size_t memory_bytes;
    int n_forward, n_gradient; /* products that cuBLASLt computed */
};

/* Runs a step of n samples, by a plan for BENCH_BATCH. */
static struct result *step(uint32_t tuning, enum backend_precision precision, int n)
{
    struct bench *b = bench_create(&net);
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    struct result *r = calloc(1, sizeof *r);
    assert_non_null(r);
    cfg.tuning = tuning;
    cfg.precision = precision;
    assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
    r->memory_bytes = backend->plan_memory_bytes(b->plan);
    lt_done(0);
    lt_done(1);
    bench_forward(b, 0, n, 1);
    assert_int_equal(backend->read_output(b->plan, 2, r->hidden), ST_OK);
    assert_int_equal(backend->read_output(b->plan, 4, r->output), ST_OK);
    bench_backward(b);
    r->n_forward = lt_done(0);
    r->n_gradient = lt_done(1);
    for (int k = 0; k < N_PARAMS; k++) {
        assert_true(b->r->param_elems[k] <= MOST_ELEMS);
        memcpy(r->grad[k], b->grads[k], (size_t)b->r->param_elems[k] * sizeof(float));
    }
    bench_destroy(b);
    return r;
}

static void assert_close(const float *got, const float *want, double tolerance)
{
    double largest = 0, worst = 0;
    for (int k = 0; k < MOST_ELEMS; k++) {
        double error = fabs((double)got[k] - (double)want[k]);
        largest = fmax(largest, fabs((double)want[k]));
        worst = error <= worst ? worst : error; /* keeps a NaN */
    }
    if (!(worst <= tolerance * largest) || largest <= 0)
        fail_msg("%g off, the largest value is %g", worst, largest);
}

static void test_products_have_epilogues(void **state)
{
    /* tolerances for the gradient of a bias: its terms may be rounded, and some of them cancel */
    static const double rounded[] = {
        [BACKEND_FP32] = 1e-6, [BACKEND_TF32] = 0x1p-9, [BACKEND_BF16] = 0x1p-6};
    for (int precision = BACKEND_FP32; precision <= BACKEND_BF16; precision++)
        for (int n = FEW; n <= BENCH_BATCH; n += BENCH_BATCH - FEW) {
            struct result *plain = step(0, (enum backend_precision)precision, n);
            struct result *fused = step(TUNING_EPILOGUES, (enum backend_precision)precision, n);
            assert_int_equal(plain->n_forward + plain->n_gradient, 0);
            assert_int_equal(fused->n_forward, N_DENSE);
            assert_int_equal(fused->n_gradient, N_DENSE);
            assert_int_equal(fused->memory_bytes, plain->memory_bytes);
            assert_memory_equal(fused->hidden, plain->hidden, sizeof plain->hidden);
            assert_memory_equal(fused->output, plain->output, sizeof plain->output);
            for (int k = 0; k < N_PARAMS; k++)
                assert_close(fused->grad[k], plain->grad[k], k % 2 ? rounded[precision] : 0);
            free(plain);
            free(fused);
        }
}

/* In a plan for inference cuBLASLt adds the biases, and there are no gradients. */
static void test_inference(void **state)
{
    struct bench *b = bench_create(&net);
    struct backend_plan_config cfg = bench_config(b, 1, 1);
    cfg.tuning = TUNING_EPILOGUES;
    assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
    bench_check_pass(&net, b, BENCH_BATCH, 0);
    bench_check_pass(&net, b, FEW, 0);
    assert_int_equal(lt_done(0), 2 * N_DENSE);
    assert_int_equal(lt_done(1), 0);
    bench_destroy(b);
}

/* Counts the lines on stderr that name cuBLASLt, in two steps. */
static int lines_of_two_steps(enum emulation_lt refuses, struct result *r[2])
{
    char text[1 << 14], *at = text;
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO), n = 0;
    assert_true(file != NULL && kept >= 0);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    lt_refuse(refuses);
    for (int k = 0; k < 2; k++)
        r[k] = step(TUNING_EPILOGUES, BACKEND_FP32, BENCH_BATCH);
    lt_refuse(EMULATION_LT_ALL);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    while ((at = strstr(at, "cuBLASLt")) != NULL) {
        n++;
        at++;
    }
    return n;
}

static void test_what_it_does_not_offer(void **state)
{
    static const enum emulation_lt ways[] = {EMULATION_LT_UNKNOWN, EMULATION_LT_NONE,
                                             EMULATION_LT_RUN};
    struct result *plain = step(0, BACKEND_FP32, BENCH_BATCH), *r[2];
    for (int k = 0; k < 3; k++) {
        /* two lines: for bias and relu, and for the gradient of a bias */
        assert_int_equal(lines_of_two_steps(ways[k], r), k == 0 ? 2 : 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(r[i]->n_forward + r[i]->n_gradient, 0);
            assert_memory_equal(r[i], plain, sizeof *plain);
            free(r[i]);
        }
    }
    free(plain);
}

int main(int argc, char **argv)
{
    int status;
    void *so = emulated_open(argc > 1 ? argv[1] : WEIR_TEST_DIR, &backend, &status);
    if (so == NULL)
        return status;
    bench_tolerance = bench_tolerance_f32 = reference_tolerance("emulated");
    if (!emulated_look_up(so, "emulation_lt_refuse", &lt_refuse) ||
        !emulated_look_up(so, "emulation_lt_done", &lt_done))
        return 1;
    return RUN_TESTS(test_products_have_epilogues, test_inference, test_what_it_does_not_offer);
}
