/* kernels/cuda/error.c - CUDA's, cuDNN's and cuBLAS's codes as ours. */
#include "base/log.h"
#include "kernels/cuda/plan.h"

/* Of all three libraries, so that the line always names the layer and the device. */
static void say(const struct cuda_op *op, const char *call, const char *what, const char *more,
                const char *fix)
{
    int device = -1;
    (void)cudaGetDevice(&device);
    LOG_E("layer '%s': CUDA device %d: %s: %s%s%s%s", op != NULL ? op->layer->name : "(all)",
          device, call, what, more[0] != '\0' ? ": " : "", more, fix);
}

const char *cuda_mend(cudaError_t code)
{
    switch (code) {
    case cudaErrorNoKernelImageForDevice:
        return "; this build has no kernels for this card's compute capability: add it to CMake's "
               "-DWEIR_CUDA_ARCHITECTURES and build again";
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion:
        return "; the NVIDIA driver is too old for this build: update it, or build with an older "
               "CUDA toolkit";
    case cudaErrorDevicesUnavailable:
        return "; the card lets in one process alone (nvidia-smi -q -d COMPUTE shows its mode) and "
               "another has it, or it is lost";
    case cudaErrorSystemDriverMismatch:
        return "; the driver's kernel module and its libraries have different versions: reboot";
    case cudaErrorSystemNotReady:
        return "; a service of the driver does not run yet, on machines with NVSwitch "
               "nvidia-fabricmanager";
    case cudaErrorECCUncorrectable:
        return "; the card's memory lost data: reset the card, and replace it if it happens again";
    default:
        return "";
    }
}

enum status cuda_check(const struct cuda_op *op, const char *call, cudaError_t code)
{
    if (code == cudaSuccess)
        return ST_OK;
    say(op, call, cudaGetErrorString(code), cudaGetErrorName(code), cuda_mend(code));
    (void)cudaGetLastError(); /* the next call shall not report it again */
    return code == cudaErrorMemoryAllocation ? ST_NOMEM : ST_INTERNAL;
}

enum status cuda_check_kernel(const struct cuda_op *op, const char *kernel, int code)
{
    return cuda_check(op, kernel, (cudaError_t)code);
}

enum status cuda_check_dnn(const struct cuda_op *op, const char *call, cudnnStatus_t code)
{
    if (code == CUDNN_STATUS_SUCCESS)
        return ST_OK;
    char why[256] = "";
    cudnnGetLastErrorString(why, sizeof why);
    say(op, call, cudnnGetErrorString(code), why, "");
    switch (CUDNN_STATUS_CATEGORY(code)) {
    case CUDNN_STATUS_NOT_SUPPORTED:
    case CUDNN_STATUS_BAD_PARAM:
        return ST_UNSUPPORTED;
    default:
        return code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
                       code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
                   ? ST_NOMEM
                   : ST_INTERNAL;
    }
}

enum status cuda_check_blas(const struct cuda_op *op, const char *call, cublasStatus_t code)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return ST_OK;
    say(op, call, cublasGetStatusString(code), "", "");
    switch (code) {
    case CUBLAS_STATUS_ALLOC_FAILED:
        return ST_NOMEM;
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_INVALID_VALUE:
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return ST_UNSUPPORTED;
    default:
        return ST_INTERNAL;
    }
}

enum status cuda_no_host_memory(void)
{
    LOG_E("CUDA backend: no memory left on the host for its own records");
    return ST_NOMEM;
}
