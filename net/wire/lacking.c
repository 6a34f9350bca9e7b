/* net/wire/lacking.c - see lacking.h. */
#include "net/wire/lacking.h"

int lacking_n_params(const struct chunks *c, int chunk)
{
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

void lacking_and(uint8_t *to, const uint8_t *a, const uint8_t *b, int n_params)
{
    for (size_t i = 0; i < lacking_bytes(n_params); i++)
        to[i] = a[i] & b[i];
}
