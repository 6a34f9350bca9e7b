/* kernels/cuda/layers/embedding.cu - reads rows of a table by their numbers. For the gradient of a
 * small table there is one thread per value of the table, which visits all cells. For a large table
 * this would be too much work: there is one thread per unit instead, which adds each cell's
 * gradient to the row of the cell's number. In both cases a thread visits the cells in their order,
 * so no sum depends on the order of threads. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/layers/rows.h"

enum { THREADS = 128, SMALL_TABLE = 256, MOST_NUMBERS = 1 << 20 };

static __device__ inline int64_t number_of(float x, int64_t vocabulary)
{
    int64_t number = (int64_t)(x * 255.0f + 0.5f);
    return number < vocabulary ? number : vocabulary - 1;
}

/* Launch: grid-stride over the outputs, THREADS a block. Moves 12 bytes per output: the number, the
 * table's value, the output. */
static __global__ void weir_embed(struct gpu_embedding e, const float *table, float *y)
{
    int64_t sample = e.units * e.cells;
    for (int64_t k = grid_first(); k < e.n * sample; k += grid_stride()) {
        int64_t s = quotient(k, sample), in = k - s * sample;
        int64_t unit = quotient(in, e.cells), cell = in - unit * e.cells;
        y[k] = table[number_of(e.x[s * e.cells + cell], e.vocabulary) * e.units + unit];
    }
}

/* Computes the gradient of a small table. Neighbouring threads have the same unit and neighbouring
 * numbers, and read the same gradient. Launch: grid-stride over the table's values, THREADS a
 * block. Each thread reads 4 bytes per cell, and 4 more bytes per cell that has the thread's
 * number. */
static __global__ void weir_embed_backward(struct gpu_embedding e, const float *dy, float *grad)
{
    for (int64_t k = grid_first(); k < e.vocabulary * e.units; k += grid_stride()) {
        int64_t unit = quotient(k, e.vocabulary), number = k - unit * e.vocabulary;
        float sum = 0.0f;
        for (int64_t s = 0; s < e.n; s++) {
            const float *x = e.x + s * e.cells, *d = dy + (s * e.units + unit) * e.cells;
            for (int64_t cell = 0; cell < e.cells; cell++)
                if (number_of(x[cell], e.vocabulary) == number)
                    sum += d[cell];
        }
        grad[number * e.units + unit] = sum;
    }
}

/* Launch: grid-stride over n values, THREADS a block. Writes 4n bytes. */
static __global__ void weir_embed_clear(float *grad, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride())
        grad[k] = 0.0f;
}

/* Computes the gradient of a large table. Each thread adds the gradients of one unit, a column of
 * the table. At each cell all threads have the same number, so neighbouring threads write
 * neighbouring values of one row. Launch: grid-stride over the units, THREADS a block. Moves 16
 * bytes per cell and unit, including the read of the cell's number. */
static __global__ void weir_embed_backward_large(struct gpu_embedding e, const float *dy,
                                                 float *grad)
{
    for (int64_t unit = grid_first(); unit < e.units; unit += grid_stride())
        for (int64_t s = 0; s < e.n; s++) {
            const float *x = e.x + s * e.cells, *d = dy + (s * e.units + unit) * e.cells;
            for (int64_t cell = 0; cell < e.cells; cell++)
                grad[number_of(x[cell], e.vocabulary) * e.units + unit] += d[cell];
        }
}

static int is_sound(const struct gpu_embedding *e)
{
    return e->x != nullptr && e->n > 0 && e->cells > 0 && e->units > 0 && e->vocabulary > 0 &&
           e->vocabulary <= MOST_NUMBERS;
}

extern "C" int gpu_embedding_forward(struct CUstream_st *stream, const struct gpu_embedding *e,
                                     const float *table, float *y)
{
    if (!is_sound(e) || table == nullptr || y == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_embed, gpu_grid_blocks(e->n * e->units * e->cells, THREADS), THREADS, stream,
                  *e, table, y);
}

extern "C" int gpu_embedding_backward(struct CUstream_st *stream, const struct gpu_embedding *e,
                                      const float *dy, float *grad)
{
    if (!is_sound(e) || dy == nullptr || grad == nullptr)
        return GPU_KERNEL_REFUSED;
    int64_t values = e->vocabulary * e->units;
    if (e->vocabulary <= SMALL_TABLE)
        return LAUNCH(weir_embed_backward, gpu_grid_blocks(values, THREADS), THREADS, stream, *e,
                      dy, grad);
    int failed =
        LAUNCH(weir_embed_clear, gpu_grid_blocks(values, THREADS), THREADS, stream, grad, values);
    if (failed)
        return failed;
    return LAUNCH(weir_embed_backward_large, gpu_grid_blocks(e->units, THREADS), THREADS, stream,
                  *e, dy, grad);
}
