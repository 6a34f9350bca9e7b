/* tests/emulation/kernels/cuda/common/launch.cuh - runs CUDA kernels on the CPU: this header
 * replaces the real one of the same name, so that the .cu files compile as plain C++ and their
 * index arithmetic is tested without a GPU. A block's threads run one after the other, each until
 * it ends or meets a barrier. Threads that wait at a barrier have contexts of their own (ucontext).
 * They continue when all have arrived, in an order that is reversed at each barrier and in each
 * block. So a missing barrier yields wrong values, and a thread that ends while others wait ends
 * the program. Blocks run one after the other, and __shared__ is static. Warps, memory spaces and
 * limits are not emulated. */
#ifndef TESTS_EMULATION_LAUNCH_CUH
#define TESTS_EMULATION_LAUNCH_CUH
#include "kernels/cuda/common/kernels.h"
#include <cmath>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define UNROLL
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#include "tests/emulation/kernels/cuda/threads.cuh"

/* If the test program has streams, the work is queued on them. */
extern "C" __attribute__((weak)) int cudaGetLastError(void); /* a cudaError_t */
extern "C" __attribute__((weak)) int emulation_do(struct CUstream_st *stream, const char *name,
                                                  void (*run)(const void *args), const void *args,
                                                  size_t bytes);

/* A kernel, with the values of its arguments at the launch. */
template <class Call> struct emulation_launch {
    dim3 grid;
    unsigned threads;
    Call call;
};

template <class Call> static void emulation_run_call(const void *call)
{
    (*(const Call *)call)();
}

template <class Call> static void emulation_run(const void *args)
{
    const emulation_launch<Call> *l = (const emulation_launch<Call> *)args;
    pthread_mutex_lock(&emulation_lock);
    if (emulation_fibers == nullptr)
        emulation_fibers =
            (emulation_fiber *)calloc(EMULATION_MAX_THREADS, sizeof(emulation_fiber));
    if (emulation_fibers == nullptr || l->threads > EMULATION_MAX_THREADS)
        abort();
    gridDim = l->grid;
    blockDim = dim3(l->threads);
    emulation_call = emulation_run_call<Call>;
    emulation_kernel = &l->call;
    for (unsigned y = 0; y < l->grid.y; y++)
        for (unsigned x = 0; x < l->grid.x; x++) {
            blockIdx = dim3(x, y, 0);
            emulation_block();
        }
    pthread_mutex_unlock(&emulation_lock);
}

template <class... P, class... A>
static int emulation_queue(struct CUstream_st *stream, const char *name, dim3 grid,
                           unsigned threads, void (*kernel)(P...), A... args)
{
    auto call = [=] { kernel(args...); };
    emulation_launch<decltype(call)> l = {grid, threads, call};
    if (emulation_do == nullptr)
        return emulation_run<decltype(call)>(&l), 0;
    (void)emulation_do(stream, name, emulation_run<decltype(call)>, &l, sizeof l);
    return cudaGetLastError(); /* <<<>>> also returns the last error of all calls */
}

#define LAUNCH(kernel, grid, threads, stream, ...)                                                 \
    emulation_queue((stream), #kernel, (grid), (threads), kernel, __VA_ARGS__)

#endif
