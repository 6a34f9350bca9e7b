/* tests/emulation/blas.h - faults of the emulated cuBLASLt for tests. Threads: any, while no
 * product is computed. Errors: none. */
#ifndef TESTS_EMULATION_BLAS_H
#define TESTS_EMULATION_BLAS_H

enum emulation_lt {
    EMULATION_LT_ALL,     /* cuBLASLt computes all products */
    EMULATION_LT_UNKNOWN, /* the heuristic does not support a product */
    EMULATION_LT_NONE,    /* the heuristic finds no algorithm */
    EMULATION_LT_RUN      /* the algorithm that is found cannot run */
};
void emulation_lt_refuse(enum emulation_lt what);
/* Returns the number of products with a bias (gradient 0), or with its gradient (1), that were
 * queued since the last call. */
int emulation_lt_done(int gradient);

#endif
