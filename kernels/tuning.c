/* kernels/tuning.c - the names of the tunings in kernels/tuning.h, and the parser of
 * --gpu_tuning. */
#include "kernels/tuning.h"
#include <string.h>

static const struct {
    const char *name;
    uint32_t bits;
} names[] = {
    {"measure", TUNING_MEASURE},
    {"epilogues", TUNING_EPILOGUES},
    {"first_conv", TUNING_FIRST_CONV},
    {"multi_step", TUNING_MULTI_STEP},
    {"capture", TUNING_CAPTURE},
    {"branches", TUNING_BRANCHES},
    {"nhwc", TUNING_NHWC},
    {"updates", TUNING_UPDATES},
};
enum {
    N_NAMES = sizeof names / sizeof *names,
    AUTO = TUNING_EPILOGUES | TUNING_FIRST_CONV | TUNING_CAPTURE | TUNING_AUTO,
};

const char *tuning_name(int k)
{
    return k >= 0 && k < N_NAMES ? names[k].name : NULL;
}

static int is(const char *text, size_t n, const char *name)
{
    return strlen(name) == n && strncmp(text, name, n) == 0;
}

static int bits_of(const char *text, size_t n, uint32_t *bits)
{
    *bits = 0;
    for (int k = 0; k < N_NAMES; k++)
        if (is(text, n, names[k].name) || is(text, n, "all"))
            *bits |= names[k].bits;
    if (is(text, n, "auto"))
        *bits = AUTO;
    return *bits != 0 || is(text, n, "none");
}

enum status tuning_parse(const char *text, uint32_t *out, const char **bad, int *n)
{
    uint32_t sum = 0, bits;
    int named = 0;
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        int minus = *at == '-';
        if (!bits_of(at + minus, len - (size_t)minus, &bits)) {
            *bad = at;
            *n = (int)len;
            return ST_INVALID;
        }
        sum = minus ? sum & ~bits : sum | bits;
        if (!minus && bits && !(bits & TUNING_AUTO))
            named = 1;
        at += len;
        if (*at == '\0')
            break;
    }
    *out = named ? sum & ~(uint32_t)TUNING_AUTO : sum;
    return ST_OK;
}
