/* base/utf8.h - texts of others, as names of files and what peers say, where UTF-8 is wanted.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that begins at c, of n; 0: none does. */
size_t utf8_character(const char *c, size_t n);
/* Likewise, 0 also for those that control a terminal (C0, C1, DEL). */
size_t utf8_printable(const char *c, size_t n);
/* Returns true if all n bytes are whole characters of UTF-8. */
bool utf8_is_valid(const char *text, size_t n);
/* Where the text is not UTF-8, '?' for each byte that is not ASCII. */
void utf8_mask(char *text);

#endif
