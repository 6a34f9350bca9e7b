/* tests/kernel_channels_emulated_test.c - tests the kernels for tensors with channels last
 * (kernels/cuda/conv/channels_kernels.h), compiled as plain C++ (tests/emulation): transposes, with
 * a cast and without; max pools and gradients of biases, whose bits must be those of the kernels
 * for planes. */
#include "kernels/cuda/conv/channels_kernels.h"
#include "kernels/vector/dtype.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *floats(int64_t n)
{
    float *f = malloc((size_t)n * sizeof *f);
    assert_non_null(f);
    for (int64_t k = 0; k < n; k++)
        f[k] = NAN;
    return f;
}

/* Makes few different values, of both signs, so that some are equal. */
static float *few_values(int64_t n, unsigned seed)
{
    float *f = floats(n);
    for (int64_t k = 0; k < n; k++) {
        seed = seed * 1664525u + 1013904223u;
        f[k] = (float)((int)(seed >> 16 & 31) - 12) * 0.37f;
    }
    return f;
}

/* A slow test omits the last shape, in which blocks have several tiles: its many blocks run for
 * minutes under a sanitizer. */
static void test_transposes(void **state)
{
    static const struct gpu_matrices shapes[] = {
        {1, 1, 1}, {2, 33, 31}, {3, 40, 65}, {1, 3, 500}, {5, 64, 32}, {70, 2, 3}, {33000, 1, 2}};
    const char *slowness = getenv("WEIR_TEST_SLOWNESS");
    int is_slow = slowness != NULL && atoi(slowness) > 1;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes - (size_t)is_slow; s++) {
        struct gpu_matrices m = shapes[s];
        int64_t n = m.n * m.rows * m.columns;
        float *src = few_values(n, 1), *want = floats(n), *got = floats(n);
        uint16_t *half = malloc((size_t)n * sizeof *half), *down = malloc((size_t)n * sizeof *half);
        assert_true(half != NULL && down != NULL);
        for (int64_t k = 0; k < n; k++) {
            int64_t i = k / m.columns % m.rows, j = k % m.columns, of = k / (m.rows * m.columns);
            want[(of * m.columns + j) * m.rows + i] = src[k];
        }
        assert_int_equal(gpu_transpose(NULL, src, got, m), 0);
        assert_memory_equal(got, want, (size_t)n * sizeof *got);
        dtype_encode(DTYPE_BF16, half, want, (size_t)n);
        memset(down, 0x55, (size_t)n * sizeof *down);
        assert_int_equal(gpu_transpose_down(NULL, src, down, m), 0);
        assert_memory_equal(down, half, (size_t)n * sizeof *down);
        /* transposes back */
        assert_int_equal(
            gpu_transpose_up(NULL, half, got, (struct gpu_matrices){m.n, m.columns, m.rows}), 0);
        dtype_encode(DTYPE_BF16, down, got, (size_t)n);
        dtype_encode(DTYPE_BF16, half, src, (size_t)n);
        assert_memory_equal(down, half, (size_t)n * sizeof *down);
        free(src);
        free(want);
        free(got);
        free(half);
        free(down);
    }
    float one = 1;
    assert_int_equal(gpu_transpose(NULL, &one, &one, (struct gpu_matrices){1, 1, 1}),
                     GPU_KERNEL_REFUSED);
}

/* Copies n samples of `channels` planes, each of `cells` values of 4 bytes, to channels last. */
static void *to_last(const void *planes, int64_t n, int64_t channels, int64_t cells)
{
    float *last = floats(n * channels * cells);
    for (int64_t k = 0; k < n * channels * cells; k++) {
        int64_t cell = k % cells, channel = k / cells % channels, sample = k / cells / channels;
        memcpy(&last[(sample * cells + cell) * channels + channel], (const char *)planes + 4 * k,
               4);
    }
    return last;
}

struct pooled {
    float *y, *dx;
    int32_t *winner;
};

/* Pools by plain loops, one window after the other. */
static void pool_by_hand(const struct gpu_window *w, const float *x, const float *dy, int masked,
                         const struct pooled *p)
{
    int64_t in = w->in_h * w->in_w;
    memset(p->dx, 0, (size_t)(w->planes * in) * sizeof *p->dx);
    for (int64_t k = 0; k < w->planes * w->out_h * w->out_w; k++) {
        int64_t plane = k / (w->out_h * w->out_w);
        int y0 = (int)(k / w->out_w % w->out_h) * w->stride_h - w->pad_h;
        int x0 = (int)(k % w->out_w) * w->stride_w - w->pad_w, best = -1;
        for (int iy = y0; iy < y0 + w->kernel_h; iy++)
            for (int ix = x0; ix < x0 + w->kernel_w; ix++) {
                int cell = iy * w->in_w + ix;
                if (iy >= 0 && iy < w->in_h && ix >= 0 && ix < w->in_w &&
                    (best < 0 || x[plane * in + cell] > x[plane * in + best]))
                    best = cell;
            }
        p->y[k] = x[plane * in + best];
        p->winner[k] = best;
        if (!masked || p->y[k] > 0)
            p->dx[plane * in + best] += dy[k];
    }
}

/* Compares the kernels for planes with pool_by_hand, bit by bit. */
static void planes_check(const struct gpu_window *w, const float *x, const float *dy)
{
    int64_t n_in = w->planes * w->in_h * w->in_w, n_out = w->planes * w->out_h * w->out_w;
    struct pooled want = {floats(n_out), floats(n_in), (int32_t *)floats(n_out)};
    float *y = floats(n_out), *dx = floats(n_in);
    int32_t *winner = (int32_t *)floats(n_out);
    assert_int_equal(gpu_pool_max_forward(NULL, x, y, winner, w), 0);
    for (int masked = 0; masked < 2; masked++) {
        pool_by_hand(w, x, dy, masked, &want);
        assert_int_equal(gpu_pool_max_backward(NULL, dy, winner, masked ? y : NULL, dx, w), 0);
        assert_memory_equal(y, want.y, (size_t)n_out * sizeof *y);
        assert_memory_equal(winner, want.winner, (size_t)n_out * sizeof *winner);
        assert_memory_equal(dx, want.dx, (size_t)n_in * sizeof *dx);
    }
    free(y);
    free(want.y);
    free(dx);
    free(want.dx);
    free(winner);
    free(want.winner);
}

static void pool_check(const struct gpu_window *w, int64_t channels, int out_last)
{
    int64_t n = w->planes / channels, in = w->in_h * w->in_w, out = w->out_h * w->out_w;
    struct gpu_pool_last p = {*w, channels, out_last};
    float *x = few_values(w->planes * in, 7), *dy = few_values(w->planes * out, 8);
    float *y = floats(w->planes * out), *dx = floats(w->planes * in);
    float *got_y = floats(w->planes * out), *got_dx = floats(w->planes * in);
    int32_t *winner = (int32_t *)floats(w->planes * out);
    int32_t *got_winner = (int32_t *)floats(w->planes * out);
    size_t out_bytes = (size_t)(w->planes * out) * 4, in_bytes = (size_t)(w->planes * in) * 4;
    float *x_last = to_last(x, n, channels, in);
    planes_check(w, x, dy);
    assert_int_equal(gpu_pool_max_forward(NULL, x, y, winner, w), 0);
    assert_int_equal(gpu_pool_last_forward(NULL, x_last, got_y, got_winner, &p), 0);
    float *want_y = out_last ? to_last(y, n, channels, out) : y;
    float *want_dy = out_last ? to_last(dy, n, channels, out) : dy;
    int32_t *want_winner = out_last ? to_last(winner, n, channels, out) : winner;
    assert_memory_equal(got_y, want_y, out_bytes);
    assert_memory_equal(got_winner, want_winner, out_bytes);
    for (int masked = 0; masked < 2; masked++) {
        assert_int_equal(gpu_pool_max_backward(NULL, dy, winner, masked ? y : NULL, dx, w), 0);
        assert_int_equal(
            gpu_pool_last_backward(NULL, want_dy, want_winner, masked ? want_y : NULL, got_dx, &p),
            0);
        float *want_dx = to_last(dx, n, channels, in);
        assert_memory_equal(got_dx, want_dx, in_bytes);
        free(want_dx);
    }
    if (out_last) {
        free(want_y);
        free(want_dy);
        free(want_winner);
    }
    free(x);
    free(dy);
    free(y);
    free(dx);
    free(got_y);
    free(got_dx);
    free(winner);
    free(got_winner);
    free(x_last);
}

static void test_max_pools(void **state)
{
    static const struct gpu_window windows[] = {
        {.planes = 6,
         .in_h = 6,
         .in_w = 4,
         .out_h = 3,
         .out_w = 2,
         .kernel_h = 2,
         .kernel_w = 2,
         .stride_h = 2,
         .stride_w = 2},
        {.planes = 6, /* a row more than the tiles cover */
         .in_h = 7,
         .in_w = 4,
         .out_h = 3,
         .out_w = 2,
         .kernel_h = 2,
         .kernel_w = 2,
         .stride_h = 2,
         .stride_w = 2},
        {.planes = 6,
         .in_h = 7,
         .in_w = 5,
         .out_h = 4,
         .out_w = 3,
         .kernel_h = 3,
         .kernel_w = 3,
         .stride_h = 2,
         .stride_w = 2,
         .pad_h = 1,
         .pad_w = 1},
        {.planes = 6,
         .in_h = 5,
         .in_w = 5,
         .out_h = 2,
         .out_w = 2,
         .kernel_h = 2,
         .kernel_w = 1,
         .stride_h = 3,
         .stride_w = 3}, /* cells that no window covers */
    };
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++)
        for (int64_t channels = 1; channels <= 3; channels++)
            for (int last = 0; last < 2; last++)
                pool_check(&windows[k], channels, last);
    float f = 0;
    int32_t i = 0;
    struct gpu_pool_last uneven = {windows[0], 4, 1}; /* 6 planes are not samples of 4 channels */
    assert_int_equal(gpu_pool_last_forward(NULL, &f, &f, &i, &uneven), GPU_KERNEL_REFUSED);
}

/* The shape with 40 * 150 terms per channel is summed in two parts. */
static void test_bias_gradient(void **state)
{
    static const struct gpu_planes shapes[] = {
        {1, 1, 1}, {3, 5, 7}, {2, 33, 64}, {40, 70, 150}, {300, 2, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct gpu_planes p = shapes[s];
        float *dy = few_values(p.n * p.channels * p.plane, 3);
        float *last = to_last(dy, p.n, p.channels, p.plane);
        float *scratch = floats(gpu_bias_grad_scratch(p));
        float *want = floats(p.channels), *got = floats(p.channels);
        assert_int_equal(gpu_bias_grad(NULL, dy, want, scratch, p), 0);
        assert_int_equal(gpu_bias_grad_last(NULL, last, got, scratch, p), 0);
        assert_memory_equal(got, want, (size_t)p.channels * sizeof *got);
        free(dy);
        free(last);
        free(scratch);
        free(want);
        free(got);
    }
}

int main(void)
{
    return RUN_TESTS(test_transposes, test_max_pools, test_bias_gradient);
}
