/* checkpoint/lineage.c - see lineage.h. */
#include "checkpoint/lineage.h"
#include <string.h>

struct checkpoint_lineage checkpoint_lineage_begin(uint64_t since)
{
    return (struct checkpoint_lineage){.n = 1, .entry = {{.since = since}}};
}

struct checkpoint_lineage checkpoint_lineage_resume(const struct checkpoint_lineage *base,
                                                    uint64_t since, struct checkpoint_id resumed)
{
    struct checkpoint_lineage l = {.n = 1, .entry = {{resumed, since}}};
    int n = base->n < LINEAGE_MOST ? base->n : LINEAGE_MOST - 1;
    memcpy(l.entry + 1, base->entry, (size_t)n * sizeof *l.entry);
    l.n += n;
    return l;
}

bool checkpoint_lineage_is_valid(const struct checkpoint_lineage *l, uint64_t generation)
{
    if (l->n < 0 || l->n > LINEAGE_MOST)
        return false;
    for (int i = 0; i < l->n; i++) {
        const struct checkpoint_history *e = &l->entry[i];
        uint64_t most = i ? e[-1].resumed.generation : generation;
        if (e->since < 1 || e->since > most || e->resumed.generation >= e->since ||
            e->resumed.step < 0 || (e->resumed.generation == 0 && e->resumed.step != 0))
            return false;
    }
    return true;
}

bool checkpoint_lineage_has(const struct checkpoint_lineage *l, struct checkpoint_id a,
                            struct checkpoint_id b)
{
    bool precedes = a.generation > 0 && checkpoint_names_compare(a, b) < 0;
    for (int i = 0; i < l->n && precedes; i++) {
        if (a.generation >= l->entry[i].since)
            return true;
        precedes = checkpoint_names_compare(a, l->entry[i].resumed) <= 0;
    }
    return false;
}
