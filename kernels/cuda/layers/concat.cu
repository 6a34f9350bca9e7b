/* kernels/cuda/layers/concat.cu - copies a run of each sample's values into longer rows, or
 * back. */
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 256 };

/* Launch: grid-stride over r.n * r.elems values, THREADS a block. Moves 8 bytes per value. */
static __global__ void weir_move(const float *src, float *dst, struct gpu_rows r)
{
    int64_t n = r.n * r.elems;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t sample = quotient(k, r.elems), j = k - sample * r.elems;
        dst[sample * r.dst_row + j] = src[sample * r.src_row + j];
    }
}

extern "C" int gpu_concat_rows(struct CUstream_st *stream, const float *src, float *dst,
                               struct gpu_rows r)
{
    if (src == nullptr || dst == nullptr || r.n < 1 || r.elems < 1 || r.src_row < r.elems ||
        r.dst_row < r.elems)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_move, gpu_grid_blocks(r.n * r.elems, THREADS), THREADS, stream, src, dst, r);
}
