/* tests/emulation/blas.c - what of cuBLAS the backend calls, in plain loops. Strict where the real
 * one is vague: arguments must be device memory of the size that the shape says, and its workspace
 * is overwritten with NaN at every product, the first MB of it. */
#include "tests/emulation/errors.h"
#include "tests/emulation/values.h"
#include <cublas_v2.h>
#include <stdlib.h>

enum { MOST_USED = 1 << 20 }; /* of the workspace, by a product */

struct cublasContext {
    struct emulation_handle handle;
    void *work;
    size_t work_bytes;
};

static void check_floats(const char *what, const void *at, size_t n)
{
    emulation_check_device(what, at, n * sizeof(float));
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
    *value = type == MAJOR_VERSION ? 12 : type == MINOR_VERSION ? 4 : 5;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "emulated cuBLAS error";
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *out)
{
    FAULT(CUBLAS_STATUS_INTERNAL_ERROR);
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    emulation_handle_init(&(*out)->handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream)
{
    FAULT(CUBLAS_STATUS_INTERNAL_ERROR);
    h->handle.stream = stream;
    h->work = NULL; /* as the real one forgets it */
    h->work_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *work, size_t bytes)
{
    FAULT(CUBLAS_STATUS_INTERNAL_ERROR);
    emulation_check_device("cuBLAS workspace", work, bytes);
    if ((uintptr_t)work % 256 != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    h->work = work;
    h->work_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* By columns: C(m, n) = op(A)(m, k) op(B)(k, n). */
struct gemm_call {
    int turn_a, turn_b, m, n, k, lda, ldb, ldc, bits;
    const float *a, *b;
    float *c;
    void *work;
    size_t work_bytes;
    double sound;
};

static void gemm_run(const void *args)
{
    const struct gemm_call *g = args;
    size_t used = g->work_bytes < MOST_USED ? g->work_bytes : MOST_USED;
    if (used > 0)
        emulation_fill_nan(g->work, used);
    for (int j = 0; j < g->n; j++)
        for (int i = 0; i < g->m; i++) {
            double sum = 0;
            for (int l = 0; l < g->k; l++) {
                size_t at_a = g->turn_a ? l + (size_t)i * g->lda : i + (size_t)l * g->lda;
                size_t at_b = g->turn_b ? j + (size_t)l * g->ldb : l + (size_t)j * g->ldb;
                sum +=
                    emulation_factor(g->a[at_a], g->bits) * emulation_factor(g->b[at_b], g->bits);
            }
            g->c[i + (size_t)j * (size_t)g->ldc] = (float)(sum * g->sound);
        }
}

static int bits_of(cublasComputeType_t compute)
{
    switch (compute) {
    case CUBLAS_COMPUTE_32F:
        return ALL_BITS;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        return TF32_BITS;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
        return BF16_BITS;
    default:
        emulation_fail("a way of computing products that is not emulated");
    }
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                            int n, int k, const void *alpha, const void *a, cudaDataType type_a,
                            int lda, const void *b, cudaDataType type_b, int ldb, const void *beta,
                            void *c, cudaDataType type_c, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algo)
{
    struct gemm_call call = {.turn_a = op_a != CUBLAS_OP_N,
                             .turn_b = op_b != CUBLAS_OP_N,
                             .m = m,
                             .n = n,
                             .k = k,
                             .lda = lda,
                             .ldb = ldb,
                             .ldc = ldc,
                             .bits = bits_of(compute),
                             .a = a,
                             .b = b,
                             .c = c,
                             .work = h->work,
                             .work_bytes = h->work_bytes,
                             .sound = emulation_soundness()};
    emulation_check_scale(alpha, beta);
    if (type_a != CUDA_R_32F || type_b != CUDA_R_32F || type_c != CUDA_R_32F ||
        algo != CUBLAS_GEMM_DEFAULT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (call.bits == BF16_BITS && !h->handle.sees_bf16)
        return CUBLAS_STATUS_ARCH_MISMATCH;
    if (lda < (call.turn_a ? k : m) || ldb < (call.turn_b ? n : k) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    check_floats("a", a, (size_t)lda * (size_t)(call.turn_a ? m : k));
    check_floats("b", b, (size_t)ldb * (size_t)(call.turn_b ? k : n));
    check_floats("c", c, (size_t)ldc * (size_t)n);
    emulation_handle_begin(&h->handle);
    int code = emulation_do(h->handle.stream, gemm_run, &call, sizeof call);
    emulation_handle_end(&h->handle);
    return code == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
