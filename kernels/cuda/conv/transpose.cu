/* kernels/cuda/conv/transpose.cu - transposes matrices, which converts planes to channels last and
 * back, and may convert to bfloat16 or from it in the same pass. A block moves tiles of 32 by 32
 * values through shared memory. A row of a tile in shared memory occupies the memory of 33 values,
 * so no two threads of a warp use the same bank. Global memory is read and written row by row. */
#include "kernels/cuda/common/bf16.cuh"
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/conv/channels_kernels.h"

enum { TILE = 32, ROWS = 4, EACH = TILE / ROWS, THREADS = TILE * ROWS };

static __device__ inline float value_of(float v)
{
    return v;
}

static __device__ inline float value_of(uint16_t v)
{
    return bf16_value(v);
}

static __device__ inline void set(float *to, float v)
{
    *to = v;
}

static __device__ inline void set(uint16_t *to, float v)
{
    *to = bf16_of(v);
}

/* Launch: grid-stride over the tiles, one tile per block at a time, THREADS threads. Reads
 * sizeof(From) and writes sizeof(To) bytes per value. */
template <class From, class To>
static __global__ void weir_transpose(const From *src, To *dst, struct gpu_matrices m)
{
    __shared__ float tile[TILE][TILE + 1];
    int64_t wide = (m.columns + TILE - 1) / TILE, high = (m.rows + TILE - 1) / TILE;
    int lane = (int)threadIdx.x % TILE, first = (int)threadIdx.x / TILE;
    for (int64_t k = blockIdx.x, n = m.n * high * wide; k < n; k += gridDim.x) {
        int64_t strip = quotient(k, wide), matrix = quotient(strip, high);
        int64_t row0 = (strip - matrix * high) * TILE, column0 = (k - strip * wide) * TILE;
        const From *from = src + matrix * m.rows * m.columns;
        To *to = dst + matrix * m.rows * m.columns;
        UNROLL
        for (int j = 0; j < EACH; j++) {
            int i = first + j * ROWS;
            if (row0 + i < m.rows && column0 + lane < m.columns)
                tile[i][lane] = value_of(from[(row0 + i) * m.columns + column0 + lane]);
        }
        __syncthreads();
        UNROLL
        for (int j = 0; j < EACH; j++) {
            int i = first + j * ROWS;
            if (column0 + i < m.columns && row0 + lane < m.rows)
                set(&to[(column0 + i) * m.rows + row0 + lane], tile[lane][i]);
        }
        if (k + gridDim.x < n)
            __syncthreads(); /* all threads have read this tile */
    }
}

template <class From, class To>
static int transpose(struct CUstream_st *stream, const From *src, To *dst, struct gpu_matrices m)
{
    if (src == nullptr || dst == nullptr || (const void *)src == (const void *)dst || m.n < 1 ||
        m.rows < 1 || m.columns < 1)
        return GPU_KERNEL_REFUSED;
    int64_t tiles = m.n * ((m.rows + TILE - 1) / TILE) * ((m.columns + TILE - 1) / TILE);
    void (*kernel)(const From *, To *, struct gpu_matrices) = weir_transpose<From, To>;
    return LAUNCH(kernel, gpu_grid_blocks(tiles, 1), THREADS, stream, src, dst, m);
}

extern "C" int gpu_transpose(struct CUstream_st *stream, const float *src, float *dst,
                             struct gpu_matrices m)
{
    return transpose(stream, src, dst, m);
}

extern "C" int gpu_transpose_down(struct CUstream_st *stream, const float *src, uint16_t *dst,
                                  struct gpu_matrices m)
{
    return transpose(stream, src, dst, m);
}

extern "C" int gpu_transpose_up(struct CUstream_st *stream, const uint16_t *src, float *dst,
                                struct gpu_matrices m)
{
    return transpose(stream, src, dst, m);
}
