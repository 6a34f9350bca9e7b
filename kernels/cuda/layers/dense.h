/* kernels/cuda/layers/dense.h - a dense layer's products, and cuBLASLt's way to do one together
 * with what follows it (dense_lt.c), where --gpu_tuning=epilogues asks for it. Owns: nothing; a
 * gpu_dense_lt needs no destructor. Threads: the plan's. Errors: logged with the layer's name. What
 * cuBLASLt does not offer is no error: it is said once, and cuBLAS and kernels of ours do it
 * (dense.c). */
#ifndef KERNELS_CUDA_LAYERS_DENSE_H
#define KERNELS_CUDA_LAYERS_DENSE_H
#include "kernels/cuda/plan/branch.h"
#include <cublasLt.h>

/* C(m, n) = op(A)(m, k) op(B)(k, n), by columns. */
struct gpu_dense_product {
    cublasOperation_t op_a, op_b;
    int m, n, k;
    const float *a, *b;
    int lda, ldb;
    float *c; /* its columns lie close: ldc is m */
};

/* How factors, floats in memory, are rounded on the way into a product, by precision. */
extern const cublasComputeType_t gpu_dense_product_compute[];

/* One product of a pass with its epilogue. */
struct gpu_dense_lt {
    int usable; /* 0: not asked for, or not there */
    cublasLtEpilogue_t epilogue;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    const float *bias; /* that desc has; NULL: none yet */
};

/* Chooses an algorithm for a product of this shape; its pointers may not be known yet. The epilogue
 * is BIAS, RELU_BIAS or BGRADB. */
enum status gpu_dense_lt_prepare(const struct gpu_plan *plan, const struct gpu_op *op,
                                 const struct gpu_dense_product *p, cublasLtEpilogue_t epilogue,
                                 struct gpu_dense_lt *out);
/* Queues it by the lane, with the bias or where its gradient goes. *done 0: it cannot be done so;
 * nothing was queued. */
enum status gpu_dense_lt_run(const struct gpu_lane *lane, const struct gpu_op *op,
                             const struct gpu_dense_product *p, const float *bias,
                             struct gpu_dense_lt *lt, int *done);

#endif
