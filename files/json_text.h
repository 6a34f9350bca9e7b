/* files/json_text.h - reads JSON, and distinguishes wrong JSON from a lack of memory. jansson
 * reports both as wrong syntax, and may even return other text when memory runs out.
 * Threads: any.
 * Errors:  ST_CORRUPT (invalid JSON, or a duplicate key), ST_NOMEM; not logged. */
#ifndef FILES_JSON_TEXT_H
#define FILES_JSON_TEXT_H
#include "base/status.h"
#include <jansson.h>
#include <stddef.h>

/* Sets jansson's allocator for the whole process. Must be called before the process has threads:
 * jansson reads the setting without a lock. Without this call, as in libweir, ST_CORRUPT may also
 * mean a lack of memory. */
void json_text_set_up(void);
enum status json_text_load(const char *text, size_t bytes, json_t **out);
/* Counts the characters of the text, outside of its strings, that occur in `characters`, such as
 * "{[,". The count bounds the memory that jansson needs, which can be 80 times the text. */
size_t json_text_count(const char *text, size_t bytes, const char *characters);

#endif
