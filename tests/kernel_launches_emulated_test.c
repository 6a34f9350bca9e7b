/* tests/kernel_launches_emulated_test.c - tests that the launch functions of Weir's kernels
 * (kernels/cuda/common/kernels.h) refuse NULL pointers and invalid numbers. tests/emulation
 * compiles them as plain C++. The functions for a first convolution are tested in
 * kernel_conv_first_emulated_test. */
#include "kernels/cuda/common/finite_kernels.h"
#include "kernels/cuda/conv/channels_kernels.h"
#include "kernels/cuda/layers/rows.h"
#include "kernels/cuda/resident/steps.h"
#include "tests/check.h"

static float f[64], g[64];
static double d[4];
static int32_t whole[64];
static uint16_t half[64];
static uint8_t bytes[64];
static uint32_t item[4];
static uint64_t position[4];
static const struct gpu_planes planes = {2, 2, 2}, no_planes = {0, 2, 2};

#define REFUSED(call) assert_int_equal(call, GPU_KERNEL_REFUSED)

static void test_values(void **state)
{
    struct gpu_sum sum = {.n = 1, .src = {f}, .weight = {1.0f}}, many = {.n = GPU_SUM_MOST + 1};
    struct gpu_activation a = {GPU_TANH, 0, 4}, nothing = {GPU_TANH, 0, 0};
    const struct gpu_finite finite = {1, {f}, {4}, 1};
    const struct gpu_finite bad_finite[] = {{0, {f}, {4}, 1},
                                            {LAYER_MAX_PARAMS + 1, {f}, {4}, 1},
                                            {1, {NULL}, {4}, 1},
                                            {2, {f, f}, {4, 0}, 1},
                                            {1, {f}, {4}, -1}};
    REFUSED(gpu_activation_forward(NULL, &a, f, NULL));
    REFUSED(gpu_activation_forward(NULL, &nothing, f, g));
    REFUSED(gpu_activation_backward(NULL, &a, f, NULL, g));
    REFUSED(gpu_activation_backward(NULL, &nothing, f, f, g));
    REFUSED(gpu_add(NULL, NULL, f, g, 4, 0));
    REFUSED(gpu_add(NULL, f, g, g, 0, 0));
    REFUSED(gpu_relu_forward(NULL, f, NULL, 4));
    REFUSED(gpu_relu_forward(NULL, f, g, 0));
    REFUSED(gpu_relu_backward(NULL, f, NULL, g, 4));
    REFUSED(gpu_relu_backward(NULL, f, f, g, 0));
    REFUSED(gpu_cast_down(NULL, f, NULL, 4));
    REFUSED(gpu_cast_down(NULL, f, half, 0));
    REFUSED(gpu_cast_up(NULL, NULL, f, 4));
    REFUSED(gpu_cast_up(NULL, half, f, 0));
    REFUSED(gpu_cast_half(NULL, f, NULL, 4));
    REFUSED(gpu_cast_half(NULL, f, half, 0));
    REFUSED(gpu_finite_check(NULL, &finite, NULL));
    for (int k = 0; k < 5; k++)
        REFUSED(gpu_finite_check(NULL, &bad_finite[k], whole));
    REFUSED(gpu_scale_pixels(NULL, bytes, f, 0));
    REFUSED(gpu_sum_weighted(NULL, &sum, NULL, 4));
    REFUSED(gpu_sum_weighted(NULL, &sum, g, 0));
    REFUSED(gpu_sum_weighted(NULL, &many, g, 4));
}

static void test_planes(void **state)
{
    struct gpu_frame frame = {1, 2, 2, 3, 3, 0, 0}, low = {1, 2, 2, 1, 3, 0, 0};
    struct gpu_matrices m = {1, 2, 2}, none = {1, 0, 2};
    REFUSED(gpu_bias_add(NULL, f, NULL, planes, 0));
    REFUSED(gpu_bias_add(NULL, f, g, no_planes, 0));
    REFUSED(gpu_bias_grad(NULL, f, g, NULL, planes));
    REFUSED(gpu_bias_grad(NULL, f, g, f, no_planes));
    REFUSED(gpu_bias_grad_last(NULL, f, NULL, f, planes));
    REFUSED(gpu_bias_grad_last(NULL, f, g, f, no_planes));
    REFUSED(gpu_pad_set(NULL, f, NULL, &frame));
    REFUSED(gpu_pad_set(NULL, f, g, &low));
    REFUSED(gpu_pad_cut(NULL, f, NULL, &frame));
    REFUSED(gpu_pad_cut(NULL, f, g, &low));
    REFUSED(gpu_transpose(NULL, f, NULL, m));
    REFUSED(gpu_transpose(NULL, f, f, m));
    REFUSED(gpu_transpose_down(NULL, f, half, none));
    REFUSED(gpu_transpose_up(NULL, NULL, f, m));
}

static void test_pools(void **state)
{
    struct gpu_window w = {1, 2, 2, 1, 1, 2, 2, 2, 2, 0, 0}, far = w;
    struct gpu_pool_last last = {w, 1, 1}, uneven = {w, 2, 1};
    struct gpu_bias bias = {f, 1}, none = {f, 0};
    far.pad_h = 2;
    REFUSED(gpu_pool_max_forward(NULL, f, g, NULL, &w));
    REFUSED(gpu_pool_max_forward(NULL, f, g, whole, &far));
    REFUSED(gpu_pool_max_backward(NULL, f, NULL, NULL, g, &w));
    REFUSED(gpu_pool_max_backward(NULL, f, whole, NULL, g, &far));
    REFUSED(gpu_pool_avg_forward(NULL, f, NULL, &w));
    REFUSED(gpu_pool_avg_backward(NULL, f, NULL, &w));
    REFUSED(gpu_pool_avg_backward(NULL, f, g, &far));
    REFUSED(gpu_pool_last_forward(NULL, f, g, NULL, &last));
    REFUSED(gpu_pool_last_forward(NULL, f, g, whole, &uneven));
    REFUSED(gpu_pool_last_backward(NULL, f, NULL, NULL, g, &last));
    REFUSED(gpu_pool_last_backward(NULL, f, whole, NULL, g, &uneven));
    REFUSED(gpu_bias_relu_pool(NULL, f, &bias, g, NULL, &w));
    REFUSED(gpu_bias_relu_pool(NULL, f, &none, g, whole, &w));
}

static void test_rows(void **state)
{
    struct gpu_rows r = {2, 2, 2, 2}, narrow = {2, 2, 2, 1};
    struct gpu_layer_norm norm = {2, 2, 1e-5, f, f, g, g}, no_norm = {0, 2, 1e-5, f, f, g, g};
    struct gpu_embedding e = {1, 1, 1, 2, f}, none = {1, 1, 1, 0, f};
    struct gpu_dropout drop = {1, 2, position, 1, 2, 1.0f}, no_drop = {1, 2, NULL, 1, 2, 1.0f};
    struct gpu_norm_stats s = {1, 2, 1e-5, f, f, g, NULL};
    REFUSED(gpu_concat_rows(NULL, f, NULL, r));
    REFUSED(gpu_concat_rows(NULL, f, g, narrow));
    REFUSED(gpu_layer_norm_forward(NULL, &norm, f, NULL));
    REFUSED(gpu_layer_norm_forward(NULL, &no_norm, f, g));
    REFUSED(gpu_layer_norm_backward(NULL, &norm, f, NULL));
    REFUSED(gpu_layer_norm_params(NULL, &norm, f, g, NULL));
    REFUSED(gpu_embedding_forward(NULL, &e, f, NULL));
    REFUSED(gpu_embedding_forward(NULL, &none, f, g));
    REFUSED(gpu_embedding_backward(NULL, &e, f, NULL));
    struct gpu_multiply m = {2, 1, {f, f}}, one = {1, 1, {f}}, lacks = {2, 1, {f, NULL}};
    REFUSED(gpu_multiply_forward(NULL, &m, NULL));
    REFUSED(gpu_multiply_forward(NULL, &one, g));
    REFUSED(gpu_multiply_forward(NULL, &lacks, g));
    REFUSED(gpu_multiply_backward(NULL, &m, 2, f, g));
    REFUSED(gpu_multiply_backward(NULL, &m, 0, f, NULL));
    struct gpu_channel_sum sum = {1, 1, 1}, empty = {1, 0, 1};
    REFUSED(gpu_channel_sum_forward(NULL, &sum, f, NULL));
    REFUSED(gpu_channel_sum_forward(NULL, &empty, f, g));
    REFUSED(gpu_channel_sum_backward(NULL, &sum, f, NULL));
    struct gpu_factorization pairs = {1, 2, 1, f}, no_columns = {1, 0, 1, f},
                             no_x = {1, 2, 1, NULL};
    REFUSED(gpu_factorization_forward(NULL, &pairs, NULL));
    REFUSED(gpu_factorization_forward(NULL, &no_columns, g));
    REFUSED(gpu_factorization_forward(NULL, &no_x, g));
    REFUSED(gpu_factorization_backward(NULL, &pairs, NULL, g));
    REFUSED(gpu_factorization_backward(NULL, &pairs, f, NULL));
    REFUSED(gpu_dropout_apply(NULL, f, NULL, &drop));
    REFUSED(gpu_dropout_apply(NULL, f, g, &no_drop));
    REFUSED(gpu_norm_stats_hand_out(NULL, &s));
}

static void test_losses(void **state)
{
    struct gpu_softmax s = {.n = 1, .classes = 2, .x = f, .labels = whole, .y = g}, none = s;
    int (*const run[])(struct CUstream_st *, const struct gpu_softmax *) = {
        gpu_softmax_run, gpu_loss_sigmoid, gpu_loss_squared};
    none.labels = NULL;
    none.n = 0;
    for (int k = 0; k < 3; k++) {
        REFUSED(run[k](NULL, &s)); /* labels, but no buffer for the loss */
        REFUSED(run[k](NULL, &none));
    }
}

static void test_steps(void **state)
{
    struct gpu_gather gather = {1, 2, bytes, bytes, f, whole},
                      none = {0, 2, bytes, bytes, f, whole};
    struct gpu_gather_order order = {4, {item, item}, position, 0, 1, NULL};
    struct gpu_optim_part part = {f, g, {NULL, NULL}, 2, -1.0f};
    struct optim_step scalar = {0};
    struct gpu_optim update = {
        .parts = &part, .n_parts = 1, .scalar = &scalar, .n_scalars = 0, .step = position};
    struct gpu_tally tally;
    REFUSED(gpu_gather_items(NULL, &gather, NULL));
    REFUSED(gpu_gather_items(NULL, &none, item));
    REFUSED(gpu_gather_step(NULL, &gather, &order));
    REFUSED(gpu_optim_run(NULL, &update));
    REFUSED(gpu_digest_parts(NULL, &part, 1, NULL));
    REFUSED(gpu_digest_parts(NULL, &part, 0, position));
    REFUSED(gpu_digest_parts(NULL, NULL, 1, position));
    REFUSED(gpu_tally_step(NULL, d, whole, 1, NULL));
    REFUSED(gpu_tally_step(NULL, d, whole, 0, &tally));
}

int main(void)
{
    return RUN_TESTS(test_values, test_planes, test_pools, test_rows, test_losses, test_steps);
}
