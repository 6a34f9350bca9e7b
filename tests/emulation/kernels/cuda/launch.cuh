/* tests/emulation/kernels/cuda/launch.cuh - runs CUDA kernels on the CPU: this header stands in for
 * the real one of the same name, so that the .cu files compile as plain C++ and their index
 * arithmetic is tested without a GPU.
 * A block's threads run one after the other, each until it ends or meets a barrier; those that wait
 * at one are contexts of their own (ucontext), and go on, in the other order each time, when all
 * have come. So a barrier that is missing shows as wrong values, and a thread that leaves while
 * others wait ends the program. Blocks run one after the other, __shared__ is static.
 * What it is not: warps, memory spaces, limits. */
#ifndef TESTS_EMULATION_LAUNCH_CUH
#define TESTS_EMULATION_LAUNCH_CUH
#include "kernels/cuda/kernels.h"
#include <cmath>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

enum { EMULATION_MAX_THREADS = 256, EMULATION_STACK_BYTES = 65536 };

struct emulation_fiber {
    ucontext_t context;
    int done;
    char stack[EMULATION_STACK_BYTES];
};

/* One launch at a time in a file: the lock guards all of these. */
static pthread_mutex_t emulation_lock = PTHREAD_MUTEX_INITIALIZER;
static dim3 threadIdx, blockIdx, gridDim, blockDim;
static struct emulation_fiber *emulation_fibers, *emulation_now;
static ucontext_t emulation_main;
static unsigned emulation_next, emulation_ended;
static void (*emulation_call)(const void *kernel);
static const void *emulation_kernel;

/* A test program may have streams: work is queued there. */
extern "C" __attribute__((weak)) int cudaGetLastError(void); /* a cudaError_t */
extern "C" __attribute__((weak)) int emulation_do(struct CUstream_st *stream,
                                                  void (*run)(const void *args), const void *args,
                                                  size_t bytes);

static inline void __syncthreads()
{
    struct emulation_fiber *me = emulation_now;
    dim3 thread = threadIdx;
    swapcontext(&me->context, &emulation_main);
    threadIdx = thread;
}

/* One thread after the other, as long as none waits. */
static void emulation_fiber_main()
{
    struct emulation_fiber *me = emulation_now;
    while (emulation_next < blockDim.x) {
        threadIdx = dim3(emulation_next++, 0, 0);
        emulation_call(emulation_kernel);
        emulation_ended++;
    }
    me->done = 1;
}

static void emulation_enter(struct emulation_fiber *f)
{
    emulation_now = f;
    swapcontext(&emulation_main, &f->context);
}

static void emulation_block()
{
    unsigned n = 0;
    emulation_next = emulation_ended = 0;
    while (emulation_next < blockDim.x) {
        struct emulation_fiber *f = &emulation_fibers[n++];
        f->done = 0;
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = f->stack;
        f->context.uc_stack.ss_size = sizeof f->stack;
        f->context.uc_link = &emulation_main;
        makecontext(&f->context, emulation_fiber_main, 0);
        emulation_enter(f);
    }
    for (unsigned round = 1; emulation_ended < blockDim.x; round++) {
        if (emulation_ended > 0) {
            fprintf(stderr, "emulation: %u threads left before a barrier where others wait\n",
                    emulation_ended);
            abort();
        }
        for (unsigned i = 0; i < n; i++)
            emulation_enter(&emulation_fibers[round % 2 ? n - 1 - i : i]);
    }
}

/* A kernel with its arguments as they were at the launch. */
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
static int emulation_queue(struct CUstream_st *stream, dim3 grid, unsigned threads,
                           void (*kernel)(P...), A... args)
{
    auto call = [=] { kernel(args...); };
    emulation_launch<decltype(call)> l = {grid, threads, call};
    if (emulation_do == nullptr)
        return emulation_run<decltype(call)>(&l), 0;
    (void)emulation_do(stream, emulation_run<decltype(call)>, &l, sizeof l);
    return cudaGetLastError(); /* as of <<<>>>: the last one of all calls */
}

#define LAUNCH(kernel, grid, threads, stream, ...)                                                 \
    emulation_queue((stream), (grid), (threads), kernel, __VA_ARGS__)

#endif
