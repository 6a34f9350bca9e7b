/* kernels/vector/clones.h - one loop, compiled for each width of vector registers, chosen when the
 * program is loaded. All clones give the same bits: the build forbids fused multiply-add.
 * The choice is made by an ifunc, which sanitizers run too early and clang 14 cannot do for static
 * functions: there the loops have one form, as with VECTOR_ONE_FORM, which tests define to compare
 * the forms. The ifunc asks the processor itself: glibc's tunables do not change its choice. */
#ifndef KERNELS_VECTOR_CLONES_H
#define KERNELS_VECTOR_CLONES_H

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) &&                        \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(VECTOR_ONE_FORM)
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default"), noinline))
#define VECTOR_HAS_CLONES 1
#else
#define VECTOR_HAS_CLONES 0
#define VECTOR_CLONES __attribute__((noinline))
#endif

/* Stands before a loop whose arrays are the same or apart, never shifted against each other. */
#ifdef __clang__
#define VECTOR_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define VECTOR_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
