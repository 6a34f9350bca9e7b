/* kernels/cuda/plan/libraries.h - versions of NVIDIA's libraries that this process uses, and the
 * files that they were loaded from. Owns: nothing. Threads: any. Errors: none; unknown parts are
 * omitted. */
#ifndef KERNELS_CUDA_PLAN_LIBRARIES_H
#define KERNELS_CUDA_PLAN_LIBRARIES_H
#include <stddef.h>

/* Writes "CUDA runtime 12.4, cuDNN 9.1.0 (/usr/lib/.../libcudnn.so.9.1.0), cuBLAS 12.4.5 (...)". */
void gpu_libraries(char *dst, size_t bytes);
/* Writes the file that contains a function, with links resolved; "" if unknown. */
void gpu_libraries_path(const void *function, char *dst, size_t bytes);

#endif
