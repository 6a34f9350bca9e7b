/* checkpoint/table_export.c - see table_export.h. */
#include "checkpoint/table_export.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/manifest_tables.h"
#include "checkpoint/row_patch.h"
#include "kernels/vector/finite.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_MS = 3000,
    N_FIXED = 8,
    N_PARTS = 4,
    NUMBER_BYTES = 32,
    KEY_BYTES = CHUNKS_MAX_NAME + 96
};

struct text {
    char bytes[KEY_BYTES];
};

/* An export that is being written. */
struct job {
    const struct checkpoint_restore *base, *target;
    int row_dtype;
    const struct chunks *chunks;
    struct safetensors_tensor *tensors;
    struct text *names; /* names of the tensors of buckets */
    const char *(*metadata)[2];
    struct text *texts; /* keys and values of the metadata */
    char *tables;       /* the tables of the manifest, as JSON */
    int n_tensors, n_names, n_metadata, n_texts;
    struct safetensors_writer *writer;
    struct table_export_counts counts;
    int64_t line_ns; /* earliest time of the next line about the progress */
};

void table_export_id(struct checkpoint_id id, char text[EXPORT_ID_BYTES])
{
    snprintf(text, EXPORT_ID_BYTES, TERM_FMT "-%" PRId64, TERM_ARG(id.generation), id.step);
}

static struct checkpoint_id id_of(const struct checkpoint_manifest *m)
{
    return (struct checkpoint_id){m->generation, m->step};
}

static enum status allocate(struct job *j)
{
    size_t n_buckets = (size_t)(j->chunks->n_chunks - j->chunks->n_dense);
    size_t n_params = (size_t)j->chunks->n_params, n_tables = (size_t)j->chunks->n_tables;
    size_t n_keys = N_FIXED + n_tables + n_buckets;
    j->tensors = calloc(n_params + N_PARTS * n_buckets + 1, sizeof *j->tensors);
    j->names = calloc(N_PARTS * n_buckets + 1, sizeof *j->names);
    j->metadata = calloc(n_keys, sizeof *j->metadata);
    j->texts = calloc(2 * n_keys, sizeof *j->texts);
    json_t *root = json_object();
    if (root && manifest_tables_add(root, j->chunks, true))
        j->tables =
            n_tables ? json_dumps(json_object_get(root, "tables"), JSON_COMPACT) : strdup("[]");
    json_decref(root);
    return j->tensors && j->names && j->metadata && j->texts && j->tables ? ST_OK : ST_NOMEM;
}

static char *add_text(struct job *j)
{
    return j->texts[j->n_texts++].bytes;
}

static void add_metadata(struct job *j, const char *key, const char *value)
{
    j->metadata[j->n_metadata][0] = key;
    j->metadata[j->n_metadata++][1] = value;
}

static void add_number(struct job *j, const char *key, uint64_t number)
{
    char *value = add_text(j);
    snprintf(value, NUMBER_BYTES, "%" PRIu64, number);
    add_metadata(j, key, value);
}

/* Adds the id of a checkpoint, and the checksum of its manifest. */
static void add_checkpoint(struct job *j, const struct checkpoint_manifest *m, const char *id_key,
                           const char *crc_key)
{
    char *id = add_text(j), *crc = add_text(j);
    table_export_id(id_of(m), id);
    snprintf(crc, NUMBER_BYTES, "%08x", m->crc32c);
    add_metadata(j, id_key, id);
    add_metadata(j, crc_key, crc);
}

static void add_tensor(struct job *j, const char *name, struct shape shape,
                       enum safetensors_dtype dtype)
{
    j->tensors[j->n_tensors++] =
        (struct safetensors_tensor){.name = name, .shape = shape, .dtype = dtype};
}

/* Returns the format of a table's rows in the file. */
static enum dtype dtype_of(const struct job *j, const struct net_table *t)
{
    return j->row_dtype < 0 ? t->row_dtype : (enum dtype)j->row_dtype;
}

/* Adds a tensor of a bucket: n integers or, if `dim` is above 0, n rows. */
static void add_part(struct job *j, const struct net_table *t, int bucket, const char *kind,
                     int64_t n, int dim)
{
    char *name = j->names[j->n_names++].bytes;
    snprintf(name, KEY_BYTES, "%s %s [%d/%d]", t->name, kind, bucket, t->n_buckets);
    add_tensor(j, name, dim > 0 ? (struct shape){2, {n, dim}} : (struct shape){1, {n}},
               dim == 0                       ? SAFETENSORS_I64
               : dtype_of(j, t) == DTYPE_BF16 ? SAFETENSORS_BF16
                                              : SAFETENSORS_F32);
}

/* Adds the tensors of a table, with the largest numbers of rows that they can have, and the version
 * of each bucket, if it is not the step of the checkpoint. */
static void add_table(struct job *j, int table, int64_t step)
{
    const struct net_table *t = &j->chunks->tables[table];
    int64_t n_rows = 0, version;
    for (int i = 0; i < t->n_buckets; i++) {
        int64_t n = checkpoint_restore_bucket_rows(j->target, table, i, &version);
        n_rows += n;
        const char *keys = j->names[j->n_names].bytes;
        add_part(j, t, i, "keys", n, 0);
        add_part(j, t, i, "steps", n, 0);
        add_part(j, t, i, "rows", n, t->dim);
        if (version != step) {
            char *key = add_text(j);
            snprintf(key, KEY_BYTES, "version %.*s", KEY_BYTES - 9, keys);
            add_number(j, key, (uint64_t)version);
        }
        if (j->base)
            add_part(j, t, i, "removed",
                     checkpoint_restore_bucket_rows(j->base, table, i, &version), 0);
    }
    char *key = add_text(j);
    snprintf(key, KEY_BYTES, "count %s", t->name);
    add_number(j, key, (uint64_t)n_rows);
    j->counts.n_rows += n_rows;
}

/* Lists all tensors and metadata. */
static void describe(struct job *j)
{
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(j->target);
    add_metadata(j, "format", "weir tables");
    add_number(j, "step", (uint64_t)m->step);
    add_checkpoint(j, m, "id", "manifest_crc32c");
    add_number(j, "seed", m->job.seed);
    add_metadata(j, "tables", j->tables);
    if (j->base)
        add_checkpoint(j, checkpoint_restore_manifest(j->base), "since_id",
                       "since_manifest_crc32c");
    for (int i = 0; i < j->chunks->n_params; i++)
        add_tensor(j, j->chunks->params[i].name, j->chunks->params[i].shape, SAFETENSORS_F32);
    for (int i = 0; i < j->chunks->n_tables; i++)
        add_table(j, i, m->step);
}

static enum status write_param(struct job *j, const struct net_param *p)
{
    float *values = malloc((size_t)p->n_elems * sizeof *values + 1);
    if (!values) {
        LOG_E("out of memory for parameter '%s'", p->name);
        return ST_NOMEM;
    }
    enum status st = checkpoint_restore_read_average(j->target, p->first, p->n_elems, values);
    if (st == ST_OK)
        st = safetensors_add(j->writer, &p->shape, values);
    free(values);
    return st;
}

/* Adds the rows of a bucket, in their format in the file. */
static enum status write_rows(struct job *j, const struct net_table *t,
                              const struct checkpoint_bucket *b)
{
    const struct shape shape = {2, {b->n, t->dim}};
    size_t n = (size_t)(b->n * t->dim), bad;
    enum dtype dtype = dtype_of(j, t);
    if (dtype == DTYPE_F32)
        return safetensors_add(j->writer, &shape, b->values);
    if ((bad = finite_first_misfit(dtype, b->values, n)) < n) {
        LOG_E("table '%s': the row of key %" PRIu64
              " has %g, which is too large for bf16; export the rows as fp32",
              t->name, b->keys[bad / (size_t)t->dim], (double)b->values[bad]);
        return ST_RANGE;
    }
    void *rounded = malloc(dtype_bytes(dtype, n) + 1);
    if (!rounded) {
        LOG_E("out of memory for the rows of table '%s'", t->name);
        return ST_NOMEM;
    }
    dtype_encode(dtype, rounded, b->values, n);
    enum status st = safetensors_add(j->writer, &shape, rounded);
    free(rounded);
    return st;
}

static enum status write_parts(struct job *j, const struct net_table *t,
                               const struct checkpoint_bucket *from,
                               const struct checkpoint_bucket *to)
{
    const struct shape keys = {1, {to->n}}, removed = {1, {from->n}};
    enum status st = safetensors_add(j->writer, &keys, to->keys);
    if (st == ST_OK)
        st = safetensors_add(j->writer, &keys, to->steps);
    if (st == ST_OK)
        st = write_rows(j, t, to);
    if (st == ST_OK && j->base)
        st = safetensors_add(j->writer, &removed, from->keys);
    j->counts.n_written += to->n;
    j->counts.n_removed += from->n;
    return st;
}

static enum status write_bucket(struct job *j, int table, int bucket, char why[MANIFEST_WHY_BYTES])
{
    const struct net_table *t = &j->chunks->tables[table];
    struct checkpoint_bucket from = {0}, to = {0};
    enum status st = checkpoint_restore_bucket_read(j->target, table, bucket, true, &to);
    if (st == ST_OK && j->base)
        st = checkpoint_restore_bucket_read(j->base, table, bucket, false, &from);
    if (st == ST_CORRUPT && to.keys) {
        snprintf(why, MANIFEST_WHY_BYTES, "a file of this checkpoint is damaged");
        st = ST_MISMATCH;
    }
    if (st == ST_OK && j->base && row_patch_make(&from, &to, t->dim) != ST_OK) {
        snprintf(why, MANIFEST_WHY_BYTES,
                 "bucket %d of table '%s' does not continue from the base: the files do not fit",
                 bucket, t->name);
        st = ST_MISMATCH;
    }
    if (st == ST_OK)
        st = write_parts(j, t, &from, &to);
    checkpoint_bucket_free(&from);
    checkpoint_bucket_free(&to);
    return st;
}

static void log_progress(struct job *j, const struct net_table *t, int bucket)
{
    if (clock_now_ns() < j->line_ns)
        return;
    if (j->line_ns > 0)
        LOG_I("export: table '%s', %d of %d buckets written", t->name, bucket, t->n_buckets);
    j->line_ns = clock_deadline_ns(LINE_MS);
}

static enum status write_all(struct job *j, char why[MANIFEST_WHY_BYTES])
{
    enum status st = ST_OK;
    for (int i = 0; i < j->chunks->n_params && st == ST_OK; i++)
        st = write_param(j, &j->chunks->params[i]);
    for (int i = 0; i < j->chunks->n_tables; i++)
        for (int b = 0; b < j->chunks->tables[i].n_buckets && st == ST_OK; b++) {
            log_progress(j, &j->chunks->tables[i], b);
            st = write_bucket(j, i, b, why);
        }
    return st;
}

/* Checks whether training continued from the base to the target. */
static enum status check_base(const struct checkpoint_restore *base,
                              const struct checkpoint_restore *target, char why[MANIFEST_WHY_BYTES])
{
    const struct checkpoint_manifest *a = checkpoint_restore_manifest(base);
    const struct checkpoint_manifest *b = checkpoint_restore_manifest(target);
    char differs[256];
    const char *fault =
        b->lineage.n == 0
            ? "the newest checkpoint has no history: an older version of Weir wrote it"
        : !checkpoint_lineage_has(&b->lineage, id_of(a), id_of(b))
            ? "training went back to an older checkpoint afterwards"
        : a->job.seed != b->job.seed ||
                chunks_compare(a->chunks, b->chunks, differs, sizeof differs) != ST_OK
            ? "the job had other parameters, tables, --chunk_bytes or another --seed"
            : NULL;
    if (!fault)
        return ST_OK;
    snprintf(why, MANIFEST_WHY_BYTES, "%s", fault);
    return ST_MISMATCH;
}

enum status table_export_write(const char *path, const struct table_export *e,
                               struct table_export_counts *out, char why[MANIFEST_WHY_BYTES])
{
    const struct chunks *chunks = checkpoint_restore_manifest(e->target)->chunks;
    struct job j = {
        .base = e->base, .target = e->target, .row_dtype = e->row_dtype, .chunks = chunks};
    enum status st = e->base ? check_base(e->base, e->target, why) : ST_OK;
    TRY(st);
    TRY(allocate(&j));
    describe(&j);
    const struct safetensors_content content = {j.tensors, j.n_tensors,
                                                (const char *const(*)[2])j.metadata, j.n_metadata};
    TRY(safetensors_begin(path, &content, &j.writer));
    TRY(write_all(&j, why));
    TRY(safetensors_commit(j.writer, NULL));
    *out = j.counts;
done:
    if (st == ST_NOMEM && !j.writer)
        LOG_E("out of memory for an export");
    safetensors_end(j.writer);
    free(j.tensors);
    free(j.names);
    free(j.metadata);
    free(j.texts);
    free(j.tables);
    return st;
}
