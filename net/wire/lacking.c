/* net/wire/lacking.c - see lacking.h. */
#include "net/wire/lacking.h"
#include <math.h>

int lacking_n_params(const struct chunks *c, int chunk)
{
    if (chunk >= c->n_dense) /* a bucket */
        return 0;
    const struct net_chunk *own = &c->chunks[chunk];
    int end = own->param + 1;
    while (end < c->n_params && c->params[end].first < own->first + own->n_elems)
        end++;
    return end - own->param;
}

bool lacking_any(const uint8_t *marks, int n_params)
{
    for (size_t i = 0; i < lacking_bytes(n_params); i++)
        if (marks[i])
            return true;
    return false;
}

bool lacking_all(const uint8_t *marks, int n_params)
{
    for (int k = 0; k < n_params; k++)
        if (!lacking_has(marks, k))
            return false;
    return true;
}

bool lacking_is_valid(const uint8_t *marks, int n_params)
{
    int unused = (int)lacking_bytes(n_params) * 8 - n_params;
    int last = marks[lacking_bytes(n_params) - 1];
    return lacking_any(marks, n_params) && last >> (8 - unused) == 0;
}

enum { BLOCK = 512 }; /* elements that are decoded at once; a multiple of each dtype's block */

struct search {
    const struct net_param *params; /* parameters of the chunk */
    int n_params, k; /* number of parameters; index of the parameter of the present element */
    int64_t first;   /* offset of the chunk's first element in the model */
    const uint8_t *marks;
    enum dtype dtype;
    int found; /* index of the parameter that was found; -1: none yet */
};

static void search_run(void *ctx, size_t first, const void *src, size_t n)
{
    struct search *r = ctx;
    float decoded[BLOCK];
    for (size_t at = 0; at < n && r->found < 0; at += BLOCK) {
        size_t now = n - at < BLOCK ? n - at : BLOCK;
        dtype_decode(r->dtype, decoded, (const char *)src + dtype_bytes(r->dtype, at), now);
        for (size_t i = 0; i < now && r->found < 0; i++) {
            int64_t element = r->first + (int64_t)(first + at + i);
            while (r->k + 1 < r->n_params && r->params[r->k + 1].first <= element)
                r->k++;
            if (lacking_has(r->marks, r->k) && decoded[i] != 0 && isfinite(decoded[i]))
                r->found = r->k;
        }
    }
}

int lacking_first_filled(const struct chunks *c, int chunk, const uint8_t *marks,
                         const struct net_payload *payload, enum dtype dtype)
{
    const struct net_chunk *own = &c->chunks[chunk];
    struct search r = {.params = &c->params[own->param],
                       .n_params = lacking_n_params(c, chunk),
                       .first = own->first,
                       .marks = marks,
                       .dtype = dtype,
                       .found = -1};
    payload_each_run(payload, dtype, (size_t)own->n_elems, dtype_block(dtype), search_run, &r);
    return r.found;
}

void lacking_and(uint8_t *to, const uint8_t *a, const uint8_t *b, int n_params)
{
    for (size_t i = 0; i < lacking_bytes(n_params); i++)
        to[i] = a[i] & b[i];
}
