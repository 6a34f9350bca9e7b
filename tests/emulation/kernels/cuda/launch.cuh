/* tests/emulation/kernels/cuda/launch.cuh - runs CUDA kernels on the CPU: this header stands in for
 * the real one of the same name, so that the .cu files compile as plain C++ and their index
 * arithmetic is tested without a GPU.
 * A block's threads are real threads and its blocks run one after the other: __shared__ is static,
 * __syncthreads is a barrier, and ThreadSanitizer finds a barrier that is missing. A kernel that
 * leaves before a barrier which others wait at hangs, and the test's time runs out.
 * What it is not: warps, memory spaces, limits of registers and shared memory. */
#ifndef TESTS_EMULATION_LAUNCH_CUH
#define TESTS_EMULATION_LAUNCH_CUH
#include "kernels/cuda/kernels.h"
#include <cmath>
#include <pthread.h>
#include <stdlib.h>

#define __global__
#define __device__
#define __shared__ static

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

static thread_local dim3 threadIdx, blockIdx;
static dim3 gridDim, blockDim;
static pthread_barrier_t emulation_sync, emulation_block;

static inline void __syncthreads()
{
    pthread_barrier_wait(&emulation_sync);
}

template <class Kernel> struct emulation_thread {
    const Kernel *kernel;
    unsigned index;
};

template <class Kernel> static void *emulation_main(void *arg)
{
    const auto *t = (const emulation_thread<Kernel> *)arg;
    threadIdx = dim3(t->index, 0, 0);
    for (unsigned y = 0; y < gridDim.y; y++)
        for (unsigned x = 0; x < gridDim.x; x++) {
            blockIdx = dim3(x, y, 0);
            (*t->kernel)();
            pthread_barrier_wait(&emulation_block);
        }
    return nullptr;
}

template <class Kernel> static int emulation_run(dim3 grid, unsigned threads, const Kernel &kernel)
{
    auto *args = (emulation_thread<Kernel> *)calloc(threads, sizeof(emulation_thread<Kernel>));
    auto *ids = (pthread_t *)calloc(threads, sizeof(pthread_t));
    if (args == nullptr || ids == nullptr)
        abort();
    gridDim = grid;
    blockDim = dim3(threads);
    pthread_barrier_init(&emulation_sync, nullptr, threads);
    pthread_barrier_init(&emulation_block, nullptr, threads);
    for (unsigned i = 0; i < threads; i++) {
        args[i] = emulation_thread<Kernel>{&kernel, i};
        if (pthread_create(&ids[i], nullptr, emulation_main<Kernel>, &args[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], nullptr);
    pthread_barrier_destroy(&emulation_sync);
    pthread_barrier_destroy(&emulation_block);
    free(ids);
    free(args);
    return 0;
}

#define LAUNCH(kernel, grid, threads, stream, ...)                                                 \
    ((void)(stream), emulation_run((grid), (threads), [&] { kernel(__VA_ARGS__); }))

#endif
