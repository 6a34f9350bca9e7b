/* worker/predictions_text.c - see the header. */
#include "worker/predictions_text.h"
#include <stdio.h>
#include <string.h>

/* Bytes of the character of UTF-8 that begins there; 0: none does. */
static size_t character(const unsigned char *c, size_t n)
{
    static const struct {
        unsigned char first, last, low, high; /* of the first byte; of the second */
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

size_t predictions_text_json(char *to, const char *name, size_t n)
{
    char *at = to;
    *at++ = '"';
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)name[i];
        size_t bytes = character((const unsigned char *)name + i, n - i);
        if (c == '"' || c == '\\') {
            *at++ = '\\';
            *at++ = name[i++];
        } else if (bytes == 0 || c < ' ') {
            at += sprintf(at, "\\u%04x", c);
            i++;
        } else {
            memcpy(at, name + i, bytes);
            at += bytes;
            i += bytes;
        }
    }
    *at++ = '"';
    return (size_t)(at - to);
}

size_t predictions_text_csv(char *to, const char *name, size_t n)
{
    char *at = to;
    int quoted = 0;
    for (size_t i = 0; i < n; i++)
        quoted |= name[i] == ',' || name[i] == '"' || name[i] == '\n' || name[i] == '\r';
    if (quoted)
        *at++ = '"';
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '"')
            *at++ = '"';
        *at++ = name[i];
    }
    if (quoted)
        *at++ = '"';
    return (size_t)(at - to);
}
