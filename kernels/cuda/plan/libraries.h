/* kernels/cuda/plan/libraries.h - which of NVIDIA's libraries this process computes with: their
 * versions and the files they really came from. Owns: nothing. Threads: any. Errors: none; what is
 * not told is left out. */
#ifndef KERNELS_CUDA_PLAN_LIBRARIES_H
#define KERNELS_CUDA_PLAN_LIBRARIES_H
#include <stddef.h>

/* "CUDA runtime 12.4, cuDNN 9.1.0 (/usr/lib/.../libcudnn.so.9.1.0), cuBLAS 12.4.5 (...)" */
void gpu_libraries(char *dst, size_t bytes);
/* The file that a function lies in, links followed; "" if it is not told. */
void gpu_libraries_path(const void *function, char *dst, size_t bytes);

#endif
