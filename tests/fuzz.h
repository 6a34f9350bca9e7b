/* tests/fuzz.h - what every libFuzzer target has beside its own function; included once by each. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H
#include "base/log.h"
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is refused would be logged, input after input. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    log_init("fuzz", -1, LOG_LEVEL_ERROR + 1);
    return 0;
}

/* Not CHECK: nothing is to be logged. */
static inline void require(int cond)
{
    if (!cond)
        abort();
}

#endif
