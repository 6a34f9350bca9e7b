/* tests/kernel_conv_first_plan_test.c - tests which convolutions --gpu_tuning=first_conv computes
 * instead of cuDNN. The emulation (tests/emulation) lets the search for cuDNN's algorithms fail. A
 * plan that computes the convolution by first_conv does not search, so it succeeds with the
 * reference's gradients; any other plan fails. */
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/tuning.h"
#include "tests/check.h"
#include "tests/kernel_reference.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 3 };
static const struct backend *backend;
static void (*fault_set)(long long number);
static void (*fault_only)(const char *name);
static const char *(*fault_name)(void);

/* A net of a convolution, the layers after it, and a loss. */
struct form {
    int channels, side, filters, kernel, stride, padding;
    int before; /* true: after a batch norm, so not the first layer that learns */
    int relu, pool, pool_stride, pool_padding;
    int wider[2]; /* more kernel and stride along the second axis, without padding */
};

struct job {
    struct reference *r;
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    uint8_t *pixels, labels[BATCH];
    uint64_t position[BATCH];
};

static void conv_add(struct reference *r, const struct form *f)
{
    const struct shape *in = reference_shape(r, r->from);
    int wide[2] = {f->kernel + f->wider[0], f->stride + f->wider[1]};
    struct layer l = {.kind = LAYER_CONV2D,
                      .name = "wide",
                      .in = *in,
                      .out = {3,
                              {f->filters, (in->dim[1] - f->kernel) / f->stride + 1,
                               (in->dim[2] - wide[0]) / wide[1] + 1}},
                      .kernel = {f->kernel, wide[0]},
                      .stride = {f->stride, wide[1]},
                      .n_params = 2,
                      .param = {r->n_params, r->n_params + 1},
                      .n_inputs = 1,
                      .input = {r->from}};
    assert_int_equal(reference_param_add(r, f->filters * in->dim[0] * l.kernel[0] * l.kernel[1]),
                     ST_OK);
    assert_int_equal(reference_param_add(r, f->filters), ST_OK);
    assert_int_equal(reference_layer_add(r, &l), ST_OK);
}

static void job_make(struct job *j, const struct form *f)
{
    struct reference *r = j->r = reference_create(f->channels, f->side, f->side, BATCH, 5);
    if (f->before)
        reference_layer(r, LAYER_BATCH_NORM);
    if (f->wider[0] || f->wider[1])
        conv_add(r, f);
    else
        reference_conv(r, f->filters, f->kernel, f->stride, f->padding);
    if (f->relu)
        reference_layer(r, LAYER_RELU);
    if (f->pool)
        reference_pool(r, LAYER_MAX_POOL, f->pool, f->pool_stride, f->pool_padding);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
    for (int k = 0; k < r->n_params; k++) {
        size_t n = (size_t)r->param_elems[k];
        j->params[k] = calloc(n, sizeof(float));
        j->grads[k] = calloc(n, sizeof(float));
        assert_true(j->params[k] != NULL && j->grads[k] != NULL);
        for (size_t i = 0; i < n; i++) {
            j->params[k][i] =
                rng_uniform(rng_key(5, RNG_TEST, (uint64_t)k), (uint64_t)i) * 0.4f - 0.2f;
            r->param[k][i] = (double)j->params[k][i];
        }
    }
    size_t elems = (size_t)shape_elems(&r->layers[0].in);
    j->pixels = malloc(BATCH * elems);
    assert_non_null(j->pixels);
    for (size_t k = 0; k < BATCH * elems; k++)
        j->pixels[k] = (uint8_t)(k * 37 + k / 5 + k * k % 101);
    for (int k = 0; k < BATCH; k++) {
        j->labels[k] = (uint8_t)k;
        j->position[k] = (uint64_t)k;
    }
}

static void job_free(struct job *j)
{
    for (int k = 0; k < j->r->n_params; k++) {
        free(j->params[k]);
        free(j->grads[k]);
    }
    free(j->pixels);
    reference_destroy(j->r);
}

/* Runs one pass; *bytes: memory of the plan. */
static enum status pass(struct job *j, uint32_t tuning, enum backend_precision precision,
                        size_t *bytes)
{
    enum status st = ST_OK;
    struct plan *plan = NULL;
    const uint8_t *image[BATCH];
    int n = j->r->n_layers;
    struct backend_plan_config cfg = {.layers = j->r->layers,
                                      .n_layers = n,
                                      .batch = BATCH,
                                      .n_threads = 1,
                                      .n_params = j->r->n_params,
                                      .params = (const float *const *)j->params,
                                      .grads = j->grads,
                                      .seed = 5,
                                      .deterministic = 1,
                                      .precision = precision,
                                      .tuning = tuning};
    for (int k = 0; k < BATCH; k++)
        image[k] = j->pixels + k * shape_elems(&j->r->layers[0].in);
    TRY(backend->plan_create(&cfg, &plan));
    *bytes = backend->plan_memory_bytes(plan);
    TRY(backend->set_input(plan, image, j->labels, j->position, BATCH));
    for (int i = 0; i < n; i++)
        TRY(backend->forward(plan, i, 1));
    for (int i = n - 1; i >= 0; i--)
        TRY(backend->backward(plan, i));
    for (int i = n - 1; i >= 0; i--)
        TRY(backend->wait_grads(plan, i));
    TRY(backend->finish(plan));
done:
    backend->plan_destroy(plan);
    return st;
}

static void check_grads(const struct job *j)
{
    struct reference *r = j->r;
    reference_forward(r, j->pixels, j->labels, j->position, BATCH, 1);
    reference_backward(r);
    for (int k = 0; k < r->n_params; k++) {
        double worst = 0, largest = 0;
        for (int64_t i = 0; i < r->param_elems[k]; i++) {
            double error = fabs((double)j->grads[k][i] - r->grad[k][i]);
            worst = error <= worst ? worst : error;
            largest = fmax(largest, fabs(r->grad[k][i]));
        }
        if (!(worst <= 1e-4 * largest + 1e-6))
            fail_msg("gradient %d is off by %g of %g", k, worst, largest);
    }
}

/* Returns true if the pass calls the function `name`, whose first call then fails. */
static int calls(struct job *j, uint32_t tuning, enum backend_precision precision, const char *name)
{
    size_t bytes;
    fault_only(name);
    fault_set(1);
    enum status st = pass(j, tuning, precision, &bytes);
    const char *failed = fault_name();
    fault_set(0);
    fault_only(NULL);
    assert_int_equal(st == ST_OK, failed == NULL);
    return failed != NULL;
}

static void check(const struct form *f, uint32_t tuning, enum backend_precision precision,
                  int taken)
{
    static const char *const cudnn[] = {"cudnnGetConvolutionForwardAlgorithm_v7",
                                        "cudnnGetConvolutionBackwardFilterAlgorithm_v7"};
    struct job j;
    job_make(&j, f);
    for (int k = 0; k < 2; k++) {
        if (calls(&j, tuning, precision, cudnn[k]) == taken)
            fail_msg("%d channels of %d, kernel %d, stride %d: %s is %s", f->channels, f->side,
                     f->kernel, f->stride, cudnn[k], taken ? "called" : "not called");
        if (taken && precision == BACKEND_FP32) /* the dense layer rounds in tf32 */
            check_grads(&j);
    }
    job_free(&j);
}

static const struct form mnist = {1, 28, 32, 5, 1, -1, 0, 1, 2, 2, -1, {0, 0}};

/* Convolutions with each kind of following layers. Some of these layers are fused with the
 * convolution, others are not. */
static void suitable_convolutions_computed(void **state)
{
    static const struct form forms[] = {
        {1, 13, 5, 3, 1, -1, 0, 1, 2, 2, -1, {0, 0}}, /* a pool padded after the image */
        {1, 13, 5, 3, 1, -1, 0, 1, 2, 2, 0, {0, 0}},  /* a pool that omits cells */
        {1, 14, 5, 5, 2, -1, 0, 1, 3, 2, -1, {0, 0}}, /* padded more on one side; another pool */
        {1, 14, 5, 7, 2, -1, 0, 1, 2, 1, 0, {0, 0}},  /* overlapping */
        {1, 12, 5, 4, 1, 0, 0, 1, 0, 0, 0, {0, 0}},   /* only a relu */
        {1, 12, 5, 2, 1, 0, 0, 0, 0, 0, 0, {0, 0}},   /* no layer */
        {1, 12, 128, 6, 1, 0, 0, 0, 2, 2, 0, {0, 0}}, /* a pool without a relu */
    };
    check(&mnist, TUNING_FIRST_CONV, BACKEND_FP32, 1);
    check(&mnist, TUNING_FIRST_CONV, BACKEND_TF32, 1);
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++)
        check(&forms[k], TUNING_FIRST_CONV, BACKEND_FP32, 1);
}

static void other_convolutions_left_to_cudnn(void **state)
{
    static const struct form forms[] = {
        {2, 12, 5, 3, 1, -1, 0, 1, 2, 2, -1, {0, 0}},  /* two channels */
        {1, 12, 5, 3, 1, -1, 1, 1, 2, 2, -1, {0, 0}},  /* the gradient by its input is needed */
        {1, 43, 2, 3, 1, -1, 0, 1, 2, 2, -1, {0, 0}},  /* image too large */
        {1, 12, 129, 3, 1, 0, 0, 1, 2, 2, -1, {0, 0}}, /* too many filters */
        {1, 12, 5, 8, 1, 0, 0, 1, 2, 2, -1, {0, 0}},   /* kernel too large */
        {1, 12, 5, 1, 1, 0, 0, 1, 2, 2, -1, {0, 0}},   /* kernel of a single cell */
        {1, 12, 5, 3, 3, 0, 0, 1, 2, 2, -1, {0, 0}},   /* stride too large */
        {1, 12, 5, 3, 1, 0, 0, 1, 2, 2, -1, {2, 0}},   /* a kernel that is not square */
        {1, 12, 5, 3, 1, 0, 0, 1, 2, 2, -1, {0, 1}},   /* strides that differ */
    };
    check(&mnist, 0, BACKEND_FP32, 0);
    check(&mnist, TUNING_FIRST_CONV, BACKEND_BF16, 0);
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++)
        check(&forms[k], TUNING_FIRST_CONV, BACKEND_FP32, 0);
}

/* A convolution with a fused pool writes only the maxima, so the plan needs no memory for the input
 * of the pool. */
static void test_memory(void **state)
{
    struct job j;
    size_t plain, joined, apart;
    struct form overlapping = mnist;
    overlapping.pool = 3;
    job_make(&j, &mnist);
    assert_int_equal(pass(&j, 0, BACKEND_FP32, &plain), ST_OK);
    assert_int_equal(pass(&j, TUNING_FIRST_CONV, BACKEND_FP32, &joined), ST_OK);
    assert_true(joined < plain);
    job_free(&j);
    job_make(&j, &overlapping);
    assert_int_equal(pass(&j, TUNING_FIRST_CONV, BACKEND_FP32, &apart), ST_OK);
    assert_true(joined <= apart);
    job_free(&j);
}

static int look_up(void *so, const char *name, void *where)
{
    void *f = so != NULL ? dlsym(so, name) : NULL;
    memcpy(where, &f, sizeof f);
    return f != NULL;
}

int main(void)
{
    const char *path = WEIR_TEST_DIR "/libweir_emulated.so";
    if (access(path, F_OK) != 0)
        return skip_program("the emulated CUDA backend is not in this build");
    if (backend_open("emulated", WEIR_TEST_DIR, &backend) != ST_OK)
        return 1;
    void *so = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!look_up(so, "emulation_fault_set", &fault_set) ||
        !look_up(so, "emulation_fault_only", &fault_only) ||
        !look_up(so, "emulation_fault_name", &fault_name))
        return 1;
    return RUN_TESTS(suitable_convolutions_computed, other_convolutions_left_to_cudnn, test_memory);
}
