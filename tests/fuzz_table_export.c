/* tests/fuzz_table_export.c - libFuzzer target: any bytes as the files of two checkpoints of a job
 * with two tables, of which exports are made: the full export of each, and the patch between them.
 * The first two bytes are the length of the first file. An export that is made has the checksums of
 * its tensors. If all three are made, the patch leads from the first export to the second one, byte
 * for byte. Files without checksums are read too, so that changed bytes reach the checks. Corpus:
 * tests/corpus/table_export. */
#include "checkpoint/restore_impl.h"
#include "checkpoint/table_export.h"
#include "net/wire/tables.h"
#include "tests/fuzz.h"
#include "tests/table_rig.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SGD .optimizer = TABLE_RIG_SGD
enum { N_BUCKETS = 3, N_ELEMS = 4, BASE_STEP = 5, STEP = 9 };

static char folder[64]; /* folder of the exports, which is in memory */

static void remove_folder(void)
{
    rmdir(folder);
}

static void make_folder(void)
{
    if (folder[0])
        return;
    snprintf(folder, sizeof folder, "/dev/shm/weir_fuzz_XXXXXX");
    require(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
}

static struct chunks *make_chunks(void)
{
    static const struct net_param param = {.name = "w", .shape = {1, {N_ELEMS}}};
    static const struct net_table tables[] = {
        {.name = "a", .dim = 2, .n_buckets = 2, .max_rows = 16, .step_rows = 4, SGD},
        {.name = "b", .dim = 1, .n_buckets = 1, .max_rows = 2, .step_rows = 1, SGD}};
    struct chunks *c;
    require(chunks_create(&param, 1, 4096, &c) == ST_OK && tables_add(c, tables, 2) == ST_OK);
    return c;
}

/* A checkpoint whose manifest is valid. */
struct checkpoint {
    struct checkpoint_restore r;
    struct checkpoint_manifest m;
    struct safetensors_file *file;
    struct tensor param;
    struct bucket_tensors buckets[N_BUCKETS];
};

/* Places the parameter, which must be whole, and all buckets. */
static bool place_all(struct checkpoint *c)
{
    int n, table;
    const struct safetensors_entry *e = safetensors_entries(c->file, &n);
    for (int i = 0; i < n; i++) {
        if (checkpoint_tables_is_part(e[i].name)) {
            if (checkpoint_tables_place(&c->r, 0, &e[i]))
                return false;
        } else if (strcmp(e[i].name, "w") == 0 && e[i].n_elems == N_ELEMS &&
                   e[i].dtype == SAFETENSORS_F32) {
            c->param = (struct tensor){
                .slot = -1, .n = N_ELEMS, .version = c->m.step, .entry = &e[i], .checked = 1};
            c->r.n_tensors = 1;
        }
    }
    return c->r.n_tensors == 1 && !checkpoint_tables_check(&c->r, false, &table);
}

/* Opens a checkpoint; *c must be closed in any case. Returns false if it is not complete. */
static bool open_it(struct checkpoint *c, struct chunks *chunks, int64_t step, const uint8_t *data,
                    size_t size)
{
    char path[64], why[SAFETENSORS_WHY_BYTES] = "";
    int fd = memfd_create("checkpoint", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *c = (struct checkpoint){
        .m = {.step = step, .generation = 1, .chunks = chunks, .n_files = 1, .crc32c = 7}};
    c->m.lineage = checkpoint_lineage_begin(1);
    c->r = (struct checkpoint_restore){
        .m = &c->m, .files = &c->file, .tensors = &c->param, .buckets = c->buckets};
    bool is_open = safetensors_open_any(path, &c->file, why) == ST_OK && place_all(c);
    close(fd);
    return is_open;
}

/* Makes an export and opens it; NULL: it cannot be made. */
static struct safetensors_file *export_it(const struct checkpoint *base,
                                          const struct checkpoint *target)
{
    char path[PATH_MAX], why[MANIFEST_WHY_BYTES] = "";
    struct table_export_counts counts;
    struct safetensors_file *f = NULL;
    const struct table_export e = {base ? &base->r : NULL, &target->r, DTYPE_F32};
    snprintf(path, sizeof path, "%s/export", folder);
    enum status st = table_export_write(path, &e, &counts, why);
    require(st == ST_OK || access(path, F_OK) != 0);
    require(st != ST_MISMATCH || (base && why[0]));
    if (st != ST_OK)
        return NULL;
    require(safetensors_open_any(path, &f, why) == ST_OK);
    require(safetensors_check(f, NULL, why) == ST_OK);
    unlink(path);
    return f;
}

/* Reads a tensor of an export, malloc'd. */
static void *read_it(const struct safetensors_file *f, const char *name, int64_t *n)
{
    char why[SAFETENSORS_WHY_BYTES];
    int n_entries;
    const struct safetensors_entry *e = safetensors_entries(f, &n_entries), *end = e + n_entries;
    while (e < end && strcmp(e->name, name) != 0)
        e++;
    require(e < end && e->has_crc);
    void *to = malloc(e->bytes + 1);
    require(to && safetensors_read_raw(f, e, 0, e->n_elems, to, why) == ST_OK);
    *n = e->n_elems;
    return to;
}

struct bucket {
    int64_t n, n_removed;
    uint64_t *keys, *steps, *removed;
    float *values;
};

static struct bucket read_bucket(const struct safetensors_file *f, const struct net_table *t, int i,
                                 bool is_patch)
{
    static const char *const kinds[] = {"keys", "steps", "rows", "removed"};
    char name[128];
    void *part[4] = {NULL};
    int64_t n[4] = {0};
    for (int k = 0; k < 3 + is_patch; k++) {
        snprintf(name, sizeof name, "%s %s [%d/%d]", t->name, kinds[k], i, t->n_buckets);
        part[k] = read_it(f, name, &n[k]);
    }
    require(n[1] == n[0] && n[2] == n[0] * t->dim);
    return (struct bucket){n[0], n[3], part[0], part[1], part[3], part[2]};
}

static void free_bucket(const struct bucket *b)
{
    free(b->keys);
    free(b->steps);
    free(b->values);
    free(b->removed);
}

/* Returns the index of the key; -1: it is not in the list. */
static int64_t find(const uint64_t *keys, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i++)
        if (keys[i] == key)
            return i;
    return -1;
}

/* Checks that the patch leads from bucket a to bucket b. */
static void check_bucket(const struct bucket *a, const struct bucket *p, const struct bucket *b,
                         int dim)
{
    int64_t n_same = 0;
    for (int64_t i = 0; i < p->n_removed; i++)
        require(find(a->keys, a->n, p->removed[i]) >= 0 && find(b->keys, b->n, p->removed[i]) < 0);
    for (int64_t i = 0; i < a->n; i++)
        require((find(b->keys, b->n, a->keys[i]) < 0) ==
                (find(p->removed, p->n_removed, a->keys[i]) >= 0));
    for (int64_t i = 0; i < b->n; i++) {
        int64_t at = find(p->keys, p->n, b->keys[i]);
        const struct bucket *from = at >= 0 ? p : a;
        n_same += at < 0;
        at = at >= 0 ? at : find(a->keys, a->n, b->keys[i]);
        require(at >= 0 && from->steps[at] == b->steps[i]);
        /* the files are not of one job, so only changed rows need to have the bits of the target */
        require(from == a || memcmp(from->values + at * dim, b->values + i * dim,
                                    (size_t)dim * sizeof *b->values) == 0);
    }
    require(p->n + n_same == b->n);
}

static void check_patch(const struct chunks *chunks, const struct safetensors_file *from,
                        const struct safetensors_file *patch, const struct safetensors_file *to)
{
    int64_t n;
    void *w = read_it(patch, "w", &n), *want = read_it(to, "w", &n);
    require(n == N_ELEMS && memcmp(w, want, N_ELEMS * sizeof(float)) == 0);
    free(w);
    free(want);
    for (int i = 0; i < chunks->n_tables; i++)
        for (int k = 0; k < chunks->tables[i].n_buckets; k++) {
            const struct net_table *t = &chunks->tables[i];
            struct bucket a = read_bucket(from, t, k, false), p = read_bucket(patch, t, k, true),
                          b = read_bucket(to, t, k, false);
            check_bucket(&a, &p, &b, t->dim);
            free_bucket(&a);
            free_bucket(&p);
            free_bucket(&b);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = size < 2 ? 0 : (size_t)data[0] | (size_t)data[1] << 8;
    if (size < 2 || n > size - 2)
        return 0;
    struct checkpoint base, target;
    struct chunks *chunks = make_chunks();
    make_folder();
    bool has_base = open_it(&base, chunks, BASE_STEP, data + 2, n);
    bool has_target = open_it(&target, chunks, STEP, data + 2 + n, size - 2 - n);
    struct safetensors_file *from = has_base ? export_it(NULL, &base) : NULL;
    struct safetensors_file *to = has_target ? export_it(NULL, &target) : NULL;
    struct safetensors_file *patch = has_base && has_target ? export_it(&base, &target) : NULL;
    require(!patch || to); /* a patch has a part of the target */
    if (from && patch)
        check_patch(chunks, from, patch, to);
    safetensors_close(from);
    safetensors_close(to);
    safetensors_close(patch);
    safetensors_close(base.file);
    safetensors_close(target.file);
    chunks_destroy(chunks);
    return 0;
}
