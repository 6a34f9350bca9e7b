/* files/json_text.c - see json_text.h. jansson gets its memory here, from the first call on, and a
 * thread's failures are counted. */
#include "files/json_text.h"
#include <pthread.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local unsigned n_failed;

static void *take(size_t bytes)
{
    void *p = malloc(bytes);
    n_failed += !p;
    return p;
}

static void begin(void)
{
    json_set_alloc_funcs(take, free);
}

enum status json_text_load(const char *text, size_t bytes, json_t **out)
{
    pthread_once(&once, begin);
    unsigned before = n_failed;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    if (root && n_failed == before) {
        *out = root;
        return ST_OK;
    }
    json_decref(root);
    return n_failed == before ? ST_CORRUPT : ST_NOMEM;
}
