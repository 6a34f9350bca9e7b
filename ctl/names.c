/* ctl/names.c - translates the numbers of a status to words; see names.h. */
#include "ctl/names.h"
#include <stdlib.h>

const char *ctl_answer_name(enum command_answer answer)
{
    static const char *const names[COMMAND_N_ANSWERS] = {"refused", "accepted", "done"};
    return names[answer];
}

static int later(const void *a, const void *b)
{
    const struct net_status_member *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? 1 : -1;
    return x->member - y->member;
}

void ctl_sort_by_lateness(struct net_status *s)
{
    if (s->n_members > 0) /* an empty list may be NULL */
        qsort(s->members, (size_t)s->n_members, sizeof *s->members, later);
}
