/* ps/service/refusals.c - see refusals.h. */
#include "ps/service/refusals.h"
#include <stddef.h>
#include <stdio.h>

static int place_of(const struct refusals *r, int member)
{
    int i = 0;
    while (i < r->n && r->refusal[i].member != member)
        i++;
    return i;
}

static int oldest(const struct refusals *r)
{
    int oldest = 0;
    for (int i = 1; i < r->n; i++)
        if (r->refusal[i].at_ns < r->refusal[oldest].at_ns)
            oldest = i;
    return oldest;
}

void refusals_put(struct refusals *r, int member, const char *why, int64_t now_ns)
{
    int i = place_of(r, member);
    if (i == REFUSALS_MAX)
        i = oldest(r);
    else if (i == r->n)
        r->n++;
    r->refusal[i].member = member;
    r->refusal[i].at_ns = now_ns;
    snprintf(r->refusal[i].why, sizeof r->refusal[i].why, "%s", why);
}

void refusals_drop(struct refusals *r, int member)
{
    int i = place_of(r, member);
    if (i < r->n)
        r->refusal[i] = r->refusal[--r->n];
}

const struct refusal *refusals_find(const struct refusals *r, int member)
{
    int i = place_of(r, member);
    return i < r->n ? &r->refusal[i] : NULL;
}
