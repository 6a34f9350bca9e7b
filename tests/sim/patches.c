/* tests/sim/patches.c - see patches.h. */
#include "tests/sim/patches.h"
#include "checkpoint/row_patch.h"
#include "tests/sim/oracle.h"
#include "tests/sim/tables.h"
#include <string.h>

struct noted { /* the newest one first: a file may be written again */
    struct checkpoint_id id;
    int chunk;
    struct checkpoint_bucket bucket; /* without slots and pending keys */
    struct noted *next;
};

static struct noted *newest;

void patches_reset(void)
{
    newest = NULL;
}

void patches_note(struct checkpoint_id id, int chunk, int64_t version,
                  const struct bucket_entries *e)
{
    struct noted *n = sim_alloc(sizeof *n);
    size_t dim = (size_t)tables_config(chunk).dim;
    *n = (struct noted){id, chunk, {.version = version, .n = (int64_t)e->n}, newest};
    newest = n;
    if (e->n == 0)
        return;
    n->bucket.keys = sim_copy(e->keys, e->n * sizeof *e->keys);
    n->bucket.steps = sim_copy(e->steps, e->n * sizeof *e->steps);
    n->bucket.values = sim_copy(e->values, e->n * dim * sizeof *e->values);
}

static const struct checkpoint_bucket *find(struct checkpoint_id id, int chunk)
{
    for (const struct noted *n = newest; n; n = n->next)
        if (n->chunk == chunk && checkpoint_names_compare(n->id, id) == 0)
            return &n->bucket;
    sim_fail("patch", "no server has written bucket %d of the checkpoint of step %lld",
             chunk - sim_chunks->n_dense, (long long)id.step);
}

static struct checkpoint_bucket copy_of(const struct checkpoint_bucket *b, size_t dim)
{
    struct checkpoint_bucket c = *b;
    if (b->n == 0)
        return c;
    c.keys = sim_copy(b->keys, (size_t)b->n * sizeof *b->keys);
    c.steps = sim_copy(b->steps, (size_t)b->n * sizeof *b->steps);
    c.values = sim_copy(b->values, (size_t)b->n * dim * sizeof *b->values);
    return c;
}

/* Returns the place of a key; -1: none. */
static int64_t place_of(const struct checkpoint_bucket *b, uint64_t key)
{
    for (int64_t i = 0; i < b->n; i++)
        if (b->keys[i] == key)
            return i;
    return -1;
}

/* Returns true if `old`, without the removed keys and with the changed rows, is `next`. */
static bool leads_to(const struct checkpoint_bucket *old, const struct checkpoint_bucket *removed,
                     const struct checkpoint_bucket *changed, const struct checkpoint_bucket *next,
                     size_t dim)
{
    int64_t n = changed->n;
    for (int64_t i = 0; i < old->n; i++)
        n += place_of(removed, old->keys[i]) < 0 && place_of(changed, old->keys[i]) < 0;
    for (int64_t i = 0; i < next->n; i++) {
        const struct checkpoint_bucket *from = changed;
        int64_t at = place_of(changed, next->keys[i]);
        if (at < 0 && place_of(removed, next->keys[i]) < 0) {
            from = old;
            at = place_of(old, next->keys[i]);
        }
        if (at < 0 || from->steps[at] != next->steps[i] ||
            memcmp(from->values + (size_t)at * dim, next->values + (size_t)i * dim,
                   dim * sizeof(float)) != 0)
            return false;
    }
    return n == next->n;
}

void patches_check(struct checkpoint_id since, struct checkpoint_id id)
{
    for (int chunk = sim_chunks->n_dense; chunk < sim_chunks->n_chunks; chunk++) {
        const struct checkpoint_bucket *old = find(since, chunk), *next = find(id, chunk);
        size_t dim = (size_t)tables_config(chunk).dim;
        struct checkpoint_bucket removed = copy_of(old, dim), changed = copy_of(next, dim);
        oracle_count_check();
        if (row_patch_make(&removed, &changed, (int)dim) != ST_OK)
            sim_fail("patch", "there is no patch of bucket %d from step %lld to step %lld",
                     chunk - sim_chunks->n_dense, (long long)since.step, (long long)id.step);
        if (!leads_to(old, &removed, &changed, next, dim))
            sim_fail("patch", "the patch of bucket %d from step %lld to step %lld is wrong",
                     chunk - sim_chunks->n_dense, (long long)since.step, (long long)id.step);
    }
}
