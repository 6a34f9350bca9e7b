/* worker/device/device_info.h - identity, load and health of one GPU, as plain values. A GPU is
 * identified by its UUID or its PCI address, never by an index of NVML: NVML numbers all GPUs, in
 * the order of their bus addresses, but CUDA numbers only the visible ones, in another order.
 * Threads: plain values without a lock. Errors: none. */
#ifndef WORKER_DEVICE_DEVICE_INFO_H
#define WORKER_DEVICE_DEVICE_INFO_H
#include "member/device_lock.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DEVICE_MAX = 64, /* highest number of GPUs that are examined */
    DEVICE_UUID_SIZE = 48,
    DEVICE_PCI_SIZE = 24,
    DEVICE_NAME_SIZE = 96,
    DEVICE_FILE_SIZE = 512,
    DEVICE_MAX_PIDS = 32,
};

struct device_info {
    int ordinal;                 /* index among the GPUs that CUDA sees */
    bool is_mig;                 /* a MIG instance: a part of a GPU */
    char uuid[DEVICE_UUID_SIZE]; /* "GPU-8932f937-d72c-...", "MIG-..." */
    char name[DEVICE_NAME_SIZE]; /* "NVIDIA H200" */
    char pci[DEVICE_PCI_SIZE];   /* address such as "0000:3b:00.0", in lower case */
    int capability[2];           /* 9, 0 */
    uint64_t memory_bytes;
};

enum device_load_state {
    DEVICE_LOAD_KNOWN,
    DEVICE_LOAD_NO_NVML, /* unknown for every GPU, because NVML is not available */
    DEVICE_LOAD_UNKNOWN, /* NVML does not report it for this GPU */
    DEVICE_LOAD_LOST,    /* the GPU does not respond any more */
};

struct device_load {
    enum device_load_state state;
    char why[DEVICE_WHY_SIZE]; /* reason why the load is unknown */
    uint64_t total_bytes, used_bytes, free_bytes;
    int percent;     /* utilisation, 0 to 100; -1: unknown (MIG) */
    int n_processes; /* number of processes that compute on the GPU; -1: unknown */
    int pid[DEVICE_MAX_PIDS];
    int n_pids; /* entries in pid; fewer than n_processes if there are many */
};

/* Health of a GPU. */
struct device_health {
    int temperature_c;                /* INT_MIN: unknown */
    int64_t power_mw, power_limit_mw; /* below 0: unknown, here and in the fields below */
    int ecc;                          /* error correction of the GPU's memory: 1 on, 0 off */
    int64_t ecc_uncorrected; /* memory errors since the driver was loaded that were not corrected */
};

#endif
