/* worker/device/device_cuda.h - which GPUs the NVIDIA driver shows to this process, and in which
 * order. The driver's own library, libcuda.so.1, is asked: it alone knows what
 * CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER mean to it. It comes with the driver, not with the
 * CUDA toolkit; it is loaded at the first call and never unloaded, and no context is made: no
 * memory of a card is taken.
 * Threads: none. Errors: none logged: a machine without a GPU is no error. */
#ifndef WORKER_DEVICE_DEVICE_CUDA_H
#define WORKER_DEVICE_DEVICE_CUDA_H
#include "worker/device/device_info.h"

/* Fills in at most DEVICE_MAX; the number of them. 0: CUDA shows none, -1: there is no driver to
 * ask, -2: there is one, and it fails; why[DEVICE_WHY_SIZE] then says more. */
int device_cuda_list(struct device_info *list, char *why);
/* The driver's library: the CUDA that it serves (12040; 0: not told) and the file that it really
 * is, path[DEVICE_FILE_SIZE]; "" where there is none. */
void device_cuda_driver(int *version, char *path);
/* "GPU-8932f937-d72c-...", of a MIG instance "MIG-..."; out[DEVICE_UUID_SIZE]. */
void device_cuda_uuid(const uint8_t uuid[16], int is_mig, char *out);

#endif
