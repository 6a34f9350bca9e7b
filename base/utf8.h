/* base/utf8.h - checks texts of files and peers before they are used as UTF-8.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>

/* Returns the length of the character at the beginning of the n bytes at c; 0: no character begins
 * there. */
size_t utf8_character(const char *c, size_t n);
/* Returns the length of the character at c; 0: no character begins there, or it is a control
 * character (C0, C1, DEL). */
size_t utf8_printable(const char *c, size_t n);
/* Returns true if all n bytes are whole characters of UTF-8. */
bool utf8_is_valid(const char *text, size_t n);
/* Replaces each byte that is not ASCII by '?' if the text is not UTF-8. */
void utf8_mask(char *text);
/* Copies text into to_bytes (at least 4) bytes. A longer text is cut after its last whole word that
 * fits, and "..." is added. If the word at the cut is longer than half of to_bytes, the text is cut
 * inside that word, after a whole character. Returns the length of the copy. */
size_t utf8_copy_words(char *to, size_t to_bytes, const char *text);

#endif
