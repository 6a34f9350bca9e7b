/* tests/emulation/kernels/cuda/stacks.cuh - how threads.cuh goes from one thread's stack to
 * another's. */
#ifndef TESTS_EMULATION_STACKS_CUH
#define TESTS_EMULATION_STACKS_CUH
#include <stddef.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

/* swapcontext() asks the system for the signal mask each time, which takes most of what a kernel
 * takes; jumps do not, but ThreadSanitizer does not know what they are. AddressSanitizer is told
 * of each: the compiler's own jumps, in functions that it leaves alone, as it takes longjmp() for
 * the end of all functions that were called. */
#ifdef __SANITIZE_THREAD__
#define EMULATION_JUMPS 0
#else
#define EMULATION_JUMPS 1
#endif
/* Nor does the compiler look into them, as others run, and change variables, between. */
#ifdef __clang__
#define EMULATION_SWITCHES __attribute__((optnone, noinline, no_sanitize("address")))
#else
#define EMULATION_SWITCHES __attribute__((noipa, no_sanitize("address")))
#endif

/* A stack, as AddressSanitizer knows it; "kept" are the variables that it has elsewhere. */
struct emulation_stack {
    const void *bottom;
    size_t bytes;
    void *kept;
};

/* Before the jump from one stack to another, and after it, on the other one, to which "from" is
 * where it came from. */
static inline void emulation_switch(struct emulation_stack *from, const struct emulation_stack *to)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->kept, to->bottom, to->bytes);
#else
    (void)from, (void)to;
#endif
}

static inline void emulation_switched(const struct emulation_stack *to,
                                      struct emulation_stack *from)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(to->kept, &from->bottom, &from->bytes);
#else
    (void)to, (void)from;
#endif
}

/* A function of its own, as the compiler takes none for one that jumps to itself. */
EMULATION_SWITCHES static void emulation_jump(void **to)
{
    __builtin_longjmp(to, 1);
}

#endif
