/* tests/kernel_tuning.h - what plans of the kernel tests are tuned by (kernels/tuning.h): the
 * environment's WEIR_TEST_TUNING, as in all or nhwc,measure. Errors: the test fails. */
#ifndef TESTS_KERNEL_TUNING_H
#define TESTS_KERNEL_TUNING_H
#include "kernels/tuning.h"
#include <stdio.h>
#include <stdlib.h>

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

#endif
