/* checkpoint/row_patch.c - see row_patch.h: one merge of two lists of keys. */
#include "checkpoint/row_patch.h"
#include <string.h>

enum status row_patch_make(struct checkpoint_bucket *from, struct checkpoint_bucket *to, int dim)
{
    int64_t n_changed = 0, n_removed = 0, old = 0;
    if (from->version > to->version)
        return ST_CORRUPT;
    for (int64_t i = 0; i < to->n; i++) {
        bool has_changed = to->steps[i] > (uint64_t)from->version;
        for (; old < from->n && from->keys[old] < to->keys[i]; old++)
            from->keys[n_removed++] = from->keys[old];
        bool is_old = old < from->n && from->keys[old] == to->keys[i];
        if (!has_changed && (!is_old || from->steps[old] != to->steps[i]))
            return ST_CORRUPT;
        old += is_old;
        if (!has_changed)
            continue;
        to->keys[n_changed] = to->keys[i];
        to->steps[n_changed] = to->steps[i];
        memmove(to->values + n_changed * dim, to->values + i * dim,
                (size_t)dim * sizeof *to->values);
        n_changed++;
    }
    for (; old < from->n; old++)
        from->keys[n_removed++] = from->keys[old];
    to->n = n_changed;
    from->n = n_removed;
    return ST_OK;
}
