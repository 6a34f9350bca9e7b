/* base/utf8.c - a table of the bytes that begin a character; see utf8.h. */
#include "base/utf8.h"
#include <string.h>

size_t utf8_character(const char *text, size_t n)
{
    const unsigned char *c = (const unsigned char *)text;
    static const struct {
        /* first, last: range of a character's first byte; low, high: range of its second byte */
        unsigned char first, last, low, high;
        size_t bytes;
    } kinds[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    size_t i = 0, n_kinds = sizeof kinds / sizeof *kinds;
    while (i < n_kinds && (c[0] < kinds[i].first || c[0] > kinds[i].last))
        i++;
    if (i == n_kinds || kinds[i].bytes > n)
        return 0;
    if (kinds[i].bytes > 1 && (c[1] < kinds[i].low || c[1] > kinds[i].high))
        return 0;
    for (size_t k = 2; k < kinds[i].bytes; k++)
        if (c[k] < 0x80 || c[k] > 0xbf)
            return 0;
    return kinds[i].bytes;
}

size_t utf8_printable(const char *c, size_t n)
{
    size_t bytes = utf8_character(c, n);
    if (bytes == 1)
        return *c >= ' ' && *c < 127;
    return bytes == 2 && c[0] == '\xc2' && (unsigned char)c[1] < 0xa0 ? 0 : bytes;
}

bool utf8_is_valid(const char *text, size_t n)
{
    size_t i = 0, bytes = 1;
    for (; i < n && bytes > 0; i += bytes)
        bytes = utf8_character(text + i, n - i);
    return bytes > 0;
}

void utf8_mask(char *text)
{
    size_t n = strlen(text), i = 0;
    for (size_t bytes; i < n && (bytes = utf8_character(text + i, n - i)) > 0;)
        i += bytes;
    for (char *c = text; i < n && *c; c++)
        if (*c & 0x80)
            *c = '?';
}

size_t utf8_copy_words(char *to, size_t to_bytes, const char *text)
{
    size_t n = strlen(text), bytes;
    if (n < to_bytes) {
        memcpy(to, text, n + 1);
        return n;
    }
    size_t room = to_bytes - sizeof "...", fits = 0, word = 0;
    while (fits < room) {
        bytes = utf8_character(text + fits, n - fits);
        bytes = bytes ? bytes : 1; /* not UTF-8 */
        if (fits + bytes > room)
            break;
        fits += bytes;
        if (text[fits] == ' ')
            word = fits;
    }
    if (word > room / 2)
        fits = word;
    while (fits > 0 && strchr(" ,;:(", text[fits - 1]))
        fits--;
    memcpy(to, text, fits);
    memcpy(to + fits, "...", sizeof "...");
    return fits + strlen("...");
}
