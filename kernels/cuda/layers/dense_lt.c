/* kernels/cuda/layers/dense_lt.c - products with epilogues by cuBLASLt, see dense.h. cuBLASLt
 * accepts a handle of cuBLAS. Both may use the same workspace, because both work on the stream of
 * the lane. The manual promises the same bits in every run if the caller provides the workspace, so
 * `deterministic` needs no further setting. Matrices and biases are tensors of the plan; the arena
 * aligns them more strictly than any algorithm requires. */
#include "base/log.h"
#include "kernels/cuda/layers/dense.h"
#include "kernels/cuda/plan/layers.h"
#include "kernels/tuning.h"
#include <stdatomic.h>

enum { MOST_ALGOS = 8 };

/* Returns the name of the epilogue for a log line. */
static const char *what_follows(cublasLtEpilogue_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BGRADB ? "gradient of the bias" : "bias and relu";
}

static int is_absent(cublasStatus_t code)
{
    return code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_ARCH_MISMATCH;
}

static void say_absent(const struct gpu_plan *plan, const struct gpu_op *op,
                       cublasLtEpilogue_t epilogue, cublasStatus_t code)
{
    static _Atomic int said[2];
    (void)cudaGetLastError(); /* clears the error, or the next launch would report it */
    if (plan->cfg.tuning & TUNING_AUTO ||
        atomic_fetch_add(&said[epilogue == CUBLASLT_EPILOGUE_BGRADB], 1) > 0)
        return;
    LOG_W(
        "layer '%s': cuBLASLt cannot compute this product together with the %s (%s). A separate CUDA kernel computes the %s; this is not logged again for other layers",
        op->layer->name, what_follows(epilogue),
        code == CUBLAS_STATUS_SUCCESS ? "no algorithm" : cublasGetStatusString(code),
        what_follows(epilogue));
}

static cublasStatus_t bias_set(struct gpu_dense_lt *lt, const void *bias)
{
    return cublasLtMatmulDescSetAttribute(&lt->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof bias);
}

static enum status describe(const struct gpu_plan *plan, const struct gpu_op *op,
                            const struct gpu_dense_product *p, struct gpu_dense_lt *lt)
{
    enum status st = ST_OK;
    int32_t op_a = p->op_a, op_b = p->op_b;
    uint32_t epilogue = lt->epilogue;
    int turn_a = p->op_a != CUBLAS_OP_N, turn_b = p->op_b != CUBLAS_OP_N;
    struct {
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
    } attr[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a},
                {CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b},
                {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue}};
    struct {
        cublasLtMatrixLayout_t at;
        int rows, cols, ld;
    } layout[] = {{&lt->a, turn_a ? p->k : p->m, turn_a ? p->m : p->k, p->lda},
                  {&lt->b, turn_b ? p->n : p->k, turn_b ? p->k : p->n, p->ldb},
                  {&lt->c, p->m, p->n, p->m}};
    TRY(gpu_check_blas(op, "cublasLtMatmulDescInit",
                       cublasLtMatmulDescInit(
                           &lt->desc, gpu_dense_product_compute[plan->cfg.precision], CUDA_R_32F)));
    for (size_t k = 0; k < sizeof attr / sizeof *attr; k++)
        TRY(gpu_check_blas(
            op, "cublasLtMatmulDescSetAttribute",
            cublasLtMatmulDescSetAttribute(&lt->desc, attr[k].name, attr[k].value, attr[k].bytes)));
    for (size_t k = 0; k < sizeof layout / sizeof *layout; k++)
        TRY(gpu_check_blas(
            op, "cublasLtMatrixLayoutInit",
            cublasLtMatrixLayoutInit(layout[k].at, CUDA_R_32F, (uint64_t)layout[k].rows,
                                     (uint64_t)layout[k].cols, (int64_t)layout[k].ld)));
    /* no address is known yet, and the choice depends only on the alignment */
    TRY(gpu_check_blas(op, "cublasLtMatmulDescSetAttribute",
                       bias_set(lt, (const void *)(uintptr_t)GPU_ARENA_ALIGN)));
done:
    return st;
}

enum status gpu_dense_lt_prepare(const struct gpu_plan *plan, const struct gpu_op *op,
                                 const struct gpu_dense_product *p, cublasLtEpilogue_t epilogue,
                                 struct gpu_dense_lt *out)
{
    enum status st = ST_OK;
    cublasLtMatmulPreferenceOpaque_t wish;
    cublasLtMatmulHeuristicResult_t found[MOST_ALGOS];
    int n = 0;
    out->epilogue = epilogue;
    TRY(describe(plan, op, p, out));
    TRY(gpu_check_blas(op, "cublasLtMatmulPreferenceInit", cublasLtMatmulPreferenceInit(&wish)));
    TRY(gpu_check_blas(op, "cublasLtMatmulPreferenceSetAttribute",
                       cublasLtMatmulPreferenceSetAttribute(
                           &wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                           &plan->blas_workspace_bytes, sizeof plan->blas_workspace_bytes)));
    cublasStatus_t code =
        cublasLtMatmulAlgoGetHeuristic((cublasLtHandle_t)plan->cublas, &out->desc, &out->a, &out->b,
                                       &out->c, &out->c, &wish, MOST_ALGOS, found, &n);
    if (!is_absent(code))
        TRY(gpu_check_blas(op, "cublasLtMatmulAlgoGetHeuristic", code));
    else
        n = 0;
    for (int k = 0; k < n && !out->usable; k++)
        if (found[k].state == CUBLAS_STATUS_SUCCESS) {
            out->algo = found[k].algo;
            out->usable = 1;
        }
    if (!out->usable)
        say_absent(plan, op, epilogue, code);
done:
    return st;
}

enum status gpu_dense_lt_run(const struct gpu_lane *lane, const struct gpu_op *op,
                             const struct gpu_dense_product *p, const float *bias,
                             struct gpu_dense_lt *lt, int *done)
{
    enum status st = ST_OK;
    static const float one = 1.0f, zero = 0.0f;
    *done = 0;
    if (!lt->usable)
        return ST_OK;
    if (lt->bias != bias) { /* the bias is set once, not in each step */
        TRY(gpu_check_blas(op, "cublasLtMatmulDescSetAttribute", bias_set(lt, bias)));
        lt->bias = bias;
    }
    cublasStatus_t code =
        cublasLtMatmul((cublasLtHandle_t)lane->cublas, &lt->desc, &one, p->a, &lt->a, p->b, &lt->b,
                       &zero, p->c, &lt->c, p->c, &lt->c, &lt->algo, lane->blas_workspace,
                       lane->plan->blas_workspace_bytes, lane->stream);
    if (is_absent(code)) {
        say_absent(lane->plan, op, lt->epilogue, code);
        lt->usable = 0;
        gpu_layer_capture_invalidate(lane->plan);
        return ST_OK;
    }
    TRY(gpu_check_blas(op, "cublasLtMatmul", code));
    *done = 1;
done:
    return st;
}
