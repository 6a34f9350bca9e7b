/* base/float_text.c - see float_text.h. */
#include "base/float_text.h"
#include <stdio.h>
#include <stdlib.h>

const char *float_text(float value, char out[FLOAT_TEXT_BYTES])
{
    for (int digits = 1; digits <= 9; digits++) { /* 9 tell any two floats apart */
        snprintf(out, FLOAT_TEXT_BYTES, "%.*g", digits, (double)value);
        if (strtof(out, NULL) == value)
            break;
    }
    return out;
}

const char *double_text(double value, char out[FLOAT_TEXT_BYTES])
{
    for (int digits = 1; digits <= 17; digits++) { /* 17 tell any two doubles apart */
        snprintf(out, FLOAT_TEXT_BYTES, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return out;
}

double float_typed(float value)
{
    char text[FLOAT_TEXT_BYTES];
    return strtod(float_text(value, text), NULL);
}
