/* kernels/cuda/plan/check.c - converts the codes of CUDA, cuDNN and cuBLAS to a status and logs
 * them. */
#include "base/log.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/plan/plan.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

/* CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, which the headers of cuDNN 9.0 do not define. */
enum { SUBLIBRARY_LOADING_FAILED = 1008 };

/* Clears the thread's error, because otherwise the next call would report it. Returns true for each
 * failure of a lost device except the first: all threads that use the device fail, but one log line
 * that names the cause is enough. */
static bool is_consequence(int device)
{
    static atomic_uint_least64_t lost; /* bit of each device */
    (void)cudaGetLastError();
    if (cudaGetLastError() == cudaSuccess || device < 0 || device >= 64)
        return false;
    return (atomic_fetch_or(&lost, (uint64_t)1 << device) >> device & 1) != 0;
}

/* Logs a failure of one of the three libraries with the layer and the device, and clears CUDA's
 * error. */
static void log_failure(const struct gpu_op *op, const char *call, const char *what,
                        const char *more, const char *fix)
{
    int device = -1;
    if (cudaGetDevice(&device) != cudaSuccess)
        (void)cudaGetLastError();
    enum log_level level = is_consequence(device) ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR;
    LOG_AT(level, "%s%s%sCUDA device %d: %s: %s%s%s%s", op != NULL ? "layer '" : "",
           op != NULL ? op->layer->name : "", op != NULL ? "': " : "", device, call, what,
           more[0] != '\0' ? ": " : "", more, fix);
}

/* Returns advice for too little memory: the reason may be that the libraries also allocate memory
 * outside the plans. */
static const char *memory_fix(char more[512])
{
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess)
        (void)cudaGetLastError();
    gpu_memory_advice(device, 0, more, 512);
    return more;
}

const char *gpu_check_advice(cudaError_t code)
{
    switch (code) {
    case cudaErrorNoKernelImageForDevice:
        return "; this build has no kernels for this card's compute capability: add it to CMake's -DWEIR_CUDA_ARCHITECTURES and build again";
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion:
        return "; the NVIDIA driver is too old for this build: update it, or build with an older CUDA toolkit";
    case cudaErrorDevicesUnavailable:
        return "; the card allows only one process (nvidia-smi -q -d COMPUTE shows its mode) and another process uses it, or the card is lost";
    case cudaErrorSystemDriverMismatch:
        return "; the driver's kernel module and its libraries have different versions: reboot";
    case cudaErrorSystemNotReady:
        return "; a service of the driver does not run yet (on machines with NVSwitch: nvidia-fabricmanager)";
    case cudaErrorCompatNotSupportedOnDevice:
        return "; libcuda.so.1 is of a cuda-compat package that does not support this card: remove its folder from LD_LIBRARY_PATH, or update the driver";
    case cudaErrorOperatingSystem:
        return "; check that this user may read and write /dev/nvidia*, and that the container has these files";
    case cudaErrorUnknown:
    case cudaErrorLaunchFailure:
    case cudaErrorHardwareStackError:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
        return "; if nvidia-smi does not show the card any more, it fell off the bus ('dmesg' then has NVRM: Xid 79): reset it, or reboot";
    case cudaErrorECCUncorrectable:
        return "; the card's memory lost data: reset the card, and replace it if it happens again";
    default:
        return "";
    }
}

enum status gpu_check_cuda(const struct gpu_op *op, const char *call, cudaError_t code)
{
    if (code == cudaSuccess)
        return ST_OK;
    char more[512];
    log_failure(op, call, cudaGetErrorString(code), cudaGetErrorName(code),
                code == cudaErrorMemoryAllocation ? memory_fix(more) : gpu_check_advice(code));
    return code == cudaErrorMemoryAllocation ? ST_NOMEM : ST_INTERNAL;
}

enum status gpu_check_kernel(const struct gpu_op *op, const char *kernel, int code)
{
    return gpu_check_cuda(op, kernel, (cudaError_t)code);
}

enum status gpu_check_dnn(const struct gpu_op *op, const char *call, cudnnStatus_t code)
{
    if (code == CUDNN_STATUS_SUCCESS)
        return ST_OK;
    char why[256] = "";
    cudnnGetLastErrorString(why, sizeof why);
    const char *fix = "";
    char more[512];
    if ((int)code == SUBLIBRARY_LOADING_FAILED ||
        code == CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH) {
        snprintf(
            more, sizeof more,
            "; a part of cuDNN (libcudnn_*.so.9) is missing or of another version: install NVIDIA's package libcudnn9-cuda-%d with all of its files, and look for a second cuDNN in LD_LIBRARY_PATH",
            CUDART_VERSION / 1000);
        fix = more;
    }
    if (code == CUDNN_STATUS_NOT_INITIALIZED ||
        code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        fix = memory_fix(more);
    log_failure(op, call, cudnnGetErrorString(code), why, fix);
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

enum status gpu_check_blas(const struct gpu_op *op, const char *call, cublasStatus_t code)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return ST_OK;
    char more[512];
    int may_be_memory = code == CUBLAS_STATUS_NOT_INITIALIZED || code == CUBLAS_STATUS_ALLOC_FAILED;
    log_failure(op, call, cublasGetStatusString(code), "", may_be_memory ? memory_fix(more) : "");
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

enum status gpu_check_no_host_memory(void)
{
    LOG_E("CUDA backend: out of memory on the host");
    return ST_NOMEM;
}
