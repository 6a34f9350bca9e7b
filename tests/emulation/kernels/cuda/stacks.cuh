/* tests/emulation/kernels/cuda/stacks.cuh - switches from one thread's stack to another's for
 * threads.cuh. */
#ifndef TESTS_EMULATION_STACKS_CUH
#define TESTS_EMULATION_STACKS_CUH
#include <stddef.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

/* swapcontext() reads the signal mask by a system call each time, which would be most of a kernel's
 * time. Jumps do not read it, but ThreadSanitizer does not understand jumps. AddressSanitizer is
 * notified of each jump. The jumps are the compiler's own, in functions that AddressSanitizer does
 * not instrument, because it treats longjmp() as the end of all called functions. */
#ifdef __SANITIZE_THREAD__
#define EMULATION_JUMPS 0
#else
#define EMULATION_JUMPS 1
#endif
/* The compiler does not optimise across these jumps either, because other threads run in between
 * and change variables. */
#ifdef __clang__
#define EMULATION_SWITCHES __attribute__((optnone, noinline, no_sanitize("address")))
#else
#define EMULATION_SWITCHES __attribute__((noipa, no_sanitize("address")))
#endif

/* A stack, as AddressSanitizer stores it. "kept" are the variables that AddressSanitizer stores
 * elsewhere. */
struct emulation_stack {
    const void *bottom;
    size_t bytes;
    void *kept;
};

/* Notifies AddressSanitizer of a jump: before it, on the old stack, and after it, on the new stack,
 * where `from` is the previous stack. */
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

/* Jumps in a separate function, because the compiler rejects a function that jumps to itself. */
EMULATION_SWITCHES static void emulation_jump(void **to)
{
    __builtin_longjmp(to, 1);
}

#endif
