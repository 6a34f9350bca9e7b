/* kernels/cuda/layers/loss.cu - losses for labels (as one-hot rows) or targets, class by class:
 * sigmoids with cross-entropy, and squared errors. Each kernel also computes in one pass whether a
 * prediction is correct, and the gradient.
 *
 * Launch: a block of one warp per sample. Reads 4 bytes per class (8 with targets), and writes 4
 * bytes per class (8 with the gradient) and 12 bytes per sample. Sums are in doubles and have a
 * fixed order. If outputs are equal, the lowest class counts, as on the CPU. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/layers/rows.h"

enum { THREADS = 32 };

struct one {
    float y, slope; /* slope: derivative of `part` with respect to x */
    double part;    /* part of the loss for this class */
};

static __device__ inline struct one sigmoid_of(float x, float aim)
{
    float small = expf(-fabsf(x)); /* never overflows */
    float y = (x < 0.0f ? small : 1.0f) / (1.0f + small);
    double part = (double)(x > 0.0f ? x : 0.0f) + (double)log1pf(small) - (double)x * (double)aim;
    struct one out = {y, y - aim, part};
    return out;
}

static __device__ inline struct one squared_of(float x, float aim)
{
    double off = (double)x - (double)aim;
    struct one out = {x, 2.0f * (x - aim), off * off};
    return out;
}

static __device__ inline void loss_of_sample(const struct gpu_softmax &s, int squared)
{
    __shared__ int64_t best[THREADS];
    __shared__ double part[THREADS];
    int me = (int)threadIdx.x;
    const float *x = s.x + blockIdx.x * s.classes;
    int64_t label = s.labels != nullptr ? s.labels[blockIdx.x] : -1;
    const float *targets = s.targets != nullptr ? s.targets + blockIdx.x * s.classes : nullptr;
    int known = targets != nullptr || label >= 0;
    int64_t mine = me < s.classes ? me : 0;
    float share = 1.0f / ((float)s.n * (float)s.classes);
    double sum = 0.0;
    for (int64_t k = me; k < s.classes; k += THREADS) {
        float aim = targets != nullptr ? targets[k] : k == label ? 1.0f : 0.0f;
        struct one o = squared ? squared_of(x[k], aim) : sigmoid_of(x[k], aim);
        mine = x[k] > x[mine] ? k : mine;
        sum += o.part;
        s.y[blockIdx.x * s.classes + k] = o.y;
        if (s.dx != nullptr && known)
            s.dx[blockIdx.x * s.classes + k] = o.slope * share;
    }
    best[me] = mine;
    part[me] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half) {
            int64_t a = best[me], b = best[me + half];
            best[me] = x[b] > x[a] || (x[b] == x[a] && b < a) ? b : a;
            part[me] += part[me + half];
        }
    }
    if (me == 0 && known) {
        s.loss[blockIdx.x] = part[0] / (double)s.classes;
        s.hit[blockIdx.x] = targets == nullptr && best[0] == label;
    }
}

static __global__ void weir_sigmoid_xent(struct gpu_softmax s)
{
    loss_of_sample(s, 0);
}

static __global__ void weir_squared_error(struct gpu_softmax s)
{
    loss_of_sample(s, 1);
}

static int is_sound(const struct gpu_softmax *s)
{
    return s->x != nullptr && s->y != nullptr && s->n > 0 && s->n <= INT32_MAX && s->classes > 0 &&
           ((s->labels == nullptr && s->targets == nullptr) ||
            (s->loss != nullptr && s->hit != nullptr));
}

extern "C" int gpu_loss_sigmoid(struct CUstream_st *stream, const struct gpu_softmax *s)
{
    if (!is_sound(s))
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_sigmoid_xent, (unsigned)s->n, THREADS, stream, *s);
}

extern "C" int gpu_loss_squared(struct CUstream_st *stream, const struct gpu_softmax *s)
{
    if (!is_sound(s))
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_squared_error, (unsigned)s->n, THREADS, stream, *s);
}
