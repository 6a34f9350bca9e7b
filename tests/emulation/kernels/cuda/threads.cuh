/* tests/emulation/kernels/cuda/threads.cuh - the threads of a block. launch.cuh, which includes
 * this header, describes how they run and defines dim3. */
#ifndef TESTS_EMULATION_THREADS_CUH
#define TESTS_EMULATION_THREADS_CUH
#include "tests/emulation/kernels/cuda/stacks.cuh"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { EMULATION_MAX_THREADS = 256, EMULATION_STACK_BYTES = 65536 };

/* Context of a thread. It is created at its first use, and reused for the next blocks if there are
 * jumps. */
struct emulation_fiber {
    ucontext_t context;
    void *jump[5];
    struct emulation_stack known;
    int begun;
    char stack[EMULATION_STACK_BYTES];
};

/* Guards all variables below: a file runs one launch at a time. */
static pthread_mutex_t emulation_lock = PTHREAD_MUTEX_INITIALIZER;
static dim3 threadIdx, blockIdx, gridDim, blockDim;
static struct emulation_fiber *emulation_fibers, *emulation_now;
static ucontext_t emulation_main;
static void *emulation_main_jump[5];
static struct emulation_stack emulation_main_known;
static unsigned emulation_next, emulation_ended;
static void (*emulation_call)(const void *kernel);
static const void *emulation_kernel;

EMULATION_SWITCHES static void emulation_leave(struct emulation_fiber *me)
{
    if (!EMULATION_JUMPS) {
        swapcontext(&me->context, &emulation_main);
        return;
    }
    emulation_switch(&me->known, &emulation_main_known);
    if (__builtin_setjmp(me->jump) == 0)
        emulation_jump(emulation_main_jump);
    emulation_switched(&me->known, &emulation_main_known);
}

static inline void __syncthreads()
{
    dim3 thread = threadIdx;
    emulation_leave(emulation_now);
    threadIdx = thread;
}

/* Runs the threads one after the other, block after block, until a thread waits. */
static void emulation_fiber_main()
{
    struct emulation_fiber *me = emulation_now;
    if (EMULATION_JUMPS)
        emulation_switched(&me->known, &emulation_main_known);
    for (;;) {
        while (emulation_next < blockDim.x) {
            threadIdx = dim3(emulation_next++, 0, 0);
            emulation_call(emulation_kernel);
            emulation_ended++;
        }
        me->begun = EMULATION_JUMPS;
        if (!EMULATION_JUMPS)
            return; /* returns to uc_link */
        emulation_leave(me);
    }
}

EMULATION_SWITCHES static void emulation_enter(struct emulation_fiber *f)
{
    int begun = f->begun;
    emulation_now = f;
    if (!begun) {
        f->begun = 1;
        f->known = {f->stack, sizeof f->stack, NULL};
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = f->stack;
        f->context.uc_stack.ss_size = sizeof f->stack;
        f->context.uc_link = &emulation_main;
        makecontext(&f->context, emulation_fiber_main, 0);
    }
    if (!EMULATION_JUMPS) {
        swapcontext(&emulation_main, &f->context);
        return;
    }
    emulation_switch(&emulation_main_known, &f->known);
    if (__builtin_setjmp(emulation_main_jump) != 0)
        emulation_switched(&emulation_main_known, &emulation_now->known);
    else if (begun)
        emulation_jump(f->jump);
    else
        setcontext(&f->context);
}

static void emulation_block()
{
    static unsigned n_blocks; /* the order after a barrier is reversed in each next block */
    unsigned n = 0, turn = n_blocks++;
    emulation_next = emulation_ended = 0;
    while (emulation_next < blockDim.x)
        emulation_enter(&emulation_fibers[n++]);
    for (unsigned round = 1; emulation_ended < blockDim.x; round++) {
        if (emulation_ended > 0) {
            fprintf(stderr, "emulation: %u threads left before a barrier where others wait\n",
                    emulation_ended);
            abort();
        }
        for (unsigned i = 0; i < n; i++)
            emulation_enter(&emulation_fibers[(round + turn) % 2 ? n - 1 - i : i]);
    }
}

#endif
