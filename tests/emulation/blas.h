/* tests/emulation/blas.h - faults of the emulated cuBLASLt for tests. Threads: any, while no
 * product is computed. Errors: none. */
#ifndef TESTS_EMULATION_BLAS_H
#define TESTS_EMULATION_BLAS_H

enum emulation_lt {
    EMULATION_LT_ALL,     /* it computes all products */
    EMULATION_LT_UNKNOWN, /* its heuristic does not support the product, */
    EMULATION_LT_NONE,    /* finds no algorithm for it, */
    EMULATION_LT_RUN      /* finds one that cannot run */
};
void emulation_lt_refuse(enum emulation_lt what);
/* Returns the number of products since the last call that were queued with a bias, or with its
 * gradient. */
int emulation_lt_done(int gradient);

#endif
