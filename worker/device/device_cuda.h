/* worker/device/device_cuda.h - the GPUs that the NVIDIA driver shows to this process, in the
 * driver's order. They are read from the driver's library, libcuda.so.1, because only this library
 * interprets CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. The library is a part of the driver, not
 * of the CUDA toolkit. It is loaded at the first call and never unloaded. No context is created, so
 * no memory of a GPU is used.
 * Threads: one at a time. Errors: none logged: a machine without a GPU is no error. */
#ifndef WORKER_DEVICE_DEVICE_CUDA_H
#define WORKER_DEVICE_DEVICE_CUDA_H
#include "worker/device/device_info.h"

/* Fills at most DEVICE_MAX entries and returns their number. 0: CUDA shows no GPU; -1: there is no
 * driver; -2: the driver fails. In these three cases why[DEVICE_WHY_SIZE] contains the reason. */
int device_cuda_list(struct device_info *list, char *why);
/* Writes the CUDA version that the driver supports (12040 means 12.4; 0: unknown), and the real
 * path of the library to path[DEVICE_FILE_SIZE] ("": no driver). */
void device_cuda_driver(int *version, char *path);
/* Writes a text such as "GPU-8932f937-d72c-...", or "MIG-..." for a MIG instance, to
 * out[DEVICE_UUID_SIZE]. */
void device_cuda_uuid(const uint8_t uuid[16], int is_mig, char *out);

#endif
