/* worker/device/device_info.h - what is known of one GPU: who it is, and how busy it is. Values.
 * A GPU is known by its UUID or its place on the PCI bus, never by an index of NVML's: NVML counts
 * all cards by bus, CUDA only the visible ones, in an order of its own.
 * Threads: none. Errors: none. */
#ifndef WORKER_DEVICE_DEVICE_INFO_H
#define WORKER_DEVICE_DEVICE_INFO_H
#include <stddef.h>
#include <stdint.h>

enum {
    DEVICE_MAX = 64, /* GPUs that are looked at */
    DEVICE_UUID_SIZE = 48,
    DEVICE_PCI_SIZE = 24,
    DEVICE_NAME_SIZE = 96,
    DEVICE_WHY_SIZE = 384,
    DEVICE_FILE_SIZE = 512,
    DEVICE_MAX_PIDS = 32,
};

struct device_info {
    int ordinal;                 /* CUDA's own number, among the visible ones */
    int is_mig;                  /* a MIG instance: a part of a card */
    char uuid[DEVICE_UUID_SIZE]; /* "GPU-8932f937-d72c-...", "MIG-..." */
    char name[DEVICE_NAME_SIZE]; /* "NVIDIA H200" */
    char pci[DEVICE_PCI_SIZE];   /* "0000:3b:00.0", lower case */
    int capability[2];           /* 9, 0 */
    uint64_t memory_bytes;
};

enum device_load_state {
    DEVICE_LOAD_KNOWN,
    DEVICE_LOAD_NO_NVML, /* nobody can tell, of any GPU */
    DEVICE_LOAD_UNKNOWN, /* NVML cannot tell, of this one */
    DEVICE_LOAD_LOST,    /* it is no longer there */
};

struct device_load {
    enum device_load_state state;
    char why[DEVICE_WHY_SIZE]; /* not known: why not */
    uint64_t total_bytes, used_bytes, free_bytes;
    int percent;     /* of the last moment in which it computed; -1: not told (MIG) */
    int n_processes; /* that compute on it; -1: not told */
    int pid[DEVICE_MAX_PIDS];
    int n_pids; /* in pid: the first of the processes */
};

/* How a card fares. */
struct device_health {
    int temperature_c;                /* INT_MIN: not told */
    int64_t power_mw, power_limit_mw; /* below 0: not told, as what follows */
    int ecc;                          /* 1: it corrects its memory's errors */
    int64_t ecc_uncorrected;          /* errors that it could not, since the driver was loaded */
};

#endif
