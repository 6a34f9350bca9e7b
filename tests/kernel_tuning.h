/* tests/kernel_tuning.h - reads the tuning of plans in kernel tests (kernels/tuning.h) from the
 * environment variable WEIR_TEST_TUNING, for example `all` or `capture,measure`. Plans are
 * deterministic. WEIR_TEST_DETERMINISTIC=0 changes this in tests that do not set their own tuning;
 * on the emulation the bits are the same in both cases. Errors: the test program ends. */
#ifndef TESTS_KERNEL_TUNING_H
#define TESTS_KERNEL_TUNING_H
#include "kernels/tuning.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint32_t test_tuning(void)
{
    const char *text = getenv("WEIR_TEST_TUNING"), *bad;
    uint32_t bits = 0;
    int n;
    if (text != NULL && tuning_parse(text, &bits, &bad, &n) != ST_OK) {
        fprintf(stderr, "WEIR_TEST_TUNING: there is no '%.*s'\n", n, bad);
        exit(1);
    }
    return bits;
}

static inline int test_deterministic(void)
{
    const char *text = getenv("WEIR_TEST_DETERMINISTIC");
    return text == NULL || strcmp(text, "0") != 0;
}

#endif
