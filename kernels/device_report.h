/* kernels/device_report.h - what a backend offers for lines that people read: who a device is,
 * which libraries compute, and in errors about memory who else uses a device, which it has to be
 * told. Threads: any. Errors: none. */
#ifndef KERNELS_DEVICE_REPORT_H
#define KERNELS_DEVICE_REPORT_H
#include <stddef.h>
#include <stdint.h>

struct backend_device { /* who it is; a value */
    char name[96];      /* "NVIDIA H200" */
    uint8_t uuid[16];   /* of the card */
    int pci[3];         /* domain, bus, device */
    uint64_t memory_bytes;
};

struct device_report {
    /* Versions and files, as one text. */
    void (*libraries)(char *dst, size_t bytes);
    /* `users` writes who else uses the device, or "". */
    void (*set_users)(void (*users)(int device, char *dst, size_t bytes));
};

#endif
