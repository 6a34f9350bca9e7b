/* kernels/cuda/plan/libraries.c - queries each library's version, and asks the dynamic linker which
 * file contains one of the library's functions. */
#include "kernels/cuda/plan/libraries.h"
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

void gpu_libraries_path(const void *function, char *dst, size_t bytes)
{
    Dl_info info;
    char real[PATH_MAX];
    dst[0] = '\0';
    if (dladdr(function, &info) == 0 || info.dli_fname == NULL)
        return;
    snprintf(dst, bytes, "%s", realpath(info.dli_fname, real) ? real : info.dli_fname);
}

void gpu_libraries(char *dst, size_t bytes)
{
    int runtime = 0, blas[3] = {0, 0, 0};
    char dnn_path[PATH_MAX], blas_path[PATH_MAX];
    size_t dnn = cudnnGetVersion();
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cublasGetProperty(MAJOR_VERSION, &blas[0]);
    (void)cublasGetProperty(MINOR_VERSION, &blas[1]);
    (void)cublasGetProperty(PATCH_LEVEL, &blas[2]);
    gpu_libraries_path((const void *)&cudnnGetVersion, dnn_path, sizeof dnn_path);
    gpu_libraries_path((const void *)&cublasGetProperty, blas_path, sizeof blas_path);
    snprintf(dst, bytes, "CUDA runtime %d.%d, cuDNN %zu.%zu.%zu (%.300s), cuBLAS %d.%d.%d (%.300s)",
             runtime / 1000, runtime % 1000 / 10, dnn / 10000, dnn / 100 % 100, dnn % 100, dnn_path,
             blas[0], blas[1], blas[2], blas_path);
}
