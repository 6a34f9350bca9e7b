/* base/core_turns.c - moves a thread by its CPU affinity; see core_turns.h. */
#include "base/core_turns.h"
#include <stdatomic.h>

void core_turns_init(struct core_turns *t)
{
    int n = 0;
    atomic_init(&t->next, 0);
    atomic_init(&t->n, 0);
    atomic_init(&t->n_busy, 0);
    if (sched_getaffinity(0, sizeof t->all, &t->all) != 0)
        return; /* the machine has more cores than a cpu_set_t can describe */
    for (int i = 0, most = CPU_COUNT(&t->all); n < most; i++)
        if (CPU_ISSET(i, &t->all))
            t->core[n++] = (short)i;
    atomic_store(&t->n, n);
}

void core_turns_busy(struct core_turns *t, int change)
{
    atomic_fetch_add_explicit(&t->n_busy, change, memory_order_relaxed);
}

int core_turns_begin(struct core_turns *t)
{
    cpu_set_t one;
    int n = atomic_load_explicit(&t->n, memory_order_relaxed);
    if (n < 2 || atomic_load_explicit(&t->n_busy, memory_order_relaxed) < n)
        return 0;
    unsigned turn = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
    CPU_ZERO(&one);
    CPU_SET(t->core[turn % (unsigned)n], &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0)
        return 1;
    atomic_store(&t->n, 0); /* the set of cores that this process may use has changed */
    return 0;
}

void core_turns_end(const struct core_turns *t)
{
    sched_setaffinity(0, sizeof t->all, &t->all);
}
