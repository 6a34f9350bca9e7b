/* kernels/device_report.h - details that a backend reports for log lines: the identity of a device,
 * the libraries that compute, and the other users of a device's memory. A callback of the program
 * names these users. Threads: any. Errors: none. */
#ifndef KERNELS_DEVICE_REPORT_H
#define KERNELS_DEVICE_REPORT_H
#include <stddef.h>
#include <stdint.h>

struct backend_device { /* identity of a device; a value */
    char name[96];      /* "NVIDIA H200" */
    uint8_t uuid[16];   /* UUID of the GPU */
    int pci[3];         /* domain, bus, device */
    uint64_t memory_bytes;
};

struct device_report {
    /* Writes the versions and files of the libraries as one text. */
    void (*libraries)(char *dst, size_t bytes);
    /* Sets the callback, which writes a text about the other users of a device; "": there are
     * none. */
    void (*set_users)(void (*users)(int device, char *dst, size_t bytes));
};

#endif
