/* tests/kernel_tuning.h - what plans of the kernel tests are tuned by (kernels/tuning.h): the
 * environment's WEIR_TEST_TUNING, as in all or capture,measure; and whether they are deterministic:
 * yes, but for WEIR_TEST_DETERMINISTIC=0, for what is not tuned otherwise. Over the emulation the
 * bits are the same nevertheless. Errors: the test fails. */
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
