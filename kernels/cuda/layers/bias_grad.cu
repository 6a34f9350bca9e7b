/* kernels/cuda/layers/bias_grad.cu - the gradient of a bias: the sum of dy over the samples and the
 * cells of a plane. The values of a channel are divided into `splits` runs with fixed bounds. One
 * block adds each run. If a plane is a single value, one thread adds each run, and neighbouring
 * threads read neighbouring values. Then the sums of the runs are added in the order of the runs.
 * dy is read once: 4 bytes per value. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/conv/channels_kernels.h"

static const int THREADS = 128;
static const int64_t MAX_SPLITS = 32, ITEMS_PER_SPLIT = 4096, ROWS_PER_SPLIT = 32;

static int64_t splits_of(struct gpu_planes shape)
{
    int64_t splits =
        shape.plane == 1 ? shape.n / ROWS_PER_SPLIT : shape.n * shape.plane / ITEMS_PER_SPLIT;
    return splits < 1 ? 1 : splits > MAX_SPLITS ? MAX_SPLITS : splits;
}

extern "C" int64_t gpu_bias_grad_scratch(struct gpu_planes shape)
{
    return MAX_SPLITS * shape.channels;
}

/* Launch: grid (channels, splits), THREADS threads; writes one sum per block. */
static __global__ void weir_sum_planes(const float *dy, float *sums, struct gpu_planes shape)
{
    __shared__ float part[THREADS];
    int64_t items = shape.n * shape.plane, channel = blockIdx.x, split = blockIdx.y;
    int64_t end = items * (split + 1) / gridDim.y;
    float sum = 0.0f;
    for (int64_t k = items * split / gridDim.y + threadIdx.x; k < end; k += THREADS) {
        int64_t sample = quotient(k, shape.plane), cell = k - sample * shape.plane;
        sum += dy[(sample * shape.channels + channel) * shape.plane + cell];
    }
    part[threadIdx.x] = sum;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        sums[split * shape.channels + channel] = part[0];
}

/* Computes the same sums from channels last. Launch: grid (groups of LANES channels, splits),
 * LAST_THREADS threads. Neighbouring threads read neighbouring channels: 8 floats are 32 bytes, the
 * size of a memory transaction. Each thread keeps the sums of several threads of weir_sum_planes.
 * If a block had more channels, there would be too few blocks to use the whole GPU. */
enum { LAST_THREADS = 256, LANES = 8, LAST_ROWS = LAST_THREADS / LANES };

static __global__ void weir_sum_last(const float *dy, float *sums, struct gpu_planes shape)
{
    enum { EACH = THREADS / LAST_ROWS };
    __shared__ float part[THREADS][LANES];
    int lane = (int)threadIdx.x % LANES, row = (int)threadIdx.x / LANES;
    int64_t items = shape.n * shape.plane, split = blockIdx.y;
    int64_t channel = (int64_t)blockIdx.x * LANES + lane;
    int64_t end = channel < shape.channels ? items * (split + 1) / gridDim.y : 0;
    float sum[EACH] = {0.0f};
    for (int64_t k = items * split / gridDim.y + row; k < end; k += THREADS) {
        UNROLL
        for (int i = 0; i < EACH; i++)
            if (k + i * LAST_ROWS < end)
                sum[i] += dy[(k + i * LAST_ROWS) * shape.channels + channel];
    }
    UNROLL
    for (int i = 0; i < EACH; i++)
        part[row + i * LAST_ROWS][lane] = sum[i];
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int i = row; i < half; i += LAST_ROWS)
            part[i][lane] += part[i + half][lane];
    }
    if (row == 0 && channel < shape.channels)
        sums[split * shape.channels + channel] = part[0][lane];
}

/* Launch: grid (groups of THREADS channels, splits), one thread for each channel. */
static __global__ void weir_sum_rows(const float *dy, float *sums, struct gpu_planes shape)
{
    int64_t channel = grid_first(), split = blockIdx.y;
    int64_t end = shape.n * (split + 1) / gridDim.y;
    float sum = 0.0f;
    if (channel >= shape.channels)
        return;
    for (int64_t row = shape.n * split / gridDim.y; row < end; row++)
        sum += dy[row * shape.channels + channel];
    sums[split * shape.channels + channel] = sum;
}

/* Launch: grid-stride over the channels, THREADS a block. Reads 4 bytes per channel and split. */
static __global__ void weir_sum_splits(const float *sums, float *db, int64_t channels,
                                       int64_t splits)
{
    for (int64_t channel = grid_first(); channel < channels; channel += grid_stride()) {
        float sum = 0.0f;
        for (int64_t split = 0; split < splits; split++)
            sum += sums[split * channels + channel];
        db[channel] = sum;
    }
}

static int bias_grad(struct CUstream_st *stream, const float *dy, float *db, float *scratch,
                     struct gpu_planes shape, int is_last)
{
    if (dy == nullptr || db == nullptr || scratch == nullptr || shape.n < 1 || shape.channels < 1 ||
        shape.plane < 1)
        return GPU_KERNEL_REFUSED;
    int64_t splits = splits_of(shape);
    float *to = splits == 1 ? db : scratch;
    unsigned groups = (unsigned)((shape.channels + THREADS - 1) / THREADS);
    unsigned lanes = (unsigned)((shape.channels + LANES - 1) / LANES);
    int code;
    if (shape.plane == 1)
        code =
            LAUNCH(weir_sum_rows, dim3(groups, (unsigned)splits), THREADS, stream, dy, to, shape);
    else if (is_last)
        code = LAUNCH(weir_sum_last, dim3(lanes, (unsigned)splits), LAST_THREADS, stream, dy, to,
                      shape);
    else
        code = LAUNCH(weir_sum_planes, dim3((unsigned)shape.channels, (unsigned)splits), THREADS,
                      stream, dy, to, shape);
    if (code != 0 || splits == 1)
        return code;
    return LAUNCH(weir_sum_splits, groups, THREADS, stream, scratch, db, shape.channels, splits);
}

extern "C" int gpu_bias_grad(struct CUstream_st *stream, const float *dy, float *db, float *scratch,
                             struct gpu_planes shape)
{
    return bias_grad(stream, dy, db, scratch, shape, 0);
}

extern "C" int gpu_bias_grad_last(struct CUstream_st *stream, const float *dy, float *db,
                                  float *scratch, struct gpu_planes shape)
{
    return bias_grad(stream, dy, db, scratch, shape, 1);
}
