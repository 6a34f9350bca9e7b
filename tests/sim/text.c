/* tests/sim/text.c - parses each JSON text once (--wrap), because a server reads the same
 * manifests, leases and headers of shards again and again. The caller receives the tree of the
 * first parse, which no code changes. Not used under a sanitizer, which watches each tree. */
#include "base/digest.h"
#include "tests/sim/sim.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#ifndef WEIR_SIM_LIBC_MALLOC
/* number of kept texts, about as many as in one run; later texts replace earlier ones */
enum { MAX_TEXTS = 64 };

struct text {
    char *bytes; /* bytes of the text; NULL: the place is free */
    size_t n;
    json_t *root;
};
static struct text texts[MAX_TEXTS];

json_t *__real_json_loadb(const char *bytes, size_t n, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *bytes, size_t n, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *bytes, size_t n, size_t flags, json_error_t *error)
{
    if (!sim.schedule || error || flags != JSON_REJECT_DUPLICATES)
        return __real_json_loadb(bytes, n, flags, error);
    struct text *t = &texts[digest_crc32c(0, bytes, n) % MAX_TEXTS];
    if (t->bytes && t->n == n && memcmp(t->bytes, bytes, n) == 0)
        return json_incref(t->root);
    json_t *root = __real_json_loadb(bytes, n, flags, NULL);
    char *copy = root ? malloc(n) : NULL;
    if (copy) {
        json_decref(t->root);
        free(t->bytes);
        *t = (struct text){memcpy(copy, bytes, n), n, json_incref(root)};
    }
    return root;
}

json_t *__real_json_loads(const char *text, size_t flags, json_error_t *error);
json_t *__wrap_json_loads(const char *text, size_t flags, json_error_t *error);
json_t *__wrap_json_loads(const char *text, size_t flags, json_error_t *error)
{
    return __wrap_json_loadb(text, strlen(text), flags, error);
}
#endif
