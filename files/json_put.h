/* files/json_put.h - writes JSON piece by piece into a text that grows. Writers of large headers
 * use it, because it needs no tree of the content.
 * Owns:    bytes, which the caller frees.
 * Threads: one per text.
 * Errors:  the text remembers a lack of memory in `failed`, and ignores all that is put later. */
#ifndef FILES_JSON_PUT_H
#define FILES_JSON_PUT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_put { /* {0}: an empty text */
    char *bytes;  /* not terminated by a 0 */
    size_t n, room;
    bool failed;
};

void json_put(struct json_put *p, const char *json); /* appends the characters as they are */
/* Appends a string of two texts in UTF-8, one after the other, with its quotes. */
void json_put_string(struct json_put *p, const char *text, const char *more);
void json_put_integer(struct json_put *p, int64_t value);

#endif
