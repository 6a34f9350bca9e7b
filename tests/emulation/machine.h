/* tests/emulation/machine.h - the cards of the emulated CUDA. If the fake libcuda.so.1
 * (tests/fake_driver) is loaded, they are its cards in its order. Otherwise there are
 * WEIR_EMULATED_DEVICES cards (default: two) of 128 MiB. The fake driver's cards share their memory
 * among processes: the memory of each process is recorded in a file beside the fake's (usage.h),
 * and the fake NVML lists the processes. Threads: the caller's lock. Errors: none. */
#ifndef TESTS_EMULATION_MACHINE_H
#define TESTS_EMULATION_MACHINE_H
#include <stddef.h>

enum { EMULATION_MAX_DEVICES = 256 };

int emulation_n_devices(void);
size_t emulation_total_bytes(int device);
size_t emulation_free_bytes(int device);
/* Records that this process has allocated so many bytes of the device; negative: has released. */
void emulation_book(int device, long long bytes);
/* Returns the CUDA error of the device; 0: it works. */
int emulation_error(int device);
/* Returns true if products on the device are wrong. */
int emulation_is_wrong(int device);
/* Returns true if the device's driver cannot pin memory of the host. */
int emulation_is_unpinned(int device);
/* Returns the number of launches on the device that succeed; 0: all. */
int emulation_launches(int device);
/* Returns the device's name, UUID and position on the bus, as the driver does. */
void emulation_identity(int device, char *name, size_t size, unsigned char uuid[16], int pci[3]);
/* Returns the device's compute capability: that of the fake driver, or WEIR_EMULATED_CC without a
 * fake driver, by default "9.0". */
void emulation_capability(int device, int *major, int *minor);
/* Returns the CUDA version that the driver supports. emulation_driver_error() returns the runtime's
 * error for this version; 0: none. */
int emulation_driver_version(void);
int emulation_driver_error(void);

#endif
