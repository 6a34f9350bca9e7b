/* tests/emulation/memory.h - the emulated cards' memory, and pinned memory of the host. Errors:
 * behaviour that CUDA leaves undefined ends the program. Threads: any. */
#ifndef TESTS_EMULATION_MEMORY_H
#define TESTS_EMULATION_MEMORY_H
#include <stddef.h>

/* Counts the bytes that are pinned or registered. Adjacent blocks count together. */
size_t emulation_pinned_bytes(const void *at, size_t bytes);
/* Returns true if some of the bytes are memory of a device. */
int emulation_is_device(const void *at, size_t bytes);
/* Ends the program if the bytes directly before or after a device's allocation were written. Called
 * after each piece of work. Under AddressSanitizer a read of these bytes ends the program, too. */
void emulation_check_red(void);
/* Returns the bytes that this process has allocated on all devices. */
size_t emulation_bytes_taken(void);

#endif
