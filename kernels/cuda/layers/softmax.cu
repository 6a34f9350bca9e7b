/* kernels/cuda/layers/softmax.cu - computes in one pass softmax, cross-entropy, whether the
 * prediction is correct, and the gradient of the mean cross-entropy. Launch: a block of one warp
 * per sample. Reads x twice (with smoothing three times) and y once, writes y twice and dx once: 24
 * bytes per class (28 with smoothing). If outputs are equal, the lowest class counts, as on the
 * CPU. */
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 32 };

static __global__ void weir_softmax_xent(struct gpu_softmax s)
{
    __shared__ int64_t best[THREADS];
    __shared__ float part[THREADS];
    int me = (int)threadIdx.x;
    const float *x = s.x + blockIdx.x * s.classes;
    float *y = s.y + blockIdx.x * s.classes;
    int64_t mine = me < s.classes ? me : 0;
    for (int64_t k = me; k < s.classes; k += THREADS)
        mine = x[k] > x[mine] ? k : mine;
    best[me] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half) {
            int64_t a = best[me], b = best[me + half];
            best[me] = x[b] > x[a] || (x[b] == x[a] && b < a) ? b : a;
        }
    }
    __syncthreads();
    int64_t top = best[0];
    float sum = 0.0f;
    for (int64_t k = me; k < s.classes; k += THREADS) {
        float e = expf(x[k] - x[top]);
        y[k] = e;
        sum += e;
    }
    part[me] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half)
            part[me] += part[me + half];
    }
    __syncthreads();
    sum = part[0];
    float scale = 1.0f / sum, share = 1.0f / (float)s.n;
    float aim = share * (1.0f - s.smoothing), others = share * s.smoothing / (float)s.classes;
    int64_t label = s.labels != nullptr ? s.labels[blockIdx.x] : -1;
    for (int64_t k = me; k < s.classes; k += THREADS) {
        float p = y[k] * scale;
        y[k] = p;
        if (s.dx != nullptr && label >= 0)
            s.dx[blockIdx.x * s.classes + k] = p * share - others - (k == label ? aim : 0.0f);
    }
    if (me == 0 && label >= 0) {
        double want = (double)x[label];
        if (s.smoothing > 0.0f) {
            double mean = 0.0, share_of_all = (double)s.smoothing;
            for (int64_t k = 0; k < s.classes; k++)
                mean += (double)x[k] / (double)s.classes;
            want = (1.0 - share_of_all) * want + share_of_all * mean;
        }
        s.loss[blockIdx.x] = (double)logf(sum) + ((double)x[top] - want);
        s.hit[blockIdx.x] = top == label;
    }
}

extern "C" int gpu_softmax_run(struct CUstream_st *stream, const struct gpu_softmax *s)
{
    if (s->x == nullptr || s->y == nullptr || s->n < 1 || s->n > INT32_MAX || s->classes < 1 ||
        !(s->smoothing >= 0.0f && s->smoothing < 1.0f) ||
        (s->labels != nullptr && (s->loss == nullptr || s->hit == nullptr)))
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_softmax_xent, (unsigned)s->n, THREADS, stream, *s);
}
