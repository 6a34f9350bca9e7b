/* kernels/cuda/plan/libraries.h - versions of NVIDIA's libraries that this process uses, and the
 * files that they were loaded from. Owns: nothing. Threads: any. Errors: none; unknown versions and
 * files are omitted. */
#ifndef KERNELS_CUDA_PLAN_LIBRARIES_H
#define KERNELS_CUDA_PLAN_LIBRARIES_H
#include <stddef.h>

/* Writes a text such as "CUDA runtime 12.4, cuDNN 9.1.0 (/usr/lib/.../libcudnn.so.9.1.0), cuBLAS
 * 12.4.5 (...)". */
void gpu_libraries(char *dst, size_t bytes);
/* Writes the path, without symbolic links, of the file that contains a function; "" if it is
 * unknown. */
void gpu_libraries_path(const void *function, char *dst, size_t bytes);

#endif
