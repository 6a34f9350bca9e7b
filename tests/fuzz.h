/* tests/fuzz.h - functions of all libFuzzer targets. One source file of each target includes this
 * header. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H
#include "base/log.h"
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Mutes the log: each refused input would be logged. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    log_init("fuzz", -1, LOG_LEVEL_ERROR + 1);
    return 0;
}

/* Aborts unless cond holds; unlike CHECK, it logs nothing. */
static inline void require(int cond)
{
    if (!cond)
        abort();
}

#endif
