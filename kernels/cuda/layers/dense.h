/* kernels/cuda/layers/dense.h - the products of a dense layer, and their combinations with the
 * operation that follows them, by cuBLASLt (dense_lt.c), for --gpu_tuning=epilogues. Owns: nothing;
 * a gpu_dense_lt needs no destructor. Threads: the plan's. Errors: logged with the layer's name. A
 * combination that cuBLASLt does not offer is no error: it is logged once, and dense.c uses cuBLAS
 * and Weir's kernels. */
#ifndef KERNELS_CUDA_LAYERS_DENSE_H
#define KERNELS_CUDA_LAYERS_DENSE_H
#include "kernels/cuda/plan/branch.h"
#include <cublasLt.h>

/* C(m, n) = op(A)(m, k) op(B)(k, n), stored by columns. */
struct gpu_dense_product {
    cublasOperation_t op_a, op_b;
    int m, n, k;
    const float *a, *b;
    int lda, ldb;
    float *c; /* result, without gaps between columns: ldc is m */
};

/* Compute types of products, indexed by the precision to which the factors are rounded. In memory
 * the factors are floats. */
extern const cublasComputeType_t gpu_dense_product_compute[];

/* One product of a pass with its epilogue (the operation that cuBLASLt applies to the result). */
struct gpu_dense_lt {
    int usable; /* 0: the epilogue was not requested, or is not supported */
    cublasLtEpilogue_t epilogue;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    const float *bias; /* bias that is set in desc; NULL: none so far */
};

/* Chooses an algorithm for a product of this shape; the product's pointers need not be set yet. The
 * epilogue is BIAS, RELU_BIAS or BGRADB. */
enum status gpu_dense_lt_prepare(const struct gpu_plan *plan, const struct gpu_op *op,
                                 const struct gpu_dense_product *p, cublasLtEpilogue_t epilogue,
                                 struct gpu_dense_lt *out);
/* Queues the product on the lane. bias: the bias, or the destination of its gradient. *done becomes
 * 0 if cuBLASLt does not support the product; then nothing was queued. */
enum status gpu_dense_lt_run(const struct gpu_lane *lane, const struct gpu_op *op,
                             const struct gpu_dense_product *p, const float *bias,
                             struct gpu_dense_lt *lt, int *done);

#endif
