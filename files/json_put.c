/* files/json_put.c - see json_put.h. */
#include "files/json_put.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 1024 };

static void put(struct json_put *p, const char *bytes, size_t n)
{
    if (!p->failed && n > p->room - p->n) {
        size_t room = 2 * p->room + n + FIRST_ROOM;
        char *grown = realloc(p->bytes, room);
        p->failed = !grown;
        p->bytes = grown ? grown : p->bytes;
        p->room = grown ? room : p->room;
    }
    if (p->failed)
        return;
    memcpy(p->bytes + p->n, bytes, n);
    p->n += n;
}

void json_put(struct json_put *p, const char *json)
{
    put(p, json, strlen(json));
}

/* Appends the inside of a string. */
static void put_inside(struct json_put *p, const char *text)
{
    static const char short_from[] = "\"\\\b\f\n\r\t", short_to[] = "\"\\bfnrt";
    char escape[8];
    for (size_t n; *text; text += n) {
        for (n = 0; (unsigned char)text[n] >= ' ' && text[n] != '"' && text[n] != '\\';)
            n++;
        put(p, text, n);
        if (n > 0)
            continue;
        const char *found = strchr(short_from, *text);
        if (found)
            snprintf(escape, sizeof escape, "\\%c", short_to[found - short_from]);
        else
            snprintf(escape, sizeof escape, "\\u%04X", (unsigned char)*text);
        json_put(p, escape);
        n = 1;
    }
}

void json_put_string(struct json_put *p, const char *text, const char *more)
{
    json_put(p, "\"");
    put_inside(p, text);
    put_inside(p, more);
    json_put(p, "\"");
}

void json_put_integer(struct json_put *p, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, value);
    json_put(p, digits);
}
