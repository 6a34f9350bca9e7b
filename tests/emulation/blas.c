/* tests/emulation/blas.c - the functions of cuBLAS and cuBLASLt that the backend calls, in plain
 * loops. They are strict where the real functions are vague: arguments must be device memory of the
 * shape's size, and every product overwrites the first MB of the workspace with NaN. cuBLASLt
 * proposes an unusable algorithm before a usable one. The usable one works only in the case for
 * which it was proposed: shapes, epilogue, workspace, and the announced alignment of pointers. */
#include "tests/emulation/blas.h"
#include "tests/emulation/errors.h"
#include "tests/emulation/values.h"
#include <cublasLt.h>
#include <cublas_v2.h>
#include <stdlib.h>

enum { MOST_USED = 1 << 20 }; /* part of the workspace that a product uses */

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
    FAULT_AS("cublasCreate", CUBLAS_STATUS_INTERNAL_ERROR);
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
    FAULT_AS("cublasSetStream", CUBLAS_STATUS_INTERNAL_ERROR);
    h->handle.stream = stream;
    h->work = NULL; /* cuBLAS also forgets the workspace here */
    h->work_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *work, size_t bytes)
{
    FAULT_AS("cublasSetWorkspace", CUBLAS_STATUS_INTERNAL_ERROR);
    emulation_check_device("cuBLAS workspace", work, bytes);
    if ((uintptr_t)work % 256 != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    h->work = work;
    h->work_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* A product of matrices whose columns are contiguous: C(m, n) = op(A)(m, k) op(B)(k, n). */
struct gemm_call {
    int turn_a, turn_b, m, n, k, lda, ldb, ldc, bits;
    const float *a, *b;
    float *c;
    void *work;
    size_t work_bytes;
    struct emulation_work used; /* used part of the workspace */
    double sound;
    const float *bias; /* [m], added to each column; NULL: none */
    float *bias_grad;  /* [n], sums of op(B) over k; NULL: none */
    int relu;
};

static void gemm_run(const void *args)
{
    const struct gemm_call *g = args;
    emulation_work_check(&g->used);
    for (int j = 0; j < g->n; j++)
        for (int i = 0; i < g->m; i++) {
            double sum = 0;
            for (int l = 0; l < g->k; l++) {
                size_t at_a = g->turn_a ? l + (size_t)i * g->lda : i + (size_t)l * g->lda;
                size_t at_b = g->turn_b ? j + (size_t)l * g->ldb : l + (size_t)j * g->ldb;
                sum +=
                    emulation_factor(g->a[at_a], g->bits) * emulation_factor(g->b[at_b], g->bits);
            }
            float c = (float)(sum * g->sound) + (g->bias != NULL ? g->bias[i] : 0.0f);
            g->c[i + (size_t)j * (size_t)g->ldc] = g->relu && !(c > 0.0f) ? 0.0f : c;
        }
    for (int j = 0; j < g->n && g->bias_grad != NULL; j++) {
        double sum = 0; /* sum of factors, which may be rounded */
        for (int l = 0; l < g->k; l++)
            sum += emulation_factor(g->b[j + (size_t)l * (size_t)g->ldb], g->bits);
        g->bias_grad[j] = (float)(sum * g->sound);
    }
}

static int gemm_do(const char *name, cudaStream_t s, struct gemm_call *g)
{
    emulation_work_queue(s, g->work, g->work_bytes < MOST_USED ? g->work_bytes : MOST_USED,
                         &g->used);
    return emulation_do_as(name, s, gemm_run, g, sizeof *g);
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
    int code = gemm_do(__func__, h->handle.stream, &call);
    emulation_handle_end(&h->handle);
    return code == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* ---- cuBLASLt: the descriptors in the caller's memory ---- */

enum { DESC = 0x4c74d01, LAYOUT, PREFERENCE, ALGO, MAX_ALIGN = 256 };

struct lt_desc {
    int what;
    cublasComputeType_t compute;
    int32_t op_a, op_b;
    uint32_t epilogue;
    uintptr_t bias;
};

struct lt_layout {
    int what, type;
    uint64_t rows, cols;
    int64_t ld;
};

struct lt_preference {
    int what;
    uint64_t work_bytes;
};

struct lt_algo { /* case for which the algorithm was proposed */
    int what, m, n, k, epilogue, compute, ops, align_bias;
    uint64_t work_bytes;
};

static enum emulation_lt lt_refuses;
static int lt_done[2]; /* number of products so far with a bias; with a bias gradient */

void emulation_lt_refuse(enum emulation_lt what)
{
    lt_refuses = what;
}

int emulation_lt_done(int gradient)
{
    return __atomic_exchange_n(&lt_done[gradient], 0, __ATOMIC_RELAXED);
}

static void *lt_of(const void *opaque, int what)
{
    if (opaque == NULL || *(const int *)opaque != what)
        emulation_fail(
            "a descriptor of cuBLASLt's that was not initialized, or is of another kind");
    return (void *)(uintptr_t)opaque;
}

/* Copies `ours` to the caller's opaque memory, which has `size` bytes and must have at least
 * `room`. */
static cublasStatus_t lt_init(void *opaque, size_t room, size_t size, const void *ours,
                              size_t bytes)
{
    if (size < room)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memset(opaque, 0, size);
    memcpy(opaque, ours, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static int align_of(uintptr_t at)
{
    return at % MAX_ALIGN == 0 ? MAX_ALIGN : (int)(at & -at);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t opaque, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale)
{
    FAULT_AS("cublasLtMatmulDescInit", CUBLAS_STATUS_INTERNAL_ERROR);
    struct lt_desc d = {DESC, compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, 0};
    if (scale != CUDA_R_32F)
        emulation_fail("a type of factors of products that is not emulated");
    return lt_init(opaque, sizeof *opaque, size, &d, sizeof d);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes)
{
    FAULT(CUBLAS_STATUS_INTERNAL_ERROR);
    struct lt_desc *d = lt_of(opaque, DESC);
    void *to = name == CUBLASLT_MATMUL_DESC_TRANSA         ? (void *)&d->op_a
               : name == CUBLASLT_MATMUL_DESC_TRANSB       ? (void *)&d->op_b
               : name == CUBLASLT_MATMUL_DESC_EPILOGUE     ? (void *)&d->epilogue
               : name == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? (void *)&d->bias
                                                           : NULL;
    if (to == NULL)
        emulation_fail("an attribute of a product that is not emulated");
    if (value == NULL || bytes != (to == &d->bias ? sizeof d->bias : sizeof d->op_a))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t opaque, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld)
{
    FAULT_AS("cublasLtMatrixLayoutInit", CUBLAS_STATUS_INTERNAL_ERROR);
    struct lt_layout l = {LAYOUT, type, rows, cols, ld};
    return lt_init(opaque, sizeof *opaque, size, &l, sizeof l);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t opaque, size_t size)
{
    FAULT_AS("cublasLtMatmulPreferenceInit", CUBLAS_STATUS_INTERNAL_ERROR);
    struct lt_preference p = {PREFERENCE, 0};
    return lt_init(opaque, sizeof *opaque, size, &p, sizeof p);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t bytes)
{
    FAULT(CUBLAS_STATUS_INTERNAL_ERROR);
    struct lt_preference *p = lt_of(opaque, PREFERENCE);
    if (name != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        emulation_fail("a preference for products that is not emulated");
    if (value == NULL || bytes != sizeof p->work_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&p->work_bytes, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- cuBLASLt: products ---- */

/* Checks the descriptors and describes the product. *algo becomes the case for which an algorithm
 * can be proposed, without its workspace. */
static cublasStatus_t lt_describe(const struct lt_desc *d, const struct lt_layout *const matrix[4],
                                  struct lt_algo *algo)
{
    const struct lt_layout *a = matrix[0], *b = matrix[1], *c = matrix[2];
    int turn_a = d->op_a != CUBLAS_OP_N, turn_b = d->op_b != CUBLAS_OP_N;
    uint64_t k = turn_a ? a->rows : a->cols;
    for (int i = 0; i < 4; i++) {
        if (matrix[i]->type != CUDA_R_32F)
            return CUBLAS_STATUS_NOT_SUPPORTED;
        if (matrix[i]->rows < 1 || matrix[i]->cols < 1 || matrix[i]->ld < (int64_t)matrix[i]->rows)
            return CUBLAS_STATUS_INVALID_VALUE;
    }
    if ((turn_a ? a->cols : a->rows) != c->rows || (turn_b ? b->cols : b->rows) != k ||
        (turn_b ? b->rows : b->cols) != c->cols || memcmp(c, matrix[3], sizeof *c) != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (d->epilogue != CUBLASLT_EPILOGUE_BIAS && d->epilogue != CUBLASLT_EPILOGUE_RELU_BIAS &&
        d->epilogue != CUBLASLT_EPILOGUE_BGRADB)
        emulation_fail("an epilogue that is not emulated");
    if (d->epilogue == CUBLASLT_EPILOGUE_BGRADB && !turn_b)
        return CUBLAS_STATUS_NOT_SUPPORTED; /* a card does not support it either */
    *algo = (struct lt_algo){.what = ALGO,
                             .m = (int)c->rows,
                             .n = (int)c->cols,
                             .k = (int)k,
                             .epilogue = (int)d->epilogue,
                             .compute = d->compute,
                             .ops = turn_a + 2 * turn_b,
                             .align_bias = align_of(d->bias)};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int n,
                                              cublasLtMatmulHeuristicResult_t *out, int *n_out)
{
    FAULT(CUBLAS_STATUS_INTERNAL_ERROR);
    FAULT_AS("an epilogue", CUBLAS_STATUS_NOT_SUPPORTED);
    const struct cublasContext *h = (const struct cublasContext *)handle;
    const struct lt_preference *p = lt_of(preference, PREFERENCE);
    const struct lt_desc *product = lt_of(desc, DESC);
    const struct lt_layout *const matrix[] = {lt_of(a, LAYOUT), lt_of(b, LAYOUT), lt_of(c, LAYOUT),
                                              lt_of(d, LAYOUT)};
    struct lt_algo algo;
    if (n <= 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t code = lt_describe(product, matrix, &algo);
    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    if (lt_refuses == EMULATION_LT_UNKNOWN ||
        (bits_of(product->compute) == BF16_BITS && !h->handle.sees_bf16))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    algo.work_bytes = p->work_bytes < MOST_USED ? p->work_bytes : MOST_USED;
    *n_out = lt_refuses == EMULATION_LT_NONE ? 0 : n < 2 ? n : 2;
    memset(out, 0xff, (size_t)n * sizeof *out);
    for (int i = 0; i < *n_out; i++) {
        int good = i == *n_out - 1;
        out[i].state = good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
        if (good) {
            memcpy(&out[i].algo, &algo, sizeof algo);
            out[i].workspaceSize = algo.work_bytes;
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Checks that the pointers are aligned as announced, within device memory of the shape's size. */
static cublasStatus_t lt_check(const struct gemm_call *call, const struct lt_algo *algo,
                               const void *bias)
{
    const void *at[] = {call->a, call->b, call->c, call->work};
    for (int i = 0; i < 4; i++)
        /* cuBLASLt assumes this alignment, because the caller's preference states no other */
        if ((uintptr_t)at[i] % MAX_ALIGN != 0)
            return CUBLAS_STATUS_INVALID_VALUE;
    if (bias == NULL || (uintptr_t)bias % (uintptr_t)algo->align_bias != 0 ||
        call->work_bytes < algo->work_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    emulation_check_device("cuBLASLt workspace", call->work, call->work_bytes);
    check_floats("a", call->a, (size_t)call->lda * (size_t)(call->turn_a ? call->m : call->k));
    check_floats("b", call->b, (size_t)call->ldb * (size_t)(call->turn_b ? call->k : call->n));
    check_floats("c", call->c, (size_t)call->ldc * (size_t)call->n);
    check_floats("bias", bias, (size_t)(call->bias != NULL ? call->m : call->n));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_desc, const void *b,
                              cublasLtMatrixLayout_t b_desc, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_desc, void *d, cublasLtMatrixLayout_t d_desc,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t work_bytes,
                              cudaStream_t stream)
{
    struct cublasContext *h = (struct cublasContext *)handle;
    const struct lt_desc *product = lt_of(desc, DESC);
    const struct lt_layout *const matrix[] = {lt_of(a_desc, LAYOUT), lt_of(b_desc, LAYOUT),
                                              lt_of(c_desc, LAYOUT), lt_of(d_desc, LAYOUT)};
    const struct lt_algo *chosen = lt_of(algo, ALGO);
    struct lt_algo now;
    emulation_check_scale(alpha, beta);
    cublasStatus_t code = lt_describe(product, matrix, &now);
    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    now.align_bias = chosen->align_bias;
    now.work_bytes = chosen->work_bytes;
    if (memcmp(&now, chosen, sizeof now) != 0 || c != d)
        return CUBLAS_STATUS_INVALID_VALUE;
    FAULT_AS("an epilogue", CUBLAS_STATUS_NOT_SUPPORTED);
    if (lt_refuses == EMULATION_LT_RUN)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    int gradient = now.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    struct gemm_call call = {.turn_a = now.ops & 1,
                             .turn_b = now.ops >> 1,
                             .m = now.m,
                             .n = now.n,
                             .k = now.k,
                             .lda = (int)matrix[0]->ld,
                             .ldb = (int)matrix[1]->ld,
                             .ldc = (int)matrix[3]->ld,
                             .bits = bits_of(product->compute),
                             .a = a,
                             .b = b,
                             .c = d,
                             .work = work,
                             .work_bytes = work_bytes,
                             .sound = emulation_soundness(),
                             .bias = gradient ? NULL : (const float *)product->bias,
                             .bias_grad = gradient ? (float *)product->bias : NULL,
                             .relu = now.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS};
    code = lt_check(&call, chosen, (const void *)product->bias);
    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    emulation_handle_begin(&h->handle);
    if (stream == NULL || emulation_stream_device(stream) != h->handle.device)
        emulation_fail("a product on a stream of another device");
    int failed = gemm_do(__func__, stream, &call);
    emulation_handle_end(&h->handle);
    __atomic_fetch_add(&lt_done[gradient], 1, __ATOMIC_RELAXED);
    return failed == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
