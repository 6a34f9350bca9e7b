/* tests/emulation/memory.h - the emulated cards' memory, and the host's that is pinned.
 * Errors: what CUDA leaves undefined ends the program. Threads: any. */
#ifndef TESTS_EMULATION_MEMORY_H
#define TESTS_EMULATION_MEMORY_H
#include <stddef.h>

/* How many of the bytes are pinned or registered (two blocks that touch count together). */
size_t emulation_pinned_bytes(const void *at, size_t bytes);
/* 1: some of the bytes are a device's. */
int emulation_is_device(const void *at, size_t bytes);
/* Ends the program if what lies right before or behind a device's allocation was written to. Called
 * after each piece of work; under AddressSanitizer reading it ends the program, too. */
void emulation_check_red(void);
/* Of all devices, by this process. */
size_t emulation_bytes_taken(void);

#endif
