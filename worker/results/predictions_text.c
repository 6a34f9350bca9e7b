/* worker/results/predictions_text.c - escapes names for JSON and CSV. */
#include "worker/results/predictions_text.h"
#include "base/utf8.h"
#include <stdio.h>
#include <string.h>

size_t predictions_text_json(char *to, const char *name, size_t n)
{
    char *at = to;
    *at++ = '"';
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)name[i];
        size_t bytes = utf8_character(name + i, n - i);
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
