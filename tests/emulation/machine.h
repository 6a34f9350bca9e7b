/* tests/emulation/machine.h - which cards the emulated CUDA has: those that the fake libcuda.so.1
 * (tests/fake_driver) shows, in its order, if it is there; else WEIR_EMULATED_DEVICES
 * (two) of 128 MiB. With the fake driver, what each process takes of a card is booked in a file
 * beside the fake's (usage.h), so that processes share a card's memory, and the fake NVML lists
 * them on it. Threads: the caller's lock. Errors: none. */
#ifndef TESTS_EMULATION_MACHINE_H
#define TESTS_EMULATION_MACHINE_H
#include <stddef.h>

enum { EMULATION_MAX_DEVICES = 256 };

int emulation_n_devices(void);
size_t emulation_total_bytes(int device);
size_t emulation_free_bytes(int device);
/* This process takes bytes of the device, or gives them back (by a negative number). */
void emulation_book(int device, long long bytes);
/* The CUDA error with which the device answers; 0: it works. */
int emulation_error(int device);
/* 1: its products are wrong. */
int emulation_is_wrong(int device);
/* How many launches succeed; 0: all. */
int emulation_launches(int device);
/* Its name, UUID and place on the bus, as the driver tells them. */
void emulation_identity(int device, char *name, size_t size, unsigned char uuid[16], int pci[3]);
/* Its compute capability: the fake driver's, else WEIR_EMULATED_CC, "9.0" by default. */
void emulation_capability(int device, int *major, int *minor);
/* The driver: the CUDA version that it serves, and what the runtime says to it; 0: all is well. */
int emulation_driver_version(void);
int emulation_driver_error(void);

#endif
