/* net/wire/place.c - see place.h. */
#include "net/wire/place.h"

uint64_t net_place_position(const struct net_place *p, int batch, int64_t step)
{
    uint64_t before = (uint64_t)(step - p->first_step) * (uint64_t)p->n_members;
    return p->position + (before + (uint64_t)p->rank) * (uint64_t)batch;
}

uint64_t net_place_sample(const struct net_place *p, uint64_t position)
{
    return p->n_regions > 1 ? position * (uint64_t)p->n_regions + (uint64_t)p->region : position;
}
