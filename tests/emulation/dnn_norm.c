/* tests/emulation/dnn_norm.c - cuDNN's batch normalization; see dnn.c. */
#include "tests/emulation/dnn.h"
#include <math.h>

static void check_floats(const char *what, const void *at, size_t n)
{
    emulation_check_device(what, at, n * sizeof(float));
}

/* Returns the position of value k of channel c, which has n * h * w values. */
static size_t norm_at(const int d[4], int c, int k)
{
    int plane = d[2] * d[3];
    return (size_t)((k / plane * d[1] + c) * plane + k % plane);
}

static void norm_check(cudnnBatchNormMode_t mode, const int d[4], const int params[4])
{
    if (mode == CUDNN_BATCHNORM_PER_ACTIVATION ? d[2] != 1 || d[3] != 1
                                               : mode != CUDNN_BATCHNORM_SPATIAL)
        emulation_fail("a mode of batch norm that is not emulated");
    if (params[0] != 1 || params[1] != d[1] || params[2] != 1 || params[3] != 1)
        emulation_fail("batch norm's parameters have another shape");
}

struct norm_call {
    int d[4];
    const float *x, *dy, *scale, *bias;
    float *y, *mean, *inverse; /* inference: the variance */
    float *dx, *dscale, *dbias;
    double epsilon;
};

static void norm_train(const void *args)
{
    const struct norm_call *b = args;
    int cells = b->d[0] * b->d[2] * b->d[3];
    for (int c = 0; c < b->d[1]; c++) {
        double sum = 0, squares = 0;
        for (int k = 0; k < cells; k++)
            sum += (double)b->x[norm_at(b->d, c, k)];
        for (int k = 0; k < cells; k++)
            squares += pow((double)b->x[norm_at(b->d, c, k)] - sum / cells, 2);
        double inv = 1 / sqrt(squares / cells + b->epsilon);
        b->mean[c] = (float)(sum / cells);
        b->inverse[c] = (float)inv;
        for (int k = 0; k < cells; k++) {
            size_t at = norm_at(b->d, c, k);
            b->y[at] = (float)(((double)b->x[at] - sum / cells) * inv * (double)b->scale[c] +
                               (double)b->bias[c]);
        }
    }
}

static void norm_infer(const void *args)
{
    const struct norm_call *b = args;
    int cells = b->d[0] * b->d[2] * b->d[3];
    for (int c = 0; c < b->d[1]; c++)
        for (int k = 0; k < cells; k++) {
            size_t at = norm_at(b->d, c, k);
            b->y[at] = (float)(((double)b->x[at] - (double)b->mean[c]) /
                                   sqrt((double)b->inverse[c] + b->epsilon) * (double)b->scale[c] +
                               (double)b->bias[c]);
        }
}

static void norm_back(const void *args)
{
    const struct norm_call *b = args;
    int cells = b->d[0] * b->d[2] * b->d[3];
    for (int c = 0; c < b->d[1]; c++) {
        double sum = 0, product = 0, mean = (double)b->mean[c], inv = (double)b->inverse[c];
        for (int k = 0; k < cells; k++) {
            size_t at = norm_at(b->d, c, k);
            sum += (double)b->dy[at];
            product += (double)b->dy[at] * ((double)b->x[at] - mean) * inv;
        }
        b->dscale[c] = (float)product;
        b->dbias[c] = (float)sum;
        for (int k = 0; k < cells; k++) {
            size_t at = norm_at(b->d, c, k);
            double normal = ((double)b->x[at] - mean) * inv;
            b->dx[at] = (float)((double)b->scale[c] * inv *
                                ((double)b->dy[at] - sum / cells - normal * product / cells));
        }
    }
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t h, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t xd, const void *x, const cudnnTensorDescriptor_t yd, void *y,
    const cudnnTensorDescriptor_t pd, const void *scale, const void *bias, double factor,
    void *running_mean, void *running_variance, double epsilon, void *mean, void *inverse)
{
    struct norm_call call = {.d = {xd->d[0], xd->d[1], xd->d[2], xd->d[3]},
                             .x = x,
                             .scale = scale,
                             .bias = bias,
                             .y = y,
                             .mean = mean,
                             .inverse = inverse,
                             .epsilon = epsilon};
    emulation_check_scale(alpha, beta);
    check_floats("x", x, elems(xd->d));
    check_floats("y", y, elems(yd->d));
    check_floats("mean", mean, elems(pd->d));
    check_floats("inverse", inverse, elems(pd->d));
    if (running_mean != NULL || running_variance != NULL)
        emulation_fail("running statistics are the caller's");
    norm_check(mode, xd->d, pd->d);
    return emulation_dnn_do(__func__, h, norm_train, &call, sizeof call);
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t h, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t xd, const void *x, const cudnnTensorDescriptor_t yd, void *y,
    const cudnnTensorDescriptor_t pd, const void *scale, const void *bias, const void *mean,
    const void *variance, double epsilon)
{
    struct norm_call call = {.d = {xd->d[0], xd->d[1], xd->d[2], xd->d[3]},
                             .x = x,
                             .scale = scale,
                             .bias = bias,
                             .y = y,
                             .mean = (float *)mean,
                             .inverse = (float *)variance,
                             .epsilon = epsilon};
    emulation_check_scale(alpha, beta);
    check_floats("x", x, elems(xd->d));
    check_floats("y", y, elems(yd->d));
    norm_check(mode, xd->d, pd->d);
    return emulation_dnn_do(__func__, h, norm_infer, &call, sizeof call);
}

cudnnStatus_t cudnnBatchNormalizationBackward(cudnnHandle_t h, cudnnBatchNormMode_t mode,
                                              const void *alpha, const void *beta,
                                              const void *alpha_params, const void *beta_params,
                                              const cudnnTensorDescriptor_t xd, const void *x,
                                              const cudnnTensorDescriptor_t yd, const void *dy,
                                              const cudnnTensorDescriptor_t dxd, void *dx,
                                              const cudnnTensorDescriptor_t pd, const void *scale,
                                              void *dscale, void *dbias, double epsilon,
                                              const void *mean, const void *inverse)
{
    struct norm_call call = {.d = {xd->d[0], xd->d[1], xd->d[2], xd->d[3]},
                             .x = x,
                             .dy = dy,
                             .scale = scale,
                             .mean = (float *)mean,
                             .inverse = (float *)inverse,
                             .dx = dx,
                             .dscale = dscale,
                             .dbias = dbias,
                             .epsilon = epsilon};
    emulation_check_scale(alpha, beta);
    emulation_check_scale(alpha_params, beta_params);
    check_floats("dx", dx, elems(dxd->d));
    check_floats("dscale", dscale, elems(pd->d));
    check_floats("dbias", dbias, elems(pd->d));
    if (dx == dy || dx == x)
        emulation_fail("batch norm's gradient in place");
    norm_check(mode, xd->d, pd->d);
    return emulation_dnn_do(__func__, h, norm_back, &call, sizeof call);
}
