/* kernels/cuda/memory/copy_rates.h - measures the rates of large copies between the host and a
 * device. See copy_rates in kernels/device_report.h. Threads: any; the caller selects the device
 * first (cudaSetDevice). */
#ifndef KERNELS_CUDA_MEMORY_COPY_RATES_H
#define KERNELS_CUDA_MEMORY_COPY_RATES_H
#include "kernels/device_report.h"

enum status gpu_copy_rates(int device, size_t bytes, struct copy_rates *out);

#endif
