/* tests/kernel_conv_first_emulated_test.c - compares the kernels of a first convolution, run on the
 * CPU (see tests/emulation), with plain sums in double precision, and gradients with finite
 * differences, too. kernel_conv_first_plan_test.c tests for which convolutions a plan uses these
 * kernels. */
#include "base/rng.h"
#include "kernels/cuda/conv/conv_first_kernels.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 77, GUARD = 64 };

/* All buffers that the kernels read and write for one shape; written ones have a guard after
 * them. */
struct job {
    struct gpu_conv_first c;
    int64_t n_x, n_w, n_y, n_scratch;
    float *x, *w, *bias, *y, *dy, *dw, *db, *scratch;
};

/* Returns n values, then the guard, all of them NaN: a kernel must write the n values and leave the
 * guard. */
static float *unwritten(int64_t n)
{
    float *f = aligned_alloc(16, (size_t)((n + GUARD + 3) / 4 * 16));
    assert_non_null(f);
    for (int64_t k = 0; k < n + GUARD; k++)
        f[k] = NAN;
    return f;
}

static void check_guard(const float *f, int64_t n)
{
    for (int64_t k = n; k < n + GUARD; k++)
        assert_true(isnan(f[k]));
}

/* Returns n values and nothing after them: AddressSanitizer detects reads beyond them. */
static float *noise(uint64_t use, int64_t n)
{
    float *f = malloc((size_t)n * sizeof *f);
    assert_non_null(f);
    for (int64_t k = 0; k < n; k++)
        f[k] = rng_uniform(rng_key(SEED, RNG_TEST, use), (uint64_t)k) * 2 - 1;
    return f;
}

static void job_make(struct job *j, struct gpu_conv_first c)
{
    *j = (struct job){.c = c,
                      .n_x = c.n * c.in_h * c.in_w,
                      .n_w = (int64_t)c.filters * c.kernel * c.kernel,
                      .n_y = c.n * c.filters * c.out_h * c.out_w};
    if (!gpu_conv_first_fits(&c))
        fail_msg("%dx%d, kernel %d, stride %d does not fit", c.in_h, c.in_w, c.kernel, c.stride);
    j->n_scratch = gpu_conv_first_scratch(&c);
    j->x = noise(1, j->n_x);
    j->w = noise(2, j->n_w);
    j->bias = noise(3, c.filters);
    j->dy = noise(4, j->n_y);
    j->y = unwritten(j->n_y);
    j->dw = unwritten(j->n_w);
    j->db = unwritten(c.filters);
    j->scratch = unwritten(j->n_scratch);
}

static void job_free(struct job *j)
{
    float *all[] = {j->x, j->w, j->bias, j->y, j->dy, j->dw, j->db, j->scratch};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        free(all[k]);
}

/* Returns the shape for images with pad[0] cells of padding before the image and pad[1] cells after
 * it. */
static struct gpu_conv_first shape(int64_t n, int filters, int h, int w, const int window[2],
                                   const int pad[2])
{
    int kernel = window[0], stride = window[1], lo = pad[0], hi = pad[1];
    return (struct gpu_conv_first){.n = n,
                                   .filters = filters,
                                   .in_h = h,
                                   .in_w = w,
                                   .out_h = (h + lo + hi - kernel) / stride + 1,
                                   .out_w = (w + lo + hi - kernel) / stride + 1,
                                   .kernel = kernel,
                                   .stride = stride,
                                   .pad_h = lo,
                                   .pad_w = lo};
}

/* Returns the value of the image's cell that output (oy, ox) of sample s multiplies with a tap; 0
 * if the cell is outside the image. */
static double cell(const struct job *j, int64_t s, int oy, int ox, int tap)
{
    const struct gpu_conv_first *c = &j->c;
    int y = oy * c->stride - c->pad_h + tap / c->kernel;
    int x = ox * c->stride - c->pad_w + tap % c->kernel;
    int inside = y >= 0 && y < c->in_h && x >= 0 && x < c->in_w;
    return inside ? (double)j->x[(s * c->in_h + y) * c->in_w + x] : 0;
}

static void compare(const struct job *j, const char *what, const float *got, const double *want,
                    int64_t n)
{
    double largest = 0, worst = 0;
    for (int64_t k = 0; k < n; k++) {
        double error = fabs((double)got[k] - want[k]);
        largest = fmax(largest, fabs(want[k]));
        worst = error <= worst ? worst : error; /* keeps a NaN */
    }
    if (!(worst <= 3e-6 * largest + 1e-6))
        fail_msg("%d x %dx%d, %d filters, kernel %d, stride %d, pad %d: %s is off by %g of %g",
                 (int)j->c.n, j->c.in_h, j->c.in_w, j->c.filters, j->c.kernel, j->c.stride,
                 j->c.pad_h, what, worst, largest);
}

static double *zeros(int64_t n)
{
    double *d = calloc((size_t)n, sizeof *d);
    assert_non_null(d);
    return d;
}

static void check_forward(struct job *j, int with_bias, int relu)
{
    const struct gpu_conv_first *c = &j->c;
    double *want = zeros(j->n_y);
    struct gpu_conv_first_end end = {.bias = with_bias ? j->bias : NULL, .relu = relu};
    int64_t k = 0;
    for (int64_t s = 0; s < c->n; s++)
        for (int f = 0; f < c->filters; f++)
            for (int oy = 0; oy < c->out_h; oy++)
                for (int ox = 0; ox < c->out_w; ox++, k++) {
                    double sum = with_bias ? (double)j->bias[f] : 0;
                    int taps = c->kernel * c->kernel;
                    for (int t = 0; t < taps; t++)
                        sum += (double)j->w[f * taps + t] * cell(j, s, oy, ox, t);
                    want[k] = relu && sum < 0 ? 0 : sum;
                }
    assert_int_equal(gpu_conv_first_forward(NULL, c, j->x, j->w, j->y, &end), 0);
    compare(j, "output", j->y, want, j->n_y);
    check_guard(j->y, j->n_y);
    free(want);
}

/* Compares, bit by bit, the pool inside the kernel with a separate pool by bias_relu_pool.cu.
 * Unless round_up is set, the pools omit a last odd row and column. */
static void check_pool(struct job *j, int round_up)
{
    const struct gpu_conv_first *c = &j->c;
    struct gpu_window w = {.planes = c->n * c->filters,
                           .in_h = c->out_h,
                           .in_w = c->out_w,
                           .out_h = (c->out_h + round_up) / 2,
                           .out_w = (c->out_w + round_up) / 2,
                           .kernel_h = 2,
                           .kernel_w = 2,
                           .stride_h = 2,
                           .stride_w = 2};
    int64_t n = w.planes * w.out_h * w.out_w;
    if (n == 0)
        return;
    float *want = unwritten(n), *got = unwritten(n);
    int32_t *places[2] = {calloc((size_t)n, sizeof(int32_t)), calloc((size_t)n, sizeof(int32_t))};
    assert_true(places[0] != NULL && places[1] != NULL);
    struct gpu_conv_first_end none = {.bias = NULL};
    struct gpu_conv_first_end end = {j->bias, 1, places[1], w.out_h, w.out_w};
    struct gpu_bias bias = {j->bias, c->filters};
    assert_int_equal(gpu_conv_first_forward(NULL, c, j->x, j->w, j->y, &none), 0);
    assert_int_equal(gpu_bias_relu_pool(NULL, j->y, &bias, want, places[0], &w), 0);
    assert_int_equal(gpu_conv_first_forward(NULL, c, j->x, j->w, got, &end), 0);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    assert_memory_equal(places[1], places[0], (size_t)n * sizeof(int32_t));
    check_guard(got, n);
    free(want);
    free(got);
    free(places[0]);
    free(places[1]);
}

static void backward(struct job *j, float *dw, float *db)
{
    struct gpu_conv_first_grad g = {dw, db, j->scratch};
    assert_int_equal(gpu_conv_first_backward(NULL, &j->c, j->x, j->dy, &g), 0);
}

static void check_backward(struct job *j)
{
    const struct gpu_conv_first *c = &j->c;
    int taps = c->kernel * c->kernel;
    double *dw = zeros(j->n_w), *db = zeros(c->filters);
    float *again_w = unwritten(j->n_w), *again_b = unwritten(c->filters);
    int64_t k = 0;
    for (int64_t s = 0; s < c->n; s++)
        for (int f = 0; f < c->filters; f++)
            for (int oy = 0; oy < c->out_h; oy++)
                for (int ox = 0; ox < c->out_w; ox++, k++) {
                    db[f] += (double)j->dy[k];
                    for (int t = 0; t < taps; t++)
                        dw[f * taps + t] += (double)j->dy[k] * cell(j, s, oy, ox, t);
                }
    backward(j, j->dw, j->db);
    compare(j, "weights' gradient", j->dw, dw, j->n_w);
    compare(j, "bias' gradient", j->db, db, c->filters);
    check_guard(j->dw, j->n_w);
    check_guard(j->db, c->filters);
    check_guard(j->scratch, j->n_scratch);
    backward(j, again_w, again_b);
    assert_memory_equal(again_w, j->dw, (size_t)j->n_w * sizeof(float));
    assert_memory_equal(again_b, j->db, (size_t)c->filters * sizeof(float));
    free(dw);
    free(db);
    free(again_w);
    free(again_b);
}

static void check_shape(struct gpu_conv_first c)
{
    struct job j;
    job_make(&j, c);
    check_forward(&j, 1, 1);
    check_forward(&j, 0, 0);
    check_pool(&j, 0);
    check_pool(&j, 1);
    check_backward(&j);
    job_free(&j);
}

/* ---- tests ---- */

/* Every kernel and stride, without padding, with SAME's, and with more padding after than
 * before. */
static void test_kernels_and_strides(void **state)
{
    for (int kernel = 2; kernel <= 7; kernel++)
        for (int stride = 1; stride <= 2; stride++)
            for (int pad = 0; pad < kernel; pad++) {
                int window[] = {kernel, stride}, pads[] = {pad / 2, pad - pad / 2};
                check_shape(shape(3, 5, 13, 10, window, pads));
            }
}

static void test_shapes(void **state)
{
    static const struct {
        int64_t n;
        int filters, h, w, window[2], pad[2];
    } shapes[] = {
        {2, 32, 28, 28, {5, 1}, {2, 2}},  /* the images of MNIST */
        {2, 9, 28, 28, {3, 2}, {0, 1}},   /* SAME with a stride */
        {2, 9, 28, 28, {7, 2}, {2, 3}},   /* SAME with a stride */
        {1, 1, 5, 5, {5, 1}, {0, 0}},     /* a single output cell */
        {1, 1, 1, 1, {3, 1}, {1, 1}},     /* a single input cell */
        {3, 2, 2, 3, {7, 1}, {3, 3}},     /* a kernel larger than the image */
        {2, 3, 4, 4, {3, 2}, {3, 3}},     /* outputs of only padding */
        {2, 7, 42, 42, {3, 1}, {1, 1}},   /* the largest square */
        {1, 3, 6, 150, {3, 1}, {1, 1}},   /* wide */
        {1, 3, 60, 6, {3, 1}, {1, 1}},    /* high */
        {37, 128, 9, 7, {5, 1}, {2, 2}},  /* runs of several samples, not all alike */
        {70, 128, 6, 5, {7, 2}, {3, 3}},  /* runs of several samples, of different lengths */
        {300, 3, 6, 6, {3, 1}, {0, 0}},   /* more samples than blocks */
        {40, 33, 10, 10, {4, 1}, {1, 2}}, /* forward, filters in groups, the last one smaller */
        {1100, 6, 4, 4, {2, 1}, {0, 1}},  /* forward, all filters in one group */
        {2, 4, 17, 33, {2, 2}, {0, 1}},
        {2, 3, 32, 64, {3, 1}, {0, 0}}, /* all of the shared memory */
    };
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        check_shape(shape(shapes[k].n, shapes[k].filters, shapes[k].h, shapes[k].w,
                          shapes[k].window, shapes[k].pad));
}

/* Returns the sum over outputs of dy * y, by the forward kernel. */
static double objective(struct job *j)
{
    struct gpu_conv_first_end end = {.bias = j->bias};
    double sum = 0;
    assert_int_equal(gpu_conv_first_forward(NULL, &j->c, j->x, j->w, j->y, &end), 0);
    for (int64_t k = 0; k < j->n_y; k++)
        sum += (double)j->dy[k] * (double)j->y[k];
    return sum;
}

static void check_difference(struct job *j, float *value, float gradient)
{
    const float step = 0.25f, before = *value; /* the objective is linear: only rounding matters */
    *value = before + step;
    double above = objective(j);
    *value = before - step;
    double below = objective(j), want = (above - below) / (2 * (double)step);
    *value = before;
    if (!(fabs((double)gradient - want) <= 1e-4 * fabs(want) + 1e-3))
        fail_msg("kernel %d, stride %d: a gradient is %g, the difference %g", j->c.kernel,
                 j->c.stride, (double)gradient, want);
}

static void test_finite_differences(void **state)
{
    for (int kernel = 2; kernel <= 7; kernel++)
        for (int stride = 1; stride <= 2; stride++) {
            int window[] = {kernel, stride}, pad[] = {(kernel - 1) / 2, kernel / 2};
            struct job j;
            job_make(&j, shape(5, 3, 9, 12, window, pad));
            backward(&j, j.dw, j.db);
            for (int64_t k = 0; k < j.n_w; k += 3)
                check_difference(&j, &j.w[k], j.dw[k]);
            for (int k = 0; k < j.c.filters; k++)
                check_difference(&j, &j.bias[k], j.db[k]);
            job_free(&j);
        }
}

/* Relu and pool treat NaNs and infinities like the separate kernels. */
static void test_values_that_are_no_numbers(void **state)
{
    static const int window[] = {5, 1}, pad[] = {2, 2};
    struct job j;
    job_make(&j, shape(2, 5, 11, 11, window, pad));
    j.x[3] = NAN;
    j.x[60] = INFINITY;
    j.x[121 + 60] = -INFINITY;
    check_pool(&j, 0);
    check_pool(&j, 1);
    job_free(&j);
}

/* The output begins at an odd float, so the kernel cannot write pairs of floats at a time. */
static void test_output_at_any_float(void **state)
{
    static const int window[] = {3, 1}, pad[] = {1, 1};
    struct job j;
    struct gpu_conv_first_end end = {.relu = 1};
    job_make(&j, shape(1, 2, 8, 8, window, pad));
    float *odd = unwritten(j.n_y + 1);
    end.bias = j.bias;
    assert_int_equal(gpu_conv_first_forward(NULL, &j.c, j.x, j.w, j.y, &end), 0);
    assert_int_equal(gpu_conv_first_forward(NULL, &j.c, j.x, j.w, odd + 1, &end), 0);
    assert_memory_equal(odd + 1, j.y, (size_t)j.n_y * sizeof *odd);
    free(odd);
    job_free(&j);
}

static void test_what_does_not_fit(void **state)
{
    static const int window[] = {5, 1}, pad[] = {2, 2};
    const struct gpu_conv_first good = shape(2, 8, 28, 28, window, pad);
    struct gpu_conv_first bad[12];
    struct job j;
    int n = sizeof bad / sizeof *bad;
    for (int k = 0; k < n; k++)
        bad[k] = good;
    bad[0].n = 0;
    bad[1].filters = 0;
    bad[2].filters = GPU_CONV_FIRST_MAX_FILTERS + 1;
    bad[3].kernel = 1;
    bad[4].kernel = 8;
    bad[5].stride = 0;
    bad[6].stride = 3;
    bad[7].pad_w = -1;
    bad[8].in_w = 0;
    bad[9].out_h = 1 << 20;
    bad[10] = shape(2, 8, 43, 43, (int[]){3, 1}, (int[]){1, 1}); /* limit 42: test_shapes */
    bad[11] = shape(2, 8, 50, 30, (int[]){5, 2}, (int[]){2, 2}); /* too large for backward */
    job_make(&j, good);
    struct gpu_conv_first_end end = {.bias = j.bias};
    struct gpu_conv_first_grad g = {j.dw, j.db, j.scratch};
    for (int k = 0; k < n; k++) {
        assert_int_equal(gpu_conv_first_fits(&bad[k]), 0);
        assert_int_equal(gpu_conv_first_forward(NULL, &bad[k], j.x, j.w, j.y, &end),
                         GPU_KERNEL_REFUSED);
        assert_int_equal(gpu_conv_first_backward(NULL, &bad[k], j.x, j.dy, &g), GPU_KERNEL_REFUSED);
    }
    int32_t winner[1];
    end = (struct gpu_conv_first_end){j.bias, 0, winner, 14, 14}; /* without relu */
    assert_int_equal(gpu_conv_first_forward(NULL, &good, j.x, j.w, j.y, &end), GPU_KERNEL_REFUSED);
    end = (struct gpu_conv_first_end){j.bias, 1, winner, 14, 15}; /* a window of only padding */
    assert_int_equal(gpu_conv_first_forward(NULL, &good, j.x, j.w, j.y, &end), GPU_KERNEL_REFUSED);
    g.scratch = NULL;
    assert_int_equal(gpu_conv_first_backward(NULL, &good, j.x, j.dy, &g), GPU_KERNEL_REFUSED);
    job_free(&j);
}

int main(void)
{
    return RUN_TESTS(test_kernels_and_strides, test_shapes, test_finite_differences,
                     test_values_that_are_no_numbers, test_output_at_any_float,
                     test_what_does_not_fit);
}
