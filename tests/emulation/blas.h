/* tests/emulation/blas.h - what a test asks of the emulated cuBLASLt.
 * Threads: any, while nothing is being computed. Errors: none. */
#ifndef TESTS_EMULATION_BLAS_H
#define TESTS_EMULATION_BLAS_H

enum emulation_lt {
    EMULATION_LT_ALL,     /* it computes what it is asked for */
    EMULATION_LT_UNKNOWN, /* its heuristic does not support the product, */
    EMULATION_LT_NONE,    /* finds no algorithm for it, */
    EMULATION_LT_RUN      /* or one that cannot be run */
};
void emulation_lt_refuse(enum emulation_lt what);
/* Products since the last call that were queued with a bias, or with its gradient. */
int emulation_lt_done(int gradient);

#endif
