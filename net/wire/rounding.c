/* net/wire/rounding.c - see rounding.h. */
#include "net/wire/rounding.h"
#include <stdbool.h>

void net_rounding_set(struct net_rounding *r, const uint8_t *rounded, int n_layers)
{
    *r = (struct net_rounding){.n_bytes = (n_layers + 7) / 8};
    if (r->n_bytes > ROUNDING_MAX_BYTES)
        r->n_bytes = 0;
    for (int i = 0; i < n_layers && r->n_bytes > 0; i++)
        r->bits[i / 8] |= (uint8_t)((rounded[i] != 0) << i % 8);
}

bool net_rounding_get(const struct net_rounding *r, uint8_t *rounded, int n_layers)
{
    if (r->n_bytes == 0 || r->n_bytes != (n_layers + 7) / 8)
        return false;
    for (int i = 0; i < n_layers; i++)
        rounded[i] = r->bits[i / 8] >> i % 8 & 1;
    return true;
}
