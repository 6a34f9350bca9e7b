/* tests/fuzz_tables.c - libFuzzer target: any bytes as a server's file of a checkpoint with three
 * tables, one of which has pending keys. A bucket that is accepted has keys in order, of its own,
 * and at most as many as its bound; no pending key has a row. A patch between any two buckets of a
 * table is refused, or leads from one to the other. Files without checksums are read too, so that
 * changed bytes reach the checks. Corpus: tests/corpus/tables. */
#include "checkpoint/restore_impl.h"
#include "checkpoint/row_patch.h"
#include "checkpoint/tables_file.h"
#include "tests/fuzz.h"
#include "tests/table_rig.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SGD .optimizer = TABLE_RIG_SGD
enum { N_BUCKETS = 5 };

static struct chunks *make_chunks(void)
{
    static const struct net_param param = {.name = "w", .shape = {1, {4}}};
    static const struct net_table tables[] = {
        {.name = "a", .dim = 2, .n_buckets = 2, .max_rows = 8, .step_rows = 4, SGD},
        {.name = "b", .dim = 1, .n_buckets = 1, .max_rows = 1, .step_rows = 1, SGD},
        {.name = "c",
         .dim = 1,
         .n_buckets = 2,
         .max_rows = 8,
         .step_rows = 4,
         .admit_after = 3,
         SGD}};
    struct chunks *c;
    require(chunks_create(&param, 1, 4096, &c) == ST_OK && tables_add(c, tables, 3) == ST_OK);
    return c;
}

/* Returns the index of the key in the bucket; -1: it has no such row. */
static int64_t find(const struct checkpoint_bucket *b, uint64_t key)
{
    for (int64_t i = 0; i < b->n; i++)
        if (b->keys[i] == key)
            return i;
    return -1;
}

/* Checks a patch: its changed rows (`rows`) and its removed keys (`gone`), which lead from `a` to
 * `b`. */
static void check_patch(const struct checkpoint_bucket *a, const struct checkpoint_bucket *b,
                        const struct checkpoint_bucket *gone, const struct checkpoint_bucket *rows,
                        int dim)
{
    size_t bytes = (size_t)dim * sizeof *b->values;
    int64_t n_same = 0;
    for (int64_t i = 0; i < a->n; i++)
        require((find(b, a->keys[i]) < 0) == (find(gone, a->keys[i]) >= 0));
    for (int64_t i = 0; i < b->n; i++) {
        int64_t at = find(rows, b->keys[i]), old = find(a, b->keys[i]);
        n_same += at < 0;
        if (at < 0)
            require(old >= 0 && a->steps[old] == b->steps[i] &&
                    b->steps[i] <= (uint64_t)a->version);
        else
            require(rows->steps[at] == b->steps[i] &&
                    memcmp(rows->values + at * dim, b->values + i * dim, bytes) == 0);
    }
    require(rows->n + n_same == b->n && gone->n <= a->n);
    for (int64_t i = 1; i < rows->n; i++)
        require(rows->keys[i] > rows->keys[i - 1]);
    for (int64_t i = 1; i < gone->n; i++)
        require(gone->keys[i] > gone->keys[i - 1]);
}

/* Makes patches from one bucket to another one, as if they were the same bucket of two checkpoints,
 * with each version of the first one; in each patch one more of its steps is altered. */
static void patch(const struct checkpoint_restore *r, int table, int from, int to)
{
    int dim = r->m->chunks->tables[table].dim;
    struct checkpoint_bucket a = {0}, b = {0}, gone = {0}, rows = {0};
    if (!checkpoint_restore_holds_bucket(r, table, from) ||
        !checkpoint_restore_holds_bucket(r, table, to) ||
        checkpoint_restore_bucket_read(r, table, from, false, &a) != ST_OK ||
        checkpoint_restore_bucket_read(r, table, to, true, &b) != ST_OK)
        goto done;
    for (int64_t version = 0; version <= b.version && version <= 8; version++) {
        require(checkpoint_restore_bucket_read(r, table, from, false, &gone) == ST_OK);
        require(checkpoint_restore_bucket_read(r, table, to, true, &rows) == ST_OK);
        a.version = gone.version = version;
        if (version < a.n)
            a.steps[version] ^= 1;
        memcpy(gone.steps, a.steps, (size_t)a.n * sizeof *a.steps);
        if (row_patch_make(&gone, &rows, dim) == ST_OK)
            check_patch(&a, &b, &gone, &rows, dim);
        checkpoint_bucket_free(&gone);
        checkpoint_bucket_free(&rows);
    }
done:
    checkpoint_bucket_free(&a);
    checkpoint_bucket_free(&b);
}

static void read_bucket(const struct checkpoint_restore *r, int table, int bucket)
{
    const struct net_table *t = &r->m->chunks->tables[table];
    int slots = r->buckets[t->first_chunk - r->m->chunks->n_dense + bucket].slot_floats;
    struct checkpoint_bucket b;
    require(slots >= 0 && slots <= 2 * t->dim);
    for (int other = 0; other < t->n_buckets; other++)
        patch(r, table, other, bucket);
    if (checkpoint_restore_bucket(r, table, bucket, slots, &b) != ST_OK)
        return;
    require(b.n >= 0 && b.n_pending >= 0 && b.n + b.n_pending <= tables_share(t, t->max_rows));
    require(b.n_pending == 0 || t->admit_after > 1);
    for (int64_t i = 0; i < b.n; i++) {
        require(i == 0 || b.keys[i] > b.keys[i - 1]);
        require(tables_bucket(t, b.keys[i]) == bucket && b.steps[i] <= (uint64_t)b.version);
    }
    for (int64_t i = 0; i < b.n_pending; i++) {
        uint64_t key = b.pending_keys[i], count = b.pending_counts[i];
        require(i == 0 || key > b.pending_keys[i - 1]);
        require(tables_bucket(t, key) == bucket && b.pending_steps[i] <= (uint64_t)b.version);
        require(count >= 1 && count < (uint64_t)t->admit_after);
        for (int64_t row = 0; row < b.n; row++)
            require(b.keys[row] != key);
    }
    checkpoint_bucket_free(&b);
}

/* Returns true if all tensors of buckets are in place. */
static bool place_all(struct checkpoint_restore *r)
{
    int n, table;
    const struct safetensors_entry *e = safetensors_entries(r->files[0], &n);
    for (int i = 0; i < n; i++)
        if (checkpoint_tables_is_part(e[i].name) && checkpoint_tables_place(r, 0, &e[i]))
            return false;
    return !checkpoint_tables_check(r, true, &table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], why[SAFETENSORS_WHY_BYTES] = "";
    struct safetensors_file *f = NULL;
    struct bucket_tensors buckets[N_BUCKETS] = {0};
    int fd = memfd_create("tables", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (safetensors_open_any(path, &f, why) == ST_OK) {
        struct checkpoint_manifest m = {.step = 5, .chunks = make_chunks(), .n_files = 1};
        struct checkpoint_restore r = {.m = &m, .files = &f, .buckets = buckets};
        if (place_all(&r))
            for (int i = m.chunks->n_dense; i < m.chunks->n_chunks; i++) {
                const struct net_table *t = tables_of(m.chunks, i);
                int table = (int)(t - m.chunks->tables), bucket = i - t->first_chunk;
                if (checkpoint_restore_holds_bucket(&r, table, bucket))
                    read_bucket(&r, table, bucket);
            }
        chunks_destroy(m.chunks);
    }
    safetensors_close(f);
    close(fd);
    return 0;
}
