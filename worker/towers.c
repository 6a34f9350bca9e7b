/* worker/towers.c - see towers.h. */
#include "worker/towers.h"

void towers_share(struct tower_spec *towers, int n_towers, int batch)
{
    for (int i = 0; i < n_towers; i++) {
        int end = (int)((int64_t)batch * (i + 1) / n_towers);
        towers[i].first = (int)((int64_t)batch * i / n_towers);
        towers[i].n = end - towers[i].first;
    }
}
