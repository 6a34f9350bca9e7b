/* files/json_text.c - counts failed allocations of each thread in jansson's allocator, so that a
 * failed parse can be distinguished from wrong JSON; see json_text.h. */
#include "files/json_text.h"
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

static _Thread_local unsigned n_failed;

static void *take(size_t bytes)
{
    void *p = malloc(bytes);
    n_failed += !p;
    return p;
}

void json_text_set_up(void)
{
    json_set_alloc_funcs(take, free);
}

enum status json_text_load(const char *text, size_t bytes, json_t **out)
{
    unsigned before = n_failed;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    if (root && n_failed == before) {
        *out = root;
        return ST_OK;
    }
    json_decref(root);
    return n_failed == before ? ST_CORRUPT : ST_NOMEM;
}

size_t json_text_count(const char *text, size_t bytes, const char *characters)
{
    size_t found = 0;
    bool quoted = false, is_counted[UCHAR_MAX + 1] = {false};
    for (const char *c = characters; *c; c++)
        is_counted[(unsigned char)*c] = true;
    for (size_t i = 0; i < bytes; i++) {
        quoted ^= text[i] == '"';
        found += !quoted && is_counted[(unsigned char)text[i]];
        i += quoted && text[i] == '\\';
    }
    return found;
}
