/* checkpoint/tables_file.c - see tables_file.h. A file may be hostile: the number of rows is
 * compared with the bound of the bucket before memory is allocated, and the keys of every bucket
 * are checked when it is read. */
#include "checkpoint/tables_file.h"
#include "base/digest.h"
#include "base/log.h"
#include "checkpoint/restore_impl.h"
#include "kernels/vector/finite.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ELEMS ((int64_t)1 << 40) /* limit of shape_elems */
enum { KEYS, STEPS, ROWS, SLOT_0, SLOT_1 };
static const char *const kinds[TABLES_FILE_MAX_PARTS] = {"keys", "steps", "rows", "slot 0",
                                                         "slot 1"};

/* Returns the floats of one slot of a row. */
static int slot_width(const struct net_table *t, int slot_floats)
{
    return slot_floats < t->dim ? slot_floats : t->dim;
}

int checkpoint_tables_n_parts(const struct net_table *t, int slot_floats)
{
    return SLOT_0 + (slot_floats > 0 ? slot_floats / slot_width(t, slot_floats) : 0);
}

static void name_part(const struct net_table *t, int bucket, int part,
                      char name[TABLES_FILE_NAME_BYTES])
{
    snprintf(name, TABLES_FILE_NAME_BYTES, "%s %s [%d/%d]", t->name, kinds[part], bucket,
             t->n_buckets);
}

static struct shape part_shape(const struct net_table *t, int slot_floats, int part, int64_t n)
{
    int width = part < SLOT_0 ? t->dim : slot_width(t, slot_floats);
    return part < ROWS ? (struct shape){1, {n}} : (struct shape){2, {n, width}};
}

void checkpoint_tables_describe(const struct chunks *c, int chunk, int slot_floats, int part,
                                char name[TABLES_FILE_NAME_BYTES], struct safetensors_tensor *out)
{
    const struct net_table *t = tables_of(c, chunk);
    int64_t most = tables_share(t, t->max_rows), limit = MOST_ELEMS / t->dim;
    name_part(t, chunk - t->first_chunk, part, name);
    *out = (struct safetensors_tensor){
        .name = name,
        .shape = part_shape(t, slot_floats, part, most < limit ? most : limit),
        .dtype = part < ROWS ? SAFETENSORS_I64 : SAFETENSORS_F32};
}

/* Checks that all numbers are finite, like the check of the dense chunks in shard_file.c. */
static enum status check_finite(const struct net_table *t, int slot_floats,
                                const struct checkpoint_rows *rows, int64_t step)
{
    size_t n = (size_t)(rows->n * t->dim), n_slots = (size_t)(rows->n * slot_floats);
    bool value = finite_first_bad(DTYPE_F32, rows->values, n) < n;
    if (!value && finite_first_bad(DTYPE_F32, rows->slots, n_slots) >= n_slots)
        return ST_OK;
    LOG_E("no checkpoint at step %" PRId64
          ": %stable '%s' is not finite, training has diverged; earlier checkpoints stay",
          step, value ? "" : "the optimizer's state of ", t->name);
    return ST_INVALID;
}

static enum status write_bucket(struct safetensors_writer *w, const struct net_table *t,
                                int slot_floats, const struct checkpoint_rows *rows)
{
    const float *slots = rows->slots;
    enum status st = ST_OK;
    for (int part = 0; part < checkpoint_tables_n_parts(t, slot_floats) && st == ST_OK; part++) {
        struct shape shape = part_shape(t, slot_floats, part, rows->n);
        const void *data = part == KEYS    ? (const void *)rows->keys
                           : part == STEPS ? (const void *)rows->steps
                           : part == ROWS  ? rows->values
                                           : slots;
        st = safetensors_add(w, &shape, data);
        if (part >= SLOT_0)
            slots += shape_elems(&shape);
    }
    return st;
}

enum status checkpoint_tables_write(struct safetensors_writer *w, const struct chunks *c,
                                    const struct checkpoint_tables *tables, int64_t step)
{
    enum status st = ST_OK;
    for (int i = 0; i < tables->n_buckets; i++) {
        struct checkpoint_rows rows = {0};
        const struct net_table *t = tables_of(c, tables->bucket[i]);
        int slot_floats = tables->slot_floats[t - c->tables];
        TRY(tables->copy(tables->ctx, i, &rows));
        TRY(check_finite(t, slot_floats, &rows, step));
        TRY(write_bucket(w, t, slot_floats, &rows));
    }
done:
    return st;
}

bool checkpoint_tables_is_part(const char *name)
{
    const char *place = strrchr(name, ' ');
    return place && place[1] == '[' && strchr(place, '/');
}

/* Finds table, bucket and part of a tensor's name. Returns false if the job has no such table. */
static bool parse_name(const struct chunks *c, const char *name, int *table, int *bucket, int *part)
{
    char again[TABLES_FILE_NAME_BYTES];
    size_t length = strcspn(name, " ");
    const char *place = strrchr(name, ' ');
    for (*table = 0; *table < c->n_tables; ++*table) {
        const char *other = c->tables[*table].name;
        if (strlen(other) == length && memcmp(other, name, length) == 0)
            break;
    }
    if (*table == c->n_tables)
        return false;
    const struct net_table *t = &c->tables[*table];
    long number = strtol(place + 2, NULL, 10);
    *bucket = number >= 0 && number < t->n_buckets ? (int)number : 0;
    for (*part = 0; *part < TABLES_FILE_MAX_PARTS; ++*part) {
        name_part(t, *bucket, *part, again);
        if (strcmp(again, name) == 0)
            return true;
    }
    return false;
}

static bool has_shape(const struct net_table *t, int part, const struct safetensors_entry *e)
{
    const struct shape *s = &e->shape;
    if (part < ROWS)
        return e->dtype == SAFETENSORS_I64 && s->n_dims == 1;
    return e->dtype == SAFETENSORS_F32 && s->n_dims == 2 &&
           (s->dim[1] == t->dim || (part == SLOT_0 && s->dim[1] == 1));
}

const char *checkpoint_tables_place(struct checkpoint_restore *r, int file,
                                    const struct safetensors_entry *e)
{
    const struct chunks *c = r->m->chunks;
    int table, bucket, part;
    if (!parse_name(c, e->name, &table, &bucket, &part))
        return "is not a tensor of this job";
    const struct net_table *t = &c->tables[table];
    struct bucket_tensors *b = &r->buckets[t->first_chunk - c->n_dense + bucket];
    if (!has_shape(t, part, e))
        return "has another dtype or shape than this job's table";
    if (e->shape.dim[0] > tables_share(t, t->max_rows))
        return "has more rows than a bucket of this table may have";
    if (b->part[part])
        return "is duplicated";
    if (!b->has_any)
        b->file = file;
    else if (b->file != file)
        return "is not in the same file as the other tensors of its bucket";
    b->has_any = true;
    b->part[part] = e;
    if (part == KEYS)
        b->version = checkpoint_restore_number(r->files[file], "version", e->name, r->m->step);
    return NULL;
}

/* Returns the floats of a row besides its values; -1: a tensor of the bucket is missing, or its
 * tensors differ in their number of rows. */
static int slot_floats_of(const struct bucket_tensors *b)
{
    int64_t floats = 0;
    for (int part = 0; part < TABLES_FILE_MAX_PARTS; part++) {
        if (part < SLOT_0 && !b->part[part])
            return -1;
        if (b->part[part] && b->part[part]->shape.dim[0] != b->part[KEYS]->shape.dim[0])
            return -1;
        if (b->part[part] && part >= SLOT_0)
            floats += b->part[part]->shape.dim[1];
    }
    const struct safetensors_entry *first = b->part[SLOT_0];
    if (b->part[SLOT_1] && (!first || first->shape.dim[1] != b->part[SLOT_1]->shape.dim[1]))
        return -1;
    return (int)floats;
}

const char *checkpoint_tables_check(struct checkpoint_restore *r, bool is_part, int *table)
{
    const struct chunks *c = r->m->chunks;
    for (*table = 0; *table < c->n_tables; ++*table) {
        const struct net_table *t = &c->tables[*table];
        struct bucket_tensors *first = NULL;
        for (int i = 0; i < t->n_buckets; i++) {
            struct bucket_tensors *b = &r->buckets[t->first_chunk - c->n_dense + i];
            if (!b->has_any && is_part)
                continue;
            b->slot_floats = slot_floats_of(b);
            if (b->slot_floats < 0)
                return "lacks a part of a bucket";
            if (!first)
                first = b;
            if (b->slot_floats != first->slot_floats)
                return "has buckets with different slots";
        }
    }
    return NULL;
}

bool checkpoint_restore_holds_bucket(const struct checkpoint_restore *r, int table, int bucket)
{
    const struct chunks *c = r->m->chunks;
    return r->buckets[c->tables[table].first_chunk - c->n_dense + bucket].has_any;
}

/* Reads a whole tensor, and compares it with its checksum. checkpoint_shard_file_open has checked
 * that there is one. */
static enum status read_part(const struct checkpoint_restore *r, const struct bucket_tensors *b,
                             int part, void *dst)
{
    char why[SAFETENSORS_WHY_BYTES];
    const struct safetensors_entry *e = b->part[part];
    enum status st = safetensors_read_raw(r->files[b->file], e, 0, e->n_elems, dst, why);
    if (st == ST_OK && e->has_crc && digest_crc32c(0, dst, (size_t)e->bytes) != e->crc32c) {
        snprintf(why, sizeof why, "does not match its checksum");
        st = ST_CORRUPT;
    }
    if (st != ST_OK)
        LOG_E("%s/%s: tensor '%s': %s", r->folder, r->name, e->name, why);
    return st;
}

static enum status check_rows(const struct checkpoint_restore *r, const struct net_table *t,
                              int bucket, const struct checkpoint_bucket *b)
{
    for (int64_t i = 0; i < b->n; i++) {
        const char *why = i > 0 && b->keys[i] <= b->keys[i - 1] ? "is not above the key before it"
                          : tables_bucket(t, b->keys[i]) != bucket ? "belongs to another bucket"
                          : b->steps[i] > (uint64_t)b->version
                              ? "was changed after the version of the bucket"
                              : NULL;
        if (why) {
            LOG_E("%s/%s: table '%s', bucket %d: key %" PRIu64 " %s", r->folder, r->name, t->name,
                  bucket, b->keys[i], why);
            return ST_CORRUPT;
        }
    }
    return ST_OK;
}

/* Allocates at least one byte. */
static void *take(size_t n, size_t bytes)
{
    return malloc(n * bytes + 1);
}

enum status checkpoint_restore_bucket(const struct checkpoint_restore *r, int table, int bucket,
                                      int slot_floats, struct checkpoint_bucket *out)
{
    const struct chunks *c = r->m->chunks;
    const struct net_table *t = &c->tables[table];
    const struct bucket_tensors *b = &r->buckets[t->first_chunk - c->n_dense + bucket];
    struct checkpoint_bucket own = {0};
    enum status st = ST_OK;
    if (!b->has_any) {
        LOG_E("%s/%s: bucket %d of table '%s' is missing", r->folder, r->name, bucket, t->name);
        return ST_NOT_FOUND;
    }
    if (b->slot_floats != slot_floats) {
        LOG_E(
            "%s/%s: table '%s' was written with another optimizer: a row has %d floats of its state, not %d",
            r->folder, r->name, t->name, b->slot_floats, slot_floats);
        return ST_CORRUPT;
    }
    size_t n = (size_t)b->part[KEYS]->n_elems;
    own = (struct checkpoint_bucket){.version = b->version,
                                     .n = b->part[KEYS]->n_elems,
                                     .keys = take(n, sizeof *own.keys),
                                     .steps = take(n, sizeof *own.steps),
                                     .values = take(n * (size_t)t->dim, sizeof *own.values),
                                     .slots = take(n * (size_t)slot_floats, sizeof *own.slots)};
    if (!own.keys || !own.steps || !own.values || !own.slots) {
        LOG_E("%s/%s: out of memory for bucket %d of table '%s', which has %zu rows", r->folder,
              r->name, bucket, t->name, n);
        TRY(ST_NOMEM);
    }
    TRY(read_part(r, b, KEYS, own.keys));
    TRY(read_part(r, b, STEPS, own.steps));
    TRY(read_part(r, b, ROWS, own.values));
    if (slot_floats > 0)
        TRY(read_part(r, b, SLOT_0, own.slots));
    if (b->part[SLOT_1])
        TRY(read_part(r, b, SLOT_1, own.slots + b->part[SLOT_0]->n_elems));
    TRY(check_rows(r, t, bucket, &own));
    *out = own;
    own = (struct checkpoint_bucket){0};
done:
    checkpoint_bucket_free(&own);
    return st;
}

void checkpoint_bucket_free(struct checkpoint_bucket *b)
{
    free(b->keys);
    free(b->steps);
    free(b->values);
    free(b->slots);
    *b = (struct checkpoint_bucket){0};
}
