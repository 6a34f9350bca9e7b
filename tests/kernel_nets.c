/* tests/kernel_nets.c - the nets on which backends are tested. */
#include "tests/kernel_bench.h"

static void end(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void build_softmax(struct reference *r)
{
    end(r);
}

static void build_hidden(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 37);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 21);
    end(r);
}

static void build_deep(struct reference *r)
{
    reference_conv(r, 8, 5, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_conv(r, 16, 5, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 48);
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.5f);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* 16 and 32 channels, for the blocked formats of wide vector units. */
static void build_wide(struct reference *r)
{
    reference_conv(r, 16, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_conv(r, 32, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_AVG_POOL, 2, 2, -1);
    end(r);
}

static void build_strided(struct reference *r)
{
    reference_conv(r, 5, 3, 2, -1);
    reference_layer(r, LAYER_RELU);
    reference_conv(r, 7, 2, 1, 0);
    end(r);
}

static void build_valid(struct reference *r)
{
    reference_conv(r, 6, 4, 1, 0);
    reference_conv(r, 19, 1, 1, 0);
    reference_layer(r, LAYER_RELU);
    end(r);
}

static void build_overlapping_pools(struct reference *r)
{
    reference_conv(r, 9, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 3, 2, -1);
    reference_conv(r, 16, 3, 1, -1);
    reference_pool(r, LAYER_MAX_POOL, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_AVG_POOL, 3, 2, -1);
    end(r);
}

static void build_pools_first(struct reference *r)
{
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 1, 0);
    reference_pool(r, LAYER_AVG_POOL, 2, 2, 0);
    end(r);
}

static void build_norm(struct reference *r)
{
    reference_conv(r, 16, 3, 1, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_conv(r, 5, 3, 1, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 30);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.25f);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void build_norm_first(struct reference *r)
{
    reference_layer(r, LAYER_BATCH_NORM);
    reference_conv(r, 16, 3, 1, -1);
    reference_dropout(r, 0.3f); /* on (C,H,W) */
    reference_layer(r, LAYER_RELU);
    reference_layer(r, LAYER_FLATTEN);
    reference_layer(r, LAYER_FLATTEN);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* Weights of many pages that begin and end within a page: a GPU copies them in parts. */
static void build_pages(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 48);
    reference_layer(r, LAYER_RELU);
    end(r);
}

/* Layer norm on images and on rows. Another layer, too, reads the input of one of them. */
static void build_layer_norm(struct reference *r)
{
    reference_layer(r, LAYER_LAYER_NORM);
    reference_conv(r, 6, 3, 1, -1);
    int from = reference_last(r);
    reference_layer(r, LAYER_LAYER_NORM);
    reference_layer(r, LAYER_RELU);
    reference_join(r, LAYER_ADD, 2, (int[]){reference_last(r), from});
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 21);
    reference_layer(r, LAYER_LAYER_NORM);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 10);
    reference_smoothed(r, 0.1f);
}

static void build_embedding(struct reference *r)
{
    reference_embedding(r, 256, 5);
    reference_layer(r, LAYER_RELU);
    reference_conv(r, 8, 3, 1, -1);
    int learned = reference_last(r);
    reference_from(r, LAYER_INPUT_IMAGE);
    reference_embedding(r, 256, 8);
    reference_join(r, LAYER_ADD, 2, (int[]){reference_last(r), learned});
    reference_pool(r, LAYER_AVG_POOL, 2, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SIGMOID_XENT);
}

static void build_squared(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 24);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SQUARED);
}

/* Nets of graphs: some layers have several readers or inputs. */

static void build_residual(struct reference *r)
{
    reference_conv(r, 16, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    int skip = reference_last(r);
    reference_conv(r, 16, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_conv(r, 16, 3, 1, -1);
    reference_join(r, LAYER_ADD, 2, (int[]){reference_last(r), skip});
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_AVG_POOL, 2, 2, -1);
    end(r);
}

/* Two residual blocks. The shortcut of the second block is a convolution with dropout. */
static void build_residual_norms(struct reference *r)
{
    reference_conv(r, 8, 3, 1, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    int skip = reference_last(r);
    reference_conv(r, 8, 3, 1, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_join(r, LAYER_ADD, 2, (int[]){skip, reference_last(r)});
    int outer = reference_last(r);
    reference_conv(r, 16, 3, 2, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    int inner = reference_last(r);
    reference_from(r, outer);
    reference_conv(r, 16, 1, 2, -1);
    reference_dropout(r, 0.2f);
    reference_join(r, LAYER_ADD, 2, (int[]){inner, reference_last(r)});
    reference_layer(r, LAYER_RELU);
    end(r);
}

/* Parallel convolutions with different kernels, each with its own number of channels. */
static void build_branches(struct reference *r)
{
    reference_conv(r, 6, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    int from = reference_last(r);
    reference_conv(r, 5, 1, 1, 0);
    reference_layer(r, LAYER_RELU);
    int a = reference_last(r);
    reference_from(r, from);
    reference_conv(r, 16, 3, 1, -1);
    int b = reference_last(r);
    reference_from(r, from);
    reference_pool(r, LAYER_MAX_POOL, 3, 1, -1);
    reference_conv(r, 9, 5, 1, -1);
    int c = reference_last(r);
    reference_join(r, LAYER_CONCAT, 3, (int[]){a, b, c});
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    end(r);
}

static void build_read_by_three(struct reference *r)
{
    reference_conv(r, 7, 3, 1, -1);
    int from = reference_last(r);
    reference_conv(r, 7, 3, 1, -1);
    int a = reference_last(r);
    reference_from(r, from);
    reference_layer(r, LAYER_RELU);
    int b = reference_last(r);
    reference_from(r, from);
    reference_pool(r, LAYER_AVG_POOL, 3, 1, -1);
    reference_join(r, LAYER_ADD, 3, (int[]){a, b, reference_last(r)});
    end(r);
}

/* The max pool must not apply the mask of the relu, because it contributes only a part of the
 * relu's gradient. */
static void build_relu_read_by_two(struct reference *r)
{
    reference_conv(r, 6, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    int from = reference_last(r);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    int a = reference_last(r);
    reference_from(r, from);
    reference_conv(r, 6, 2, 2, 0);
    reference_join(r, LAYER_ADD, 2, (int[]){a, reference_last(r)});
    end(r);
}

/* Two convolutions, then their relus, then their pools: neither branch may overwrite an output of
 * the other. The input of one pool is padded only after the image. */
static void build_pools_in_turns(struct reference *r)
{
    reference_conv(r, 6, 3, 1, -1);
    int a = reference_last(r);
    reference_from(r, LAYER_INPUT_IMAGE);
    reference_conv(r, 6, 2, 1, -1);
    int b = reference_last(r);
    reference_from(r, a);
    reference_layer(r, LAYER_RELU);
    a = reference_last(r);
    reference_from(r, b);
    reference_layer(r, LAYER_RELU);
    b = reference_last(r);
    reference_from(r, a);
    reference_pool(r, LAYER_MAX_POOL, 3, 2, -1);
    a = reference_last(r);
    reference_from(r, b);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_join(r, LAYER_ADD, 2, (int[]){a, reference_last(r)});
    end(r);
}

/* The relu must not work in place, nor as part of the convolution, because another layer reads its
 * input. */
static void build_read_beside_relu(struct reference *r)
{
    reference_conv(r, 5, 3, 1, -1);
    int from = reference_last(r);
    reference_layer(r, LAYER_RELU);
    int a = reference_last(r);
    reference_join(r, LAYER_CONCAT, 2, (int[]){from, a});
    reference_layer(r, LAYER_FLATTEN);
    int flat = reference_last(r);
    reference_layer(r, LAYER_RELU);
    reference_join(r, LAYER_ADD, 2, (int[]){reference_last(r), flat});
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void build_flat_graph(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    int flat = reference_last(r);
    reference_dense(r, 20);
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.3f);
    int a = reference_last(r);
    reference_from(r, flat);
    reference_dense(r, 20);
    reference_layer(r, LAYER_BATCH_NORM);
    int b = reference_last(r);
    reference_join(r, LAYER_ADD, 2, (int[]){a, b});
    reference_layer(r, LAYER_RELU);
    reference_join(r, LAYER_CONCAT, 3, (int[]){reference_last(r), b, flat});
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void build_twice(struct reference *r)
{
    reference_conv(r, 4, 3, 1, -1);
    int a = reference_last(r);
    reference_join(r, LAYER_ADD, 3, (int[]){a, a, a});
    reference_layer(r, LAYER_RELU);
    int b = reference_last(r);
    reference_join(r, LAYER_CONCAT, 5, (int[]){b, a, b, a, LAYER_INPUT_IMAGE});
    reference_layer(r, LAYER_BATCH_NORM);
    end(r);
}

/* Only some inputs of the sum and the concat need gradients; the image has three readers, one of
 * them a relu. */
static void build_untrained_branch(struct reference *r)
{
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 3, 1, -1);
    int plain = reference_last(r);
    reference_from(r, LAYER_INPUT_IMAGE);
    reference_conv(r, 3, 3, 1, -1);
    int learns = reference_last(r);
    reference_join(r, LAYER_ADD, 3, (int[]){plain, learns, LAYER_INPUT_IMAGE});
    int sum = reference_last(r);
    reference_from(r, plain);
    reference_pool(r, LAYER_AVG_POOL, 3, 1, -1);
    reference_join(r, LAYER_CONCAT, 3, (int[]){reference_last(r), sum, plain});
    reference_dropout(r, 0.25f);
    reference_layer(r, LAYER_RELU);
    end(r);
}

/* Convolutions of ResNets: padded by a number, without biases, relus directly after them. */
static void build_unbiased(struct reference *r)
{
    reference_conv(r, 6, 7, 2, 3);
    reference_drop_bias(r);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 3, 2, 1);
    reference_conv(r, 8, 3, 1, 2);
    reference_drop_bias(r);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_pool(r, LAYER_AVG_POOL, 2, 1, 1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 12);
    reference_drop_bias(r);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 10);
    reference_drop_bias(r);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* Every activation, on images and on features, beside a relu and a pool that work in place. */
static void build_activations(struct reference *r)
{
    reference_conv(r, 6, 3, 1, -1);
    reference_layer(r, LAYER_SILU);
    reference_layer(r, LAYER_RELU);
    reference_layer(r, LAYER_TANH);
    reference_conv(r, 7, 3, 2, 1);
    reference_layer(r, LAYER_GELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 25);
    reference_layer(r, LAYER_LEAKY_RELU);
    reference_dense(r, 20);
    reference_layer(r, LAYER_SIGMOID);
    reference_dropout(r, 0.25f);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* The inputs of some activations are the image, or outputs that other layers read, too. */
static void build_activation_graph(struct reference *r)
{
    reference_layer(r, LAYER_GELU);
    int image = reference_last(r);
    reference_conv(r, 5, 3, 1, -1);
    int a = reference_last(r);
    reference_layer(r, LAYER_TANH);
    int b = reference_last(r);
    reference_join(r, LAYER_ADD, 2, (int[]){a, b});
    reference_layer(r, LAYER_RELU);
    reference_layer(r, LAYER_LEAKY_RELU);
    int c = reference_last(r);
    reference_from(r, a);
    reference_layer(r, LAYER_SILU);
    reference_join(r, LAYER_CONCAT, 3, (int[]){reference_last(r), c, image});
    reference_layer(r, LAYER_SIGMOID);
    end(r);
}

/* Products of two and three outputs, one of them read two times and one of them the image; sums
 * over channels and over features. */
static void build_products(struct reference *r)
{
    reference_conv(r, 2, 3, 1, -1);
    int a = reference_last(r);
    reference_conv(r, 2, 3, 1, -1);
    reference_layer(r, LAYER_TANH);
    int b = reference_last(r);
    reference_join(r, LAYER_MULTIPLY, 3, (int[]){a, b, LAYER_INPUT_IMAGE});
    reference_layer(r, LAYER_RELU);
    int c = reference_last(r);
    reference_join(r, LAYER_MULTIPLY, 3, (int[]){a, a, b});
    reference_join(r, LAYER_CONCAT, 2, (int[]){reference_last(r), c});
    reference_layer(r, LAYER_SUM);
    int cells = reference_last(r);
    reference_dense(r, 5);
    int d = reference_last(r);
    reference_layer(r, LAYER_SUM);
    int total = reference_last(r);
    reference_from(r, LAYER_INPUT_IMAGE);
    reference_layer(r, LAYER_SUM);
    reference_join(r, LAYER_MULTIPLY, 2, (int[]){reference_last(r), cells});
    reference_join(r, LAYER_CONCAT, 3, (int[]){reference_last(r), d, total});
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* Factorization machines: over columns that another layer also reads, with more units than a warp
 * of a GPU or a block of the CPU; over the image, which has no gradient; over one column. */
static void build_factorization(struct reference *r)
{
    reference_conv(r, 5, 3, 1, -1);
    int columns = reference_last(r);
    reference_layer(r, LAYER_FACTORIZATION_MACHINE);
    int pairs = reference_last(r);
    reference_from(r, LAYER_INPUT_IMAGE);
    reference_layer(r, LAYER_FACTORIZATION_MACHINE);
    int fixed = reference_last(r);
    reference_from(r, columns);
    reference_conv(r, 1, 1, 1, -1);
    reference_layer(r, LAYER_FACTORIZATION_MACHINE);
    int none = reference_last(r);
    reference_from(r, columns);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 6);
    reference_join(r, LAYER_CONCAT, 4, (int[]){reference_last(r), none, fixed, pairs});
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* No relu or max pool, whose choices rounding could change; layers large enough for rounding. */
static void build_smooth(struct reference *r)
{
    reference_conv(r, 16, 3, 1, -1);
    reference_conv(r, 32, 3, 1, -1);
    reference_pool(r, LAYER_AVG_POOL, 2, 2, -1);
    reference_conv(r, 32, 3, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 240);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* The layers of build_smooth with activations, but without leaky_relu, which has a kink. */
static void build_smooth_activations(struct reference *r)
{
    reference_conv(r, 16, 3, 1, -1);
    reference_layer(r, LAYER_SILU);
    reference_conv(r, 32, 3, 1, -1);
    reference_layer(r, LAYER_GELU);
    reference_pool(r, LAYER_AVG_POOL, 2, 2, -1);
    reference_conv(r, 32, 3, 2, -1);
    reference_layer(r, LAYER_TANH);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 240);
    reference_layer(r, LAYER_SIGMOID);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

const struct net bench_smooth[BENCH_N_SMOOTH] = {
    {"smooth", 3, 12, 12, build_smooth},
    {"smooth activations", 3, 12, 12, build_smooth_activations},
};

const struct net bench_nets[] = {
    {"softmax regression", 1, 9, 9, build_softmax},
    {"hidden layers", 1, 9, 7, build_hidden},
    {"deep", 1, 12, 12, build_deep},
    {"wide", 3, 8, 8, build_wide},
    {"strided", 3, 11, 8, build_strided},
    {"valid", 2, 9, 10, build_valid},
    {"overlapping pools", 2, 11, 11, build_overlapping_pools},
    {"pools first", 3, 8, 9, build_pools_first},
    {"batch norm", 1, 10, 10, build_norm},
    {"batch norm first", 3, 7, 7, build_norm_first},
    {"many pages", 1, 40, 40, build_pages},
    {"residual", 2, 8, 8, build_residual},
    {"residual with norms", 1, 9, 9, build_residual_norms},
    {"branches", 2, 9, 8, build_branches},
    {"read by three", 3, 8, 8, build_read_by_three},
    {"relu read by two", 2, 8, 8, build_relu_read_by_two},
    {"pools in turns", 2, 9, 7, build_pools_in_turns},
    {"read beside its relu", 2, 7, 7, build_read_beside_relu},
    {"flat graph", 1, 6, 6, build_flat_graph},
    {"one thing twice", 3, 6, 6, build_twice},
    {"nothing to learn below", 3, 8, 8, build_untrained_branch},
    {"layer norm", 2, 9, 7, build_layer_norm},
    {"embedding", 1, 6, 9, build_embedding},
    {"no biases", 2, 16, 13, build_unbiased},
    {"activations", 2, 11, 12, build_activations},
    {"activations in a graph", 2, 7, 8, build_activation_graph},
    [BENCH_SQUARED] = {"squared error", 1, 7, 8, build_squared},
    {"products and sums", 2, 7, 9, build_products},
    {"factorization machine", 3, 1, 70, build_factorization},
};
int bench_n_nets = sizeof bench_nets / sizeof bench_nets[0];
