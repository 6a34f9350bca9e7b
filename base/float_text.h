/* base/float_text.h - writes a float as an operator would type it: 0.01, not 0.00999999978.
 * Owns: nothing. Threads: any. */
#ifndef BASE_FLOAT_TEXT_H
#define BASE_FLOAT_TEXT_H

enum { FLOAT_TEXT_BYTES = 32 };

/* Writes the shortest decimal number that is read as this float again, or "nan" or "inf". Returns
 * out. */
const char *float_text(float value, char out[FLOAT_TEXT_BYTES]);
/* Writes the shortest decimal number that is read as this double again. Returns out. */
const char *float_text_double(double value, char out[FLOAT_TEXT_BYTES]);
/* Returns the double that is equal to the float's shortest decimal number, for code that writes
 * doubles (JSON). */
double float_text_to_double(float value);

#endif
