/* kernels/cuda/conv/conv_first.cu - a convolution of small images with one channel: forward with
 * bias, relu and max pool, and the gradients of weights and bias.
 *
 * Forward: a block computes the outputs of some filters for one image. Shared memory holds the
 * image with its padding, and the weights of the filters in groups of four. A thread keeps the
 * inputs of 2x2 outputs in registers and loops over the filters. Each read of four weights, which
 * are the same for all threads of a warp, serves 16 products. The 2x2 outputs are one window of a
 * pool.
 *
 * Backward: a block computes the sums of a few filters over a run of samples. Each thread keeps in
 * registers a sum for each weight and bias of these filters. It adds the products of the output
 * cells assigned to it, two cells of a column at a time. Neighbouring threads read neighbouring
 * cells of dy, and each cell is read once. Then the block adds the sums of its threads, and a
 * second CUDA kernel adds the sums of the runs. Runs have fixed bounds, and all additions a fixed
 * order. In the backward, shared memory holds the rows of the image grouped by their index modulo 2
 * * stride, and the columns grouped by their index modulo stride. The pitch of a row equals the
 * output's width modulo 32. So thread k reads bank k + constant, also in the next row, and no two
 * threads of a warp share a bank. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/conv/conv_first_kernels.h"

enum {
    THREADS = 256, /* highest number of threads of a block */
    /* blocks that run on a multiprocessor at the same time, so that a thread has at most 128
     * registers */
    MIN_BLOCKS = 2,
    BANKS = 32,           /* banks of shared memory */
    FORWARD_CELLS = 2048, /* cells of a padded image that fit in shared memory */
    MAX_PER_BLOCK = 32,   /* highest number of filters of a block in the forward */
    /* forward: to get at least this number of blocks, the number of filters of a block is reduced,
     * down to 4 */
    ENOUGH_BLOCKS = 1024,
    GRAD_BLOCKS = 256, /* backward: highest number of blocks */
    /* Backward: number of sums of each thread that are in shared memory at the same time. Each of
     * these sums is added over all threads by ROUND threads, which read from different banks. */
    ROUND = 16,
    ROUND_PITCH = THREADS + BANKS / 2,
    GRAD_CELLS = ROUND * ROUND_PITCH,
};

/* Four floats, read and written by one instruction. */
struct alignas(16) quad {
    float of[4];
};
struct alignas(8) pair {
    float left, right;
};

/* Returns the number of threads for n items: a multiple of a warp, chosen so that few threads are
 * idle in the last iteration. */
static unsigned threads_for(int n)
{
    int turns = (n + THREADS - 1) / THREADS, each = (n + turns - 1) / turns;
    return (unsigned)((each + BANKS - 1) / BANKS * BANKS);
}

/* ---- the image in shared memory ---- */

/* Returns the number of rows or columns that are read for n patches of two outputs each. */
static inline int cells_read(int patches, int kernel, int stride)
{
    return (2 * patches - 1) * stride + kernel;
}

/* Layout of an image with its padding, limited to the cells that are read. Rows whose indices are
 * equal modulo ROWS are `pitch` cells apart, and columns whose indices are equal modulo COLUMNS are
 * adjacent. The cells with one pair of remainders begin `phase` cells after the cells with the
 * previous pair. */
struct layout {
    int rows, columns, pitch, phase;
};

template <int ROWS, int COLUMNS>
static __device__ inline int place_of(const struct layout &l, int row, int column)
{
    return (row % ROWS * COLUMNS + column % COLUMNS) * l.phase + row / ROWS * l.pitch +
           column / COLUMNS;
}

static __device__ inline void zeros_set(float *to, int n)
{
    for (int k = (int)threadIdx.x; k < n; k += (int)blockDim.x)
        to[k] = 0.0f;
}

/* Copies the image to shared memory, which the caller has cleared. A thread starts AT_ONCE reads
 * before it waits for the first one. */
template <int ROWS, int COLUMNS>
static __device__ inline void image_set(const struct gpu_conv_first &c, const struct layout &l,
                                        const float *image, float *to)
{
    enum { AT_ONCE = 4 };
    int n = c.in_h * c.in_w, threads = (int)blockDim.x;
    for (int first = (int)threadIdx.x; first < n; first += AT_ONCE * threads) {
        float v[AT_ONCE];
        UNROLL
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = first + k * threads < n ? image[first + k * threads] : 0.0f;
        UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            int at = first + k * threads, y = at / c.in_w;
            int row = y + c.pad_h, column = at - y * c.in_w + c.pad_w;
            if (at < n && row < l.rows && column < l.columns)
                to[place_of<ROWS, COLUMNS>(l, row, column)] = v[k];
        }
    }
}

/* ---- forward ---- */

/* Writes a patch of 2x2 outputs. plane: the outputs of one filter; (2 py, 2 px): the patch's first
 * cell. */
static __device__ inline void patch_write(const struct gpu_conv_first &c, float *plane, int py,
                                          int px, const float v[2][2], int in_pairs)
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        int oy = 2 * py + i, ox = 2 * px;
        float *to = plane + oy * c.out_w + ox;
        if (oy < c.out_h && in_pairs) {
            struct pair both = {v[i][0], v[i][1]};
            *(struct pair *)to = both;
        } else if (oy < c.out_h) {
            to[0] = v[i][0];
            if (ox + 1 < c.out_w)
                to[1] = v[i][1];
        }
    }
}

/* Writes the maximum of a patch and the cell that has it. If several cells have it, writes the
 * first of these cells, as in bias_relu_pool.cu. */
static __device__ inline void patch_pool(const struct gpu_conv_first &c, float *y, int32_t *winner,
                                         int py, int px, const float v[2][2])
{
    int first = 2 * py * c.out_w + 2 * px, best = first;
    float most = v[0][0];
    UNROLL
    for (int k = 1; k < 4; k++) {
        int i = k / 2, j = k % 2, counts = 2 * py + i < c.out_h && 2 * px + j < c.out_w;
        int more = counts && v[i][j] > most;
        best = more ? first + i * c.out_w + j : best;
        most = more ? v[i][j] : most;
    }
    *y = most;
    *winner = best;
}

/* Shape of the forward's launch. patches_h, patches_w: number of patches of 2x2 outputs. */
struct forward_plan {
    int patches_h, patches_w, per_block, in_pairs;
    struct layout layout; /* layout of the image, row by row */
};

/* Launch: grid (samples, groups of f.per_block filters), one thread for each patch, but at most
 * THREADS. Reads 4 bytes per pixel and group, writes 4 bytes per output, or 8 bytes per output of
 * the pool. */
template <int K, int S>
static __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    weir_conv_first(struct gpu_conv_first c, const float *x, const float *w, float *y,
                    struct gpu_conv_first_end end, struct forward_plan f)
{
    enum { TAPS = K * K, QUADS = (TAPS + 3) / 4, SIDE = S + K };
    __shared__ struct quad weights[MAX_PER_BLOCK * QUADS];
    __shared__ float biases[MAX_PER_BLOCK], image[FORWARD_CELLS];
    int64_t sample = blockIdx.x;
    int first = (int)blockIdx.y * f.per_block;
    int filters = c.filters - first < f.per_block ? c.filters - first : f.per_block;
    zeros_set(image, f.layout.rows * f.layout.columns);
    __syncthreads();
    image_set<1, 1>(c, f.layout, x + sample * c.in_h * c.in_w, image);
    for (int k = (int)threadIdx.x; k < filters * TAPS; k += (int)blockDim.x) {
        int filter = k / TAPS, tap = k % TAPS;
        weights[filter * QUADS + tap / 4].of[tap % 4] = w[first * TAPS + k];
    }
    for (int k = (int)threadIdx.x; k < filters; k += (int)blockDim.x)
        biases[k] = end.bias != nullptr ? end.bias[first + k] : 0.0f;
    __syncthreads();
    int patches = f.patches_h * f.patches_w;
    int plane = end.winner != nullptr ? patches : c.out_h * c.out_w;
    float *out = y + (sample * c.filters + first) * plane;
    int32_t *winner =
        end.winner == nullptr ? nullptr : end.winner + (sample * c.filters + first) * plane;
    for (int p = (int)threadIdx.x; p < patches; p += (int)blockDim.x) {
        int py = p / f.patches_w, px = p % f.patches_w;
        const float *at = image + 2 * S * (py * f.layout.pitch + px);
        float window[SIDE][SIDE];
        UNROLL
        for (int k = 0; k < SIDE * SIDE; k++)
            window[k / SIDE][k % SIDE] = at[k / SIDE * f.layout.pitch + k % SIDE];
        for (int filter = 0; filter < filters; filter++) {
            float v[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}}, bias = biases[filter];
            UNROLL
            for (int k = 0; k < QUADS; k++) {
                struct quad four = weights[filter * QUADS + k];
                UNROLL
                for (int tap = 4 * k; tap < 4 * k + 4 && tap < TAPS; tap++)
                    UNROLL
                for (int cell = 0; cell < 4; cell++)
                    v[cell / 2][cell % 2] +=
                        four.of[tap % 4] * window[cell / 2 * S + tap / K][cell % 2 * S + tap % K];
            }
            UNROLL
            for (int cell = 0; cell < 4; cell++) {
                float sum = v[cell / 2][cell % 2] + bias;
                v[cell / 2][cell % 2] = end.relu && !(sum > 0.0f) ? 0.0f : sum;
            }
            if (end.winner != nullptr)
                patch_pool(c, out + filter * plane + p, winner + filter * plane + p, py, px, v);
            else
                patch_write(c, out + filter * plane, py, px, v, f.in_pairs);
        }
    }
}

static struct layout forward_layout(const struct gpu_conv_first *c, int patches_h, int patches_w)
{
    int columns = cells_read(patches_w, c->kernel, c->stride);
    return {cells_read(patches_h, c->kernel, c->stride), columns, columns, 0};
}

static struct forward_plan forward_plan_of(const struct gpu_conv_first *c,
                                           const struct gpu_conv_first_end *end, const float *y)
{
    int pooled = end->winner != nullptr, per_block = MAX_PER_BLOCK;
    int patches_h = pooled ? end->pool_h : (c->out_h + 1) / 2;
    int patches_w = pooled ? end->pool_w : (c->out_w + 1) / 2;
    int in_pairs = c->out_w % 2 == 0 && (uintptr_t)y % sizeof(struct pair) == 0;
    while (per_block > 4 && c->n * ((c->filters + per_block - 1) / per_block) < ENOUGH_BLOCKS)
        per_block /= 2;
    return {patches_h, patches_w, per_block, in_pairs, forward_layout(c, patches_h, patches_w)};
}

template <int K, int S>
static int forward_launch(struct CUstream_st *stream, const struct gpu_conv_first *c,
                          const float *x, const float *w, float *y,
                          const struct gpu_conv_first_end *end)
{
    struct forward_plan f = forward_plan_of(c, end, y);
    dim3 grid((unsigned)c->n, (unsigned)((c->filters + f.per_block - 1) / f.per_block));
    auto kernel = weir_conv_first<K, S>;
    return LAUNCH(kernel, grid, threads_for(f.patches_h * f.patches_w), stream, *c, x, w, y, *end,
                  f);
}

/* ---- backward ---- */

/* Returns the number of filters per block for which all sums fit into registers. */
static __host__ __device__ constexpr int group_of(int kernel, int stride)
{
    return kernel <= 3 ? 8 : kernel <= 4 ? 4 : kernel == 5 ? 5 - stride : 2;
}

static struct layout backward_layout(const struct gpu_conv_first *c)
{
    int rows = cells_read((c->out_h + 1) / 2, c->kernel, c->stride), pitch = c->out_w + BANKS;
    return {rows, (c->out_w - 1) * c->stride + c->kernel, pitch,
            (rows + 2 * c->stride - 1) / (2 * c->stride) * pitch};
}

static int64_t splits_of(const struct gpu_conv_first *c)
{
    int group = group_of(c->kernel, c->stride), groups = (c->filters + group - 1) / group;
    int64_t splits = GRAD_BLOCKS / groups;
    return splits < c->n ? splits : c->n;
}

/* Adds one sample to the sums. sum[.][TAPS]: gradient of the bias. dy: gradient of the block's
 * first filter. If the output has an odd number of rows, the last row is combined with a row of
 * zeros. So an input that is not finite also makes some sums NaN to which it does not
 * contribute. */
template <int K, int S, int GROUP>
static __device__ inline void sample_add(const struct gpu_conv_first &c, const float *image,
                                         const struct layout &l, const float *dy, int filters,
                                         float sum[GROUP][K * K + 1])
{
    int cells = (c.out_h + 1) / 2 * c.out_w;
    for (int p = (int)threadIdx.x; p < cells; p += (int)blockDim.x) {
        int py = p / c.out_w, ox = p % c.out_w, below = 2 * py + 1 < c.out_h;
        const float *from = dy + 2 * py * c.out_w + ox, *at = image + py * l.pitch + ox;
        float d[2][GROUP];
        UNROLL
        for (int k = 0; k < GROUP; k++) {
            const float *cell = from + k * c.out_h * c.out_w;
            d[0][k] = k < filters ? cell[0] : 0.0f;
            d[1][k] = k < filters && below ? cell[c.out_w] : 0.0f;
            sum[k][K * K] += d[0][k] + d[1][k];
        }
        UNROLL
        for (int row = 0; row < S + K; row++) {
            float v[K];
            UNROLL
            for (int kx = 0; kx < K; kx++)
                v[kx] = at[place_of<2 * S, S>(l, row, kx)];
            UNROLL
            for (int i = 0; i < 2; i++) {
                int ky = row - i * S;
                if (ky < 0 || ky >= K)
                    continue;
                UNROLL
                for (int k = 0; k < GROUP * K; k++)
                    sum[k / K][ky * K + k % K] += d[i][k / K] * v[k % K];
            }
        }
    }
}

/* Launch: grid (groups of filters, splits), at most THREADS threads. Writes sums
 * [split][filter][TAPS + 1]. A block reads the dy of its filters once, and each image of its run
 * once: in total 4 bytes per cell of dy, and 4 bytes per pixel and group. */
template <int K, int S>
static __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    weir_conv_first_grad(struct gpu_conv_first c, struct layout l, const float *x, const float *dy,
                         float *sums)
{
    enum { EACH = K * K + 1, GROUP = group_of(K, S), ALL = GROUP * EACH };
    __shared__ float shared[GRAD_CELLS], part[ROUND][ROUND + 1];
    int first = (int)blockIdx.x * GROUP;
    int filters = c.filters - first < GROUP ? c.filters - first : GROUP;
    int last = (int)(c.n * (blockIdx.y + 1) / gridDim.y);
    float sum[GROUP][EACH];
    zeros_set(shared, 2 * S * S * l.phase);
    UNROLL
    for (int k = 0; k < ALL; k++)
        sum[k / EACH][k % EACH] = 0.0f;
    for (int sample = (int)(c.n * blockIdx.y / gridDim.y); sample < last; sample++) {
        __syncthreads();
        image_set<2 * S, S>(c, l, x + (int64_t)sample * c.in_h * c.in_w, shared);
        __syncthreads();
        sample_add<K, S, GROUP>(c, shared, l,
                                dy + ((int64_t)sample * c.filters + first) * c.out_h * c.out_w,
                                filters, sum);
    }
    int me = (int)threadIdx.x, threads = (int)blockDim.x;
    UNROLL
    for (int done = 0; done < ALL; done += ROUND) {
        __syncthreads();
        UNROLL
        for (int k = done; k < done + ROUND && k < ALL; k++)
            shared[(k - done) * ROUND_PITCH + me] = sum[k / EACH][k % EACH];
        __syncthreads();
        for (int k = me; k < ROUND * ROUND; k += threads) {
            float some = 0.0f;
            for (int from = k % ROUND; from < threads && done + k / ROUND < ALL; from += ROUND)
                some += shared[k / ROUND * ROUND_PITCH + from];
            part[k / ROUND][k % ROUND] = some;
        }
        __syncthreads();
        int k = done + me;
        if (me < ROUND && k < ALL && k / EACH < filters) {
            float all = 0.0f;
            for (int i = 0; i < ROUND; i++)
                all += part[me][i];
            sums[((int64_t)blockIdx.y * c.filters + first) * EACH + k] = all;
        }
    }
}

/* Adds the sums of the splits in the splits' order. Launch: grid-stride over the filters * (taps +
 * 1) sums. Reads 4 bytes per sum and split, writes 4 bytes per sum. */
static __global__ void weir_conv_first_sum(const float *sums, float *dw, float *db, int filters,
                                           int taps, int splits)
{
    int n = filters * (taps + 1);
    for (int k = (int)grid_first(); k < n; k += (int)grid_stride()) {
        float sum = 0.0f;
        for (int split = 0; split < splits; split++)
            sum += sums[(int64_t)split * n + k];
        int filter = k / (taps + 1), tap = k % (taps + 1);
        *(tap < taps ? &dw[filter * taps + tap] : &db[filter]) = sum;
    }
}

template <int K, int S>
static int backward_launch(struct CUstream_st *stream, const struct gpu_conv_first *c,
                           const float *x, const float *dy, float *sums)
{
    enum { GROUP = group_of(K, S) };
    dim3 grid((unsigned)((c->filters + GROUP - 1) / GROUP), (unsigned)splits_of(c));
    auto kernel = weir_conv_first_grad<K, S>;
    return LAUNCH(kernel, grid, threads_for((c->out_h + 1) / 2 * c->out_w), stream, *c,
                  backward_layout(c), x, dy, sums);
}

/* ---- choice of the kernel ---- */

#define BY_STRIDE(launch, k, c, ...)                                                               \
    ((c)->stride == 1 ? launch<k, 1>(__VA_ARGS__) : launch<k, 2>(__VA_ARGS__))
/* Calls launch<kernel, stride>(...), with the constants of this shape as template arguments. */
#define BY_KERNEL(launch, c, ...)                                                                  \
    ((c)->kernel == 2   ? BY_STRIDE(launch, 2, c, __VA_ARGS__)                                     \
     : (c)->kernel == 3 ? BY_STRIDE(launch, 3, c, __VA_ARGS__)                                     \
     : (c)->kernel == 4 ? BY_STRIDE(launch, 4, c, __VA_ARGS__)                                     \
     : (c)->kernel == 5 ? BY_STRIDE(launch, 5, c, __VA_ARGS__)                                     \
     : (c)->kernel == 6 ? BY_STRIDE(launch, 6, c, __VA_ARGS__)                                     \
                        : BY_STRIDE(launch, 7, c, __VA_ARGS__))

/* Returns true if the kernels support the shape. Checks the sides of the image first, so that no
 * later product overflows. */
extern "C" int gpu_conv_first_fits(const struct gpu_conv_first *c)
{
    if (c->n < 1 || c->n > INT32_MAX || c->filters < 1 || c->filters > GPU_CONV_FIRST_MAX_FILTERS ||
        c->in_h < 1 || c->in_w < 1 || c->out_h < 1 || c->out_w < 1 || c->in_h > FORWARD_CELLS ||
        c->in_w > FORWARD_CELLS || c->out_h > FORWARD_CELLS || c->out_w > FORWARD_CELLS ||
        c->kernel < 2 || c->kernel > 7 || c->stride < 1 || c->stride > 2 || c->pad_h < 0 ||
        c->pad_w < 0)
        return 0;
    struct layout forward = forward_layout(c, (c->out_h + 1) / 2, (c->out_w + 1) / 2);
    return forward.rows * forward.columns <= FORWARD_CELLS &&
           2 * c->stride * c->stride * backward_layout(c).phase <= GRAD_CELLS;
}

extern "C" int gpu_conv_first_forward(struct CUstream_st *stream, const struct gpu_conv_first *c,
                                      const float *x, const float *w, float *y,
                                      const struct gpu_conv_first_end *end)
{
    int pool_fits = end->relu && end->pool_h > 0 && end->pool_w > 0 &&
                    end->pool_h <= (c->out_h + 1) / 2 && end->pool_w <= (c->out_w + 1) / 2;
    if (x == nullptr || w == nullptr || y == nullptr || !::gpu_conv_first_fits(c) ||
        (end->winner != nullptr && !pool_fits))
        return GPU_KERNEL_REFUSED;
    return BY_KERNEL(forward_launch, c, stream, c, x, w, y, end);
}

extern "C" int64_t gpu_conv_first_scratch(const struct gpu_conv_first *c)
{
    return splits_of(c) * c->filters * (c->kernel * c->kernel + 1);
}

extern "C" int gpu_conv_first_backward(struct CUstream_st *stream, const struct gpu_conv_first *c,
                                       const float *x, const float *dy,
                                       const struct gpu_conv_first_grad *g)
{
    if (x == nullptr || dy == nullptr || g->dw == nullptr || g->db == nullptr ||
        g->scratch == nullptr || !::gpu_conv_first_fits(c))
        return GPU_KERNEL_REFUSED;
    int taps = c->kernel * c->kernel;
    int code = BY_KERNEL(backward_launch, c, stream, c, x, dy, g->scratch);
    if (code != 0)
        return code;
    return LAUNCH(weir_conv_first_sum, gpu_grid_blocks(c->filters * (taps + 1), THREADS), THREADS,
                  stream, g->scratch, g->dw, g->db, c->filters, taps, (int)splits_of(c));
}
