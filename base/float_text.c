/* base/float_text.c - writes 1, 2, 3 ... digits until reading the text yields the same number; see
 * float_text.h. */
#include "base/float_text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes a whole number without an exponent: 120 and not 1.2e+02, which "%g" writes if its
 * precision is too low for the number. */
static const char *without_power(double value, char out[FLOAT_TEXT_BYTES])
{
    if (fabs(value) >= 1 && fabs(value) < 1e6 && strchr(out, 'e'))
        snprintf(out, FLOAT_TEXT_BYTES, "%.0f", value);
    return out;
}

const char *float_text(float value, char out[FLOAT_TEXT_BYTES])
{
    for (int digits = 1; digits <= 9; digits++) { /* 9 digits distinguish any two floats */
        snprintf(out, FLOAT_TEXT_BYTES, "%.*g", digits, (double)value);
        if (strtof(out, NULL) == value)
            break;
    }
    return without_power((double)value, out);
}

const char *float_text_double(double value, char out[FLOAT_TEXT_BYTES])
{
    for (int digits = 1; digits <= 17; digits++) { /* 17 digits distinguish any two doubles */
        snprintf(out, FLOAT_TEXT_BYTES, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return without_power(value, out);
}

double float_text_to_double(float value)
{
    char text[FLOAT_TEXT_BYTES];
    return strtod(float_text(value, text), NULL);
}
