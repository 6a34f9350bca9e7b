/* kernels/vector/clones.h - compiles a loop several times, once for each width of vector registers;
 * the loader chooses a clone at program start. All clones compute the same bits: the build forbids
 * fused multiply-add. An ifunc makes the choice. In builds with a sanitizer the ifunc runs too
 * early, and clang 14 does not support ifuncs for static functions; in both kinds of builds each
 * loop has only one form. Tests define VECTOR_ONE_FORM to compile one form, and compare it with the
 * clones. The ifunc queries the processor directly, so glibc's tunables do not change its
 * choice. */
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

/* Marks a loop in which any two arrays are either the same array or do not overlap. */
#ifdef __clang__
#define VECTOR_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define VECTOR_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
