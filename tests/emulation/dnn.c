/* tests/emulation/dnn.c - the functions of cuDNN that the backend calls, by their definitions in
 * plain loops; batch norm: dnn_norm.c. They are strict where the real functions are vague:
 * arguments must be device memory of the descriptors' sizes, the requested part of a workspace is
 * overwritten with NaN, and the algorithm and its math must be a proposed pair. Work uses a
 * descriptor as it was at the time of the call, even if the caller changes it before the work is
 * done.
 *
 * WEIR_EMULATED_CONV selects a fault. "fails": the fastest proposal has a known workspace, but
 * fails when it runs, as some proposals of cuDNN do. "none": no proposal is usable. "untimed": no
 * algorithm can be timed. */
#include "tests/emulation/dnn.h"
#include "tests/emulation/errors.h"
#include "tests/emulation/streams.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(cudnnDataType_t type, const int d[4])
{
    return elems(d) * (type == CUDNN_DATA_FLOAT ? 4 : 2);
}

static void check_values(const char *what, const void *at, cudnnDataType_t type, const int d[4])
{
    emulation_check_device(what, at, bytes_of(type, d));
}

/* ---- cuDNN: handles and descriptors ---- */

size_t cudnnGetVersion(void)
{
    return 90102;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "success" : "emulated cuDNN error";
}

void cudnnGetLastErrorString(char *out, size_t size)
{
    if (size > 0)
        out[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return CUDNN_STATUS_ALLOC_FAILED;
    emulation_handle_init(&(*out)->handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    free(h);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    h->handle.stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    *out = calloc(1, sizeof **out);
    return *out != NULL ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d)
{
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    if (format != CUDNN_TENSOR_NCHW || (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16) ||
        n < 1 || c < 1 || h < 1 || w < 1)
        return CUDNN_STATUS_BAD_PARAM;
    int d[4] = {n, c, h, w};
    memcpy(t->d, d, sizeof d);
    t->type = type;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *out)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    *out = calloc(1, sizeof **out);
    return *out != NULL ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d)
{
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    if (format != CUDNN_TENSOR_NCHW || (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16))
        return CUDNN_STATUS_BAD_PARAM;
    int d[4] = {k, c, h, w};
    memcpy(f->d, d, sizeof d);
    f->type = type;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *out)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    *out = calloc(1, sizeof **out);
    return *out != NULL ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d)
{
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t c, int pad_h, int pad_w,
                                              int u, int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t type)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    if (mode != CUDNN_CROSS_CORRELATION || type != CUDNN_DATA_FLOAT || dilation_h != 1 ||
        dilation_w != 1)
        return CUDNN_STATUS_BAD_PARAM;
    c->pad[0] = pad_h;
    c->pad[1] = pad_w;
    c->stride[0] = u;
    c->stride[1] = v;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    c->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t emulation_dnn_do(const char *name, cudnnHandle_t h, void (*run)(const void *),
                               const void *args, size_t bytes)
{
    emulation_handle_begin(&h->handle);
    int code = emulation_do_as(name, h->handle.stream, run, args, bytes);
    emulation_handle_end(&h->handle);
    return code == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

/* ---- cuDNN: convolution ---- */

/* Algorithms that the emulation proposes, fastest first. BROKEN is unusable. FAILS fails when it
 * runs; without WEIR_EMULATED_CONV=fails it is unusable, too. HALF and TF32 round factors to half
 * precision or TF32. LOOSE sums in no fixed order. FIXED sums in a fixed order and needs a
 * workspace. PLAIN sums in a fixed order without a workspace. FAILS and FIXED are proposed twice:
 * with default math, and in TF32. */
enum { ALGO_BROKEN, ALGO_FAILS, ALGO_HALF, ALGO_TF32, ALGO_LOOSE, ALGO_FIXED, ALGO_PLAIN, N_ALGOS };
static const struct proposal {
    int algo;
    cudnnMathType_t math;
} proposals[] = {
    {ALGO_BROKEN, CUDNN_DEFAULT_MATH},  {ALGO_FAILS, CUDNN_DEFAULT_MATH},
    {ALGO_FAILS, CUDNN_TENSOR_OP_MATH}, {ALGO_HALF, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION},
    {ALGO_TF32, CUDNN_TENSOR_OP_MATH},  {ALGO_LOOSE, CUDNN_DEFAULT_MATH},
    {ALGO_FIXED, CUDNN_DEFAULT_MATH},   {ALGO_FIXED, CUDNN_TENSOR_OP_MATH},
    {ALGO_PLAIN, CUDNN_DEFAULT_MATH},
};
enum { N_PROPOSALS = sizeof proposals / sizeof *proposals };

/* Algorithms in the order of their timed speed, fastest first. This is not the order of the
 * proposals. Algorithms that cannot run are anywhere in this list, whereas cuDNN's own list has
 * them at its end. */
static const struct proposal timed[] = {
    {ALGO_FAILS, CUDNN_DEFAULT_MATH},   {ALGO_HALF, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION},
    {ALGO_FIXED, CUDNN_TENSOR_OP_MATH}, {ALGO_FIXED, CUDNN_DEFAULT_MATH},
    {ALGO_PLAIN, CUDNN_DEFAULT_MATH},   {ALGO_TF32, CUDNN_TENSOR_OP_MATH},
    {ALGO_LOOSE, CUDNN_DEFAULT_MATH},   {ALGO_BROKEN, CUDNN_DEFAULT_MATH},
};
enum { N_TIMED = sizeof timed / sizeof *timed };

/* Counts for tests: timings, convolutions by any algorithm, and convolutions by the fastest one
 * (ALGO_FIXED, in bf16 on Tensor Cores). */
static _Atomic int n_timings, n_runs, n_fixed_runs;
void emulation_conv_counts(int *timings, int *runs, int *fixed_runs)
{
    *timings = n_timings;
    *runs = n_runs;
    *fixed_runs = n_fixed_runs;
}

static int algos_are(const char *what)
{
    const char *e = getenv("WEIR_EMULATED_CONV");
    return e != NULL && strcmp(e, what) == 0;
}

static size_t algo_bytes(int algo, const struct cudnnTensorStruct *y)
{
    return algo == ALGO_PLAIN ? 0 : elems(y->d) * (size_t)(algo + 1);
}

static int was_proposed(int algo, cudnnMathType_t math)
{
    for (int i = 0; i < N_PROPOSALS; i++)
        if (proposals[i].algo == algo && proposals[i].math == math)
            return 1;
    return 0;
}

#define PROPOSE(type)                                                                              \
    static void propose_##type(cudnnConvolution##type##Perf_t *p)                                  \
    {                                                                                              \
        for (int i = 0; i < N_PROPOSALS; i++) {                                                    \
            int algo = proposals[i].algo;                                                          \
            int none = algo == ALGO_BROKEN || (algo == ALGO_FAILS && !algos_are("fails")) ||       \
                       algos_are("none");                                                          \
            memset(&p[i], 0, sizeof p[i]);                                                         \
            p[i].algo = (cudnnConvolution##type##_t)algo;                                          \
            p[i].status = none ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;                \
            p[i].memory = 1; /* unreliable */                                                      \
            p[i].determinism = algo == ALGO_LOOSE ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC; \
            p[i].mathType = proposals[i].math;                                                     \
        }                                                                                          \
    }
PROPOSE(FwdAlgo)
PROPOSE(BwdFilterAlgo)
PROPOSE(BwdDataAlgo)

/* Checks the output, and refuses the arguments that cuDNN refuses. */
static cudnnStatus_t conv_check(cudnnHandle_t h, const struct cudnnTensorStruct *x,
                                const struct cudnnFilterStruct *w,
                                const struct cudnnConvolutionStruct *c,
                                const struct cudnnTensorStruct *y)
{
    int fits = x->type == y->type && x->type == w->type && y->d[0] == x->d[0] &&
               y->d[1] == w->d[0] && x->d[1] == w->d[1];
    for (int k = 0; k < 2; k++)
        fits &= y->d[2 + k] == 1 + (x->d[2 + k] + 2 * c->pad[k] - w->d[2 + k]) / c->stride[k];
    if (x->type == CUDNN_DATA_BFLOAT16 && !h->handle.sees_bf16)
        return CUDNN_STATUS_NOT_SUPPORTED;
    return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t h, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t y, const int asked, int *n,
    cudnnConvolutionFwdAlgoPerf_t *perf)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    if (asked < N_PROPOSALS)
        emulation_fail("room for few algorithms");
    propose_FwdAlgo(perf);
    *n = N_PROPOSALS;
    return conv_check(h, x, w, c, y);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t h, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnFilterDescriptor_t dw, const int asked, int *n,
    cudnnConvolutionBwdFilterAlgoPerf_t *perf)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    if (asked < N_PROPOSALS)
        emulation_fail("room for few algorithms");
    propose_BwdFilterAlgo(perf);
    *n = N_PROPOSALS;
    return conv_check(h, x, dw, c, dy);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t h, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t dx, const int asked, int *n,
    cudnnConvolutionBwdDataAlgoPerf_t *perf)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    if (asked < N_PROPOSALS)
        emulation_fail("room for few algorithms");
    propose_BwdDataAlgo(perf);
    *n = N_PROPOSALS;
    return conv_check(h, dx, w, c, dy);
}

/* Returns an error for ALGO_BROKEN, as cuDNN may for a proposal with another math type. */
static cudnnStatus_t workspace_of(int algo, const struct cudnnTensorStruct *y, size_t *bytes)
{
    *bytes = algo_bytes(algo, y);
    return algo == ALGO_BROKEN ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t h,
                                                      const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t c,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algo, size_t *bytes)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    return workspace_of((int)algo, y, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t h, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    return workspace_of((int)algo, dy, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t h, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    return workspace_of((int)algo, dy, bytes);
}

struct conv {
    struct cudnnTensorStruct x, y;
    struct cudnnFilterStruct w;
    struct cudnnConvolutionStruct c;
};

static void conv_check_algo(const struct conv *v, int algo, void *work, size_t bytes)
{
    int fma = v->c.math == CUDNN_FMA_MATH, tf32 = !was_proposed(algo, CUDNN_DEFAULT_MATH);
    if (algo == ALGO_BROKEN || (!fma && !was_proposed(algo, v->c.math)))
        emulation_fail("not the algorithm and math that were proposed");
    if (fma && tf32)
        emulation_fail("TF32 asked for under FMA math");
    if (algo == ALGO_HALF)
        emulation_fail("an algorithm that rounds floats to half precision");
    if (bytes < algo_bytes(algo, &v->y))
        emulation_fail("too little workspace");
    emulation_check_device("workspace", work, algo_bytes(algo, &v->y));
}

/* Calls f for all inputs and weights of the output at row at[0] and column at[1]. y: index of this
 * output; x and w: first index of its sample and of its filter. */
static inline __attribute__((always_inline)) void
conv_walk_cell(const struct conv *v, void (*f)(void *, size_t, size_t, size_t), void *ctx,
               const int at[2], size_t y, size_t x, size_t w)
{
    const int *in = v->x.d, *filter = v->w.d;
    int first_y = at[0] * v->c.stride[0] - v->c.pad[0];
    int first_x = at[1] * v->c.stride[1] - v->c.pad[1];
    int from = first_x < 0 ? 0 : first_x;
    int to = first_x + filter[3] < in[3] ? first_x + filter[3] : in[3];
    for (int c = 0; c < filter[1]; c++)
        for (int iy = first_y; iy < first_y + filter[2]; iy++, w += (size_t)filter[3])
            for (int ix = from; iy >= 0 && iy < in[2] && ix < to; ix++)
                f(ctx, y, x + (size_t)((c * in[2] + iy) * in[3] + ix), w + (size_t)(ix - first_x));
}

/* Calls f for all triples (output, input, weight). */
static inline __attribute__((always_inline)) void
conv_walk(const struct conv *v, void (*f)(void *, size_t, size_t, size_t), void *ctx)
{
    const int *out = v->y.d;
    size_t sample = elems(v->x.d) / (size_t)v->x.d[0], y = 0;
    size_t filter = elems(v->w.d) / (size_t)v->w.d[0];
    for (int n = 0; n < out[0]; n++)
        for (int o = 0; o < out[1]; o++)
            for (int oy = 0; oy < out[2]; oy++)
                for (int ox = 0; ox < out[3]; ox++)
                    conv_walk_cell(v, f, ctx, (int[]){oy, ox}, y++, (size_t)n * sample,
                                   (size_t)o * filter);
}

struct conv_sums {
    const void *x, *w, *dy;
    double *all_x, *all_w, *all_dy; /* rounded for the product; NULL: unused */
    double *sum;
    cudnnDataType_t type;
    int bits; /* bits to which factors are rounded; only with CUDNN_FMA_MATH they keep all bits */
};

static inline __attribute__((always_inline)) void add_y(void *ctx, size_t y, size_t x, size_t w)
{
    struct conv_sums *s = ctx;
    s->sum[y] += s->all_x[x] * s->all_w[w];
}

static inline __attribute__((always_inline)) void add_dw(void *ctx, size_t y, size_t x, size_t w)
{
    struct conv_sums *s = ctx;
    s->sum[w] += s->all_x[x] * s->all_dy[y];
}

static inline __attribute__((always_inline)) void add_dx(void *ctx, size_t y, size_t x, size_t w)
{
    struct conv_sums *s = ctx;
    s->sum[x] += s->all_w[w] * s->all_dy[y];
}

/* Returns a copy of the values, rounded as a product rounds its factors; NULL if `values` is
 * NULL. */
static double *factors(const struct conv_sums *s, const void *values, size_t n)
{
    double *all = values ? malloc((n + 1) * sizeof *all) : NULL;
    if (values && all == NULL)
        emulation_fail("no memory");
    for (size_t i = 0; values && i < n; i++)
        all[i] = emulation_factor(value_get(values, s->type, i), s->bits);
    return all;
}

struct conv_call {
    struct conv v;
    void (*f)(void *, size_t, size_t, size_t);
    struct conv_sums s;
    void *out;
    size_t n; /* values of out */
    int algo;
    void *work;
    size_t work_bytes;
    double sound;
    struct emulation_work used; /* used part of the workspace */
};

static void conv_run(const void *args)
{
    struct conv_call c = *(const struct conv_call *)args;
    emulation_work_check(&c.used);
    c.s.sum = calloc(c.n, sizeof *c.s.sum);
    if (c.s.sum == NULL)
        emulation_fail("no memory");
    c.s.type = c.v.x.type;
    c.s.bits = c.v.c.math != CUDNN_FMA_MATH ? TF32_BITS : ALL_BITS;
    c.s.all_x = factors(&c.s, c.s.x, elems(c.v.x.d));
    c.s.all_w = factors(&c.s, c.s.w, elems(c.v.w.d));
    c.s.all_dy = factors(&c.s, c.s.dy, elems(c.v.y.d));
    if (c.f == add_y)
        conv_walk(&c.v, add_y, &c.s);
    else if (c.f == add_dw)
        conv_walk(&c.v, add_dw, &c.s);
    else
        conv_walk(&c.v, add_dx, &c.s);
    double sound = c.sound;
    for (size_t k = 0; k < c.n; k++)
        value_set(c.out, c.s.type, k, (float)(c.s.sum[k] * sound));
    free(c.s.all_x);
    free(c.s.all_w);
    free(c.s.all_dy);
    free(c.s.sum);
}

static cudnnStatus_t conv_do(const char *name, cudnnHandle_t h, struct conv_call *c)
{
    conv_check_algo(&c->v, c->algo, c->work, c->work_bytes);
    if (c->algo == ALGO_FAILS || (c->algo != ALGO_PLAIN && emulation_fault("an algorithm")))
        return CUDNN_STATUS_NOT_SUPPORTED;
    c->sound = emulation_soundness();
    n_runs++;
    n_fixed_runs += c->algo == ALGO_FIXED &&
                    (c->v.x.type == CUDNN_DATA_FLOAT || c->v.c.math == CUDNN_TENSOR_OP_MATH);
    emulation_work_queue(h->handle.stream, c->work, algo_bytes(c->algo, &c->v.y), &c->used);
    return emulation_dnn_do(name, h, conv_run, c, sizeof *c);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha,
                                      const cudnnTensorDescriptor_t xd, const void *x,
                                      const cudnnFilterDescriptor_t wd, const void *w,
                                      const cudnnConvolutionDescriptor_t c,
                                      cudnnConvolutionFwdAlgo_t algo, void *work, size_t bytes,
                                      const void *beta, const cudnnTensorDescriptor_t yd, void *y)
{
    struct conv v = {*xd, *yd, *wd, *c};
    emulation_check_scale(alpha, beta);
    check_values("x", x, xd->type, xd->d);
    check_values("w", w, wd->type, wd->d);
    check_values("y", y, yd->type, yd->d);
    struct conv_call call = {v, add_y, {.x = x, .w = w}, y, elems(yd->d), (int)algo, work, bytes,
                             1, {0}};
    return conv_do(__func__, h, &call);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha,
                                             const cudnnTensorDescriptor_t xd, const void *x,
                                             const cudnnTensorDescriptor_t yd, const void *dy,
                                             const cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void *work,
                                             size_t bytes, const void *beta,
                                             const cudnnFilterDescriptor_t wd, void *dw)
{
    struct conv v = {*xd, *yd, *wd, *c};
    emulation_check_scale(alpha, beta);
    check_values("x", x, xd->type, xd->d);
    check_values("dw", dw, wd->type, wd->d);
    check_values("dy", dy, yd->type, yd->d);
    struct conv_call call = {
        v, add_dw, {.x = x, .dy = dy}, dw, elems(wd->d), (int)algo, work, bytes, 1, {0}};
    return conv_do(__func__, h, &call);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha,
                                           const cudnnFilterDescriptor_t wd, const void *w,
                                           const cudnnTensorDescriptor_t yd, const void *dy,
                                           const cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t algo, void *work,
                                           size_t bytes, const void *beta,
                                           const cudnnTensorDescriptor_t xd, void *dx)
{
    struct conv v = {*xd, *yd, *wd, *c};
    emulation_check_scale(alpha, beta);
    check_values("dx", dx, xd->type, xd->d);
    check_values("w", w, wd->type, wd->d);
    check_values("dy", dy, yd->type, yd->d);
    if (dx == dy)
        emulation_fail("a convolution in place");
    struct conv_call call = {
        v, add_dx, {.w = w, .dy = dy}, dx, elems(xd->d), (int)algo, work, bytes, 1, {0}};
    return conv_do(__func__, h, &call);
}

/* ---- cuDNN: convolution algorithms that are timed ---- */

/* Times all algorithms, including those that round to half precision or TF32. Algorithms for Tensor
 * Cores are timed only if the descriptor allows Tensor Cores. */
#define TIME(kind)                                                                                 \
    static int time_##kind(cudnnConvolution##kind##Perf_t *p, const struct conv *v, size_t work)   \
    {                                                                                              \
        int n = 0;                                                                                 \
        for (int i = 0; i < N_TIMED; i++) {                                                        \
            int algo = timed[i].algo, cores = timed[i].math != CUDNN_DEFAULT_MATH;                 \
            int none = algo == ALGO_BROKEN || (algo == ALGO_FAILS && !algos_are("fails")) ||       \
                       algos_are("untimed");                                                       \
            if (cores && v->x.type != CUDNN_DATA_FLOAT && v->c.math != CUDNN_TENSOR_OP_MATH)       \
                continue;                                                                          \
            memset(&p[n], 0, sizeof p[n]);                                                         \
            p[n].algo = (cudnnConvolution##kind##_t)algo;                                          \
            p[n].status = none                             ? CUDNN_STATUS_NOT_SUPPORTED            \
                          : algo_bytes(algo, &v->y) > work ? CUDNN_STATUS_ALLOC_FAILED             \
                                                           : CUDNN_STATUS_SUCCESS;                 \
            p[n].time = p[n].status == CUDNN_STATUS_SUCCESS ? (float)(i + 1) : -1.0f;              \
            p[n].memory = 1; /* unreliable */                                                      \
            p[n].determinism = algo == ALGO_LOOSE ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC; \
            p[n].mathType = cores || v->c.math != CUDNN_FMA_MATH ? timed[i].math : CUDNN_FMA_MATH; \
            n++;                                                                                   \
        }                                                                                          \
        return n;                                                                                  \
    }
TIME(FwdAlgo)
TIME(BwdFilterAlgo)
TIME(BwdDataAlgo)

struct timing {
    void *out, *work;
    size_t out_bytes, work_bytes;
};

static void timing_run(const void *args)
{
    const struct timing *t = args;
    memset(t->out, 0xff, t->out_bytes);
    if (t->work_bytes > 0)
        memset(t->work, 0xff, t->work_bytes);
}

/* Runs all algorithms, which overwrites the output and the used part of the workspace, and waits
 * for them. */
static cudnnStatus_t timing_do(cudnnHandle_t h, const struct conv *v, int asked, struct timing t)
{
    size_t used = 0;
    cudnnStatus_t code = conv_check(h, &v->x, &v->w, &v->c, &v->y);
    if (code != CUDNN_STATUS_SUCCESS)
        return code;
    if (asked < N_TIMED)
        emulation_fail("room for few algorithms");
    if (t.work_bytes > 0)
        emulation_check_device("workspace", t.work, t.work_bytes);
    for (int i = 0; i < N_TIMED; i++) {
        size_t bytes = algo_bytes(timed[i].algo, &v->y);
        if (bytes > used && bytes <= t.work_bytes)
            used = bytes;
    }
    t.work_bytes = used;
    if (emulation_forbid() != cudaSuccess || emulation_before_launch(h->handle.stream) != 0)
        return CUDNN_STATUS_EXECUTION_FAILED;
    emulation_handle_begin(&h->handle);
    emulation_later(h->handle.stream, timing_run, &t, sizeof t);
    emulation_finish(h->handle.stream);
    emulation_handle_end(&h->handle);
    n_timings++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t h, const cudnnTensorDescriptor_t xd, const void *x,
    const cudnnFilterDescriptor_t wd, const void *w, const cudnnConvolutionDescriptor_t c,
    const cudnnTensorDescriptor_t yd, void *y, const int asked, int *n,
    cudnnConvolutionFwdAlgoPerf_t *perf, void *work, size_t bytes)
{
    struct conv v = {*xd, *yd, *wd, *c};
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    check_values("x", x, xd->type, xd->d);
    check_values("w", w, wd->type, wd->d);
    check_values("y", y, yd->type, yd->d);
    *n = time_FwdAlgo(perf, &v, bytes);
    return timing_do(h, &v, asked, (struct timing){y, work, bytes_of(yd->type, yd->d), bytes});
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t h, const cudnnTensorDescriptor_t xd, const void *x,
    const cudnnTensorDescriptor_t yd, const void *dy, const cudnnConvolutionDescriptor_t c,
    const cudnnFilterDescriptor_t wd, void *dw, const int asked, int *n,
    cudnnConvolutionBwdFilterAlgoPerf_t *perf, void *work, size_t bytes)
{
    struct conv v = {*xd, *yd, *wd, *c};
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    check_values("x", x, xd->type, xd->d);
    check_values("dw", dw, wd->type, wd->d);
    check_values("dy", dy, yd->type, yd->d);
    *n = time_BwdFilterAlgo(perf, &v, bytes);
    return timing_do(h, &v, asked, (struct timing){dw, work, bytes_of(wd->type, wd->d), bytes});
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t h, const cudnnFilterDescriptor_t wd, const void *w,
    const cudnnTensorDescriptor_t yd, const void *dy, const cudnnConvolutionDescriptor_t c,
    const cudnnTensorDescriptor_t xd, void *dx, const int asked, int *n,
    cudnnConvolutionBwdDataAlgoPerf_t *perf, void *work, size_t bytes)
{
    struct conv v = {*xd, *yd, *wd, *c};
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    check_values("dx", dx, xd->type, xd->d);
    check_values("w", w, wd->type, wd->d);
    check_values("dy", dy, yd->type, yd->d);
    if (dx == dy)
        emulation_fail("a convolution in place");
    *n = time_BwdDataAlgo(perf, &v, bytes);
    return timing_do(h, &v, asked, (struct timing){dx, work, bytes_of(xd->type, xd->d), bytes});
}
