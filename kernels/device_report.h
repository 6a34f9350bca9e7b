/* kernels/device_report.h - details that a backend reports for log lines: the identity of a device,
 * the libraries that compute, the other users of a device's memory, and the rates of its copies. A
 * callback of the program names these users. Threads: any. Errors: see copy_rates. */
#ifndef KERNELS_DEVICE_REPORT_H
#define KERNELS_DEVICE_REPORT_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend_device { /* identity of a device, a plain value */
    char name[96];      /* "NVIDIA H200" */
    uint8_t uuid[16];   /* UUID of the GPU */
    int pci[3];         /* PCI domain, bus and device */
    uint64_t memory_bytes;
};

/* Rates of copies between the host and a device, in GB/s: the fastest of a few copies. */
struct copy_rates {
    bool is_pinned; /* false: the host memory could not be pinned; pinned is not set */
    struct copy_rate {
        double up, down; /* rates to the device, and to the host */
    } pinned, pageable;
};

struct device_report {
    /* Writes the versions and files of the libraries as one text. */
    void (*libraries)(char *dst, size_t bytes);
    /* Sets the callback, which writes a text about the other users of a device; "": there are
     * none. */
    void (*set_users)(void (*users)(int device, char *dst, size_t bytes));
    /* Measures copies of `bytes`, from 1 MB on. A warning names the reason if the host memory
     * cannot be pinned. ST_NOMEM if the device or the host has too little memory, otherwise the
     * device's errors; logged, ST_NOMEM as a warning. */
    enum status (*copy_rates)(int device, size_t bytes, struct copy_rates *out);
};

#endif
