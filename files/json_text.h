/* files/json_text.h - JSON that is read with one question answered that jansson leaves open: was it
 * no JSON, or was there no memory? To jansson the second is wrong syntax, or even other text.
 * Threads: any.
 * Errors:  ST_CORRUPT (no JSON, or a key twice), ST_NOMEM; not logged. */
#ifndef FILES_JSON_TEXT_H
#define FILES_JSON_TEXT_H
#include "base/status.h"
#include <jansson.h>
#include <stddef.h>

/* Gives jansson an allocator, for the whole process and before there are threads: jansson looks at
 * it without a lock. Where it was not called, as in libweir, ST_CORRUPT may be a lack of memory. */
void json_text_set_up(void);
enum status json_text_load(const char *text, size_t bytes, json_t **out);
/* Returns how many of the given characters, as "{[,", a text has outside its strings: a bound for
 * the memory that jansson takes for it, which can be 80 times the text. */
size_t json_text_count(const char *text, size_t bytes, const char *characters);

#endif
