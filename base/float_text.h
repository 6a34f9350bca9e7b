/* base/float_text.h - a float as a person types it: 0.01, not 0.00999999978.
 * Owns: nothing. Threads: any. */
#ifndef BASE_FLOAT_TEXT_H
#define BASE_FLOAT_TEXT_H

enum { FLOAT_TEXT_BYTES = 32 };

/* The shortest decimal number that is this float; "nan", "inf". Returns out. */
const char *float_text(float value, char out[FLOAT_TEXT_BYTES]);
/* Likewise of a double. */
const char *float_text_double(double value, char out[FLOAT_TEXT_BYTES]);
/* A float's number as a double, for what writes doubles in full (JSON). */
double float_text_to_double(float value);

#endif
