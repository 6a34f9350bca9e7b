/* tests/emulation/machine.h - the cards of the emulated CUDA: those that the fake libcuda.so.1
 * (tests/fake_driver) shows, in its order, if it is loaded; otherwise WEIR_EMULATED_DEVICES (two)
 * of 128 MiB. The memory of each process of the fake driver is recorded in a file beside the
 * fake's (usage.h), so that processes share a card's memory, and the fake NVML lists them on it.
 * Threads: the caller's lock. Errors: none. */
#ifndef TESTS_EMULATION_MACHINE_H
#define TESTS_EMULATION_MACHINE_H
#include <stddef.h>

enum { EMULATION_MAX_DEVICES = 256 };

int emulation_n_devices(void);
size_t emulation_total_bytes(int device);
size_t emulation_free_bytes(int device);
/* Records bytes of the device that this process allocates, or releases (negative). */
void emulation_book(int device, long long bytes);
/* Returns the CUDA error of the device; 0: it works. */
int emulation_error(int device);
/* Returns true if its products are wrong. */
int emulation_is_wrong(int device);
/* Returns the number of launches that succeed; 0: all. */
int emulation_launches(int device);
/* Returns its name, UUID and position on the bus, as in the driver. */
void emulation_identity(int device, char *name, size_t size, unsigned char uuid[16], int pci[3]);
/* Returns its compute capability: the fake driver's, otherwise WEIR_EMULATED_CC, by default
 * "9.0". */
void emulation_capability(int device, int *major, int *minor);
/* Returns the CUDA version that the driver supports, and the error that the runtime returns for it;
 * 0: none. */
int emulation_driver_version(void);
int emulation_driver_error(void);

#endif
