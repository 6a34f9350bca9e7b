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
/* The parts of a bucket, in the order of the file. */
enum { KEYS, STEPS, ROWS, SLOT_0, SLOT_1, PENDING_KEYS, PENDING_STEPS, PENDING_COUNTS };
static const char *const kinds[TABLES_FILE_MAX_PARTS] = {
    "keys", "steps", "rows", "slot 0", "slot 1", "pending keys", "pending steps", "pending counts"};

static bool is_slot(int part)
{
    return part == SLOT_0 || part == SLOT_1;
}

/* Returns true if the part has integers. */
static bool is_integer(int part)
{
    return part != ROWS && !is_slot(part);
}

static bool has_pending(const struct net_table *t)
{
    return t->admit_after > 1;
}

/* Returns the floats of one slot of a row. */
static int slot_width(const struct net_table *t, int slot_floats)
{
    return slot_floats < t->dim ? slot_floats : t->dim;
}

static int n_slots(const struct net_table *t, int slot_floats)
{
    return slot_floats > 0 ? slot_floats / slot_width(t, slot_floats) : 0;
}

int checkpoint_tables_n_parts(const struct net_table *t, int slot_floats)
{
    int n_pending = has_pending(t) ? TABLES_FILE_MAX_PARTS - PENDING_KEYS : 0;
    return SLOT_0 + n_slots(t, slot_floats) + n_pending;
}

/* Returns the part that tensor i of a bucket has. */
static int part_at(const struct net_table *t, int slot_floats, int i)
{
    int n_before = SLOT_0 + n_slots(t, slot_floats);
    return i < n_before ? i : PENDING_KEYS + i - n_before;
}

static void name_part(const struct net_table *t, int bucket, int part,
                      char name[TABLES_FILE_NAME_BYTES])
{
    snprintf(name, TABLES_FILE_NAME_BYTES, "%s %s [%d/%d]", t->name, kinds[part], bucket,
             t->n_buckets);
}

static struct shape part_shape(const struct net_table *t, int slot_floats, int part, int64_t n)
{
    int width = part == ROWS ? t->dim : slot_width(t, slot_floats);
    return is_integer(part) ? (struct shape){1, {n}} : (struct shape){2, {n, width}};
}

/* Returns the dtype of a part in the file. */
static enum safetensors_dtype part_dtype(const struct net_table *t, int part)
{
    bool is_half = part == ROWS && t->row_dtype == DTYPE_BF16;
    return is_integer(part) ? SAFETENSORS_I64 : is_half ? SAFETENSORS_BF16 : SAFETENSORS_F32;
}

void checkpoint_tables_describe(const struct chunks *c, int chunk, int slot_floats, int i,
                                char name[TABLES_FILE_NAME_BYTES], struct safetensors_tensor *out)
{
    const struct net_table *t = tables_of(c, chunk);
    int64_t most = tables_share(t, t->max_rows), limit = MOST_ELEMS / t->dim;
    int part = part_at(t, slot_floats, i);
    name_part(t, chunk - t->first_chunk, part, name);
    *out = (struct safetensors_tensor){
        .name = name,
        .shape = part_shape(t, slot_floats, part, most < limit ? most : limit),
        .dtype = part_dtype(t, part)};
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

/* Returns the data of a part. */
static const void *part_data(const struct checkpoint_rows *rows, int64_t slot_elems, int part)
{
    switch (part) {
    case KEYS:
        return rows->keys;
    case STEPS:
        return rows->steps;
    case ROWS:
        return rows->values;
    case PENDING_KEYS:
        return rows->pending_keys;
    case PENDING_STEPS:
        return rows->pending_steps;
    case PENDING_COUNTS:
        return rows->pending_counts;
    default:
        return part == SLOT_0 ? rows->slots : rows->slots + slot_elems;
    }
}

/* Adds a part with floats, in the dtype that it has in the file. */
static enum status add_part(struct safetensors_writer *w, const struct net_table *t, int part,
                            const struct shape *shape, const void *data)
{
    size_t n = (size_t)shape_elems(shape);
    if (part_dtype(t, part) != SAFETENSORS_BF16)
        return safetensors_add(w, shape, data);
    void *halves = malloc(dtype_bytes(DTYPE_BF16, n) + 1);
    if (!halves) {
        LOG_E("out of memory for the rows of table '%s'", t->name);
        return ST_NOMEM;
    }
    dtype_encode(DTYPE_BF16, halves, data, n);
    enum status st = safetensors_add(w, shape, halves);
    free(halves);
    return st;
}

static enum status write_bucket(struct safetensors_writer *w, const struct net_table *t,
                                int slot_floats, const struct checkpoint_rows *rows)
{
    int64_t slot_elems = rows->n * slot_width(t, slot_floats);
    enum status st = ST_OK;
    for (int i = 0; i < checkpoint_tables_n_parts(t, slot_floats) && st == ST_OK; i++) {
        int part = part_at(t, slot_floats, i);
        struct shape shape =
            part_shape(t, slot_floats, part, part < PENDING_KEYS ? rows->n : rows->n_pending);
        st = add_part(w, t, part, &shape, part_data(rows, slot_elems, part));
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
    if (is_integer(part))
        return e->dtype == SAFETENSORS_I64 && s->n_dims == 1;
    return e->dtype == part_dtype(t, part) && s->n_dims == 2 &&
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
    if (part >= PENDING_KEYS && !has_pending(t))
        return "has pending keys, but each key of this job's table gets a row at once";
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

/* Returns true if the bucket has the parts `first` to `last`, with the same number of entries. */
static bool has_parts(const struct bucket_tensors *b, int first, int last)
{
    for (int part = first; part <= last; part++)
        if (!b->part[part] || b->part[part]->shape.dim[0] != b->part[first]->shape.dim[0])
            return false;
    return true;
}

/* Returns the floats of a row besides its values; -1: a tensor of a slot is missing, or does not
 * have the shape of the rows. */
static int slot_floats_of(const struct bucket_tensors *b)
{
    int64_t floats = 0;
    for (int part = SLOT_0; part <= SLOT_1; part++) {
        if (b->part[part] && b->part[part]->shape.dim[0] != b->part[KEYS]->shape.dim[0])
            return -1;
        if (b->part[part])
            floats += b->part[part]->shape.dim[1];
    }
    const struct safetensors_entry *first = b->part[SLOT_0];
    if (b->part[SLOT_1] && (!first || first->shape.dim[1] != b->part[SLOT_1]->shape.dim[1]))
        return -1;
    return (int)floats;
}

/* Returns NULL, or the fault of a bucket. */
static const char *check_bucket(const struct net_table *t, struct bucket_tensors *b)
{
    if (!has_parts(b, KEYS, ROWS) ||
        (has_pending(t) && !has_parts(b, PENDING_KEYS, PENDING_COUNTS)))
        return "lacks a part of a bucket";
    b->slot_floats = slot_floats_of(b);
    if (b->slot_floats < 0)
        return "lacks a part of a bucket";
    int64_t n_pending = has_pending(t) ? b->part[PENDING_KEYS]->n_elems : 0;
    if (b->part[KEYS]->n_elems + n_pending > tables_share(t, t->max_rows))
        return "has more rows and pending keys than a bucket of this table may have";
    return NULL;
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
            const char *fault = check_bucket(t, b);
            if (fault)
                return fault;
            if (!first)
                first = b;
            if (b->slot_floats != first->slot_floats)
                return "has buckets with different slots";
        }
    }
    return NULL;
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

/* Returns NULL, or the fault of key i of n keys. */
static const char *check_key(const struct net_table *t, int bucket, int64_t version,
                             const uint64_t *keys, const uint64_t *steps, int64_t i)
{
    return i > 0 && keys[i] <= keys[i - 1]       ? "is not above the key before it"
           : tables_bucket(t, keys[i]) != bucket ? "belongs to another bucket"
           : steps[i] > (uint64_t)version        ? "was changed after the version of the bucket"
                                                 : NULL;
}

static enum status refuse_key(const struct checkpoint_restore *r, const struct net_table *t,
                              int bucket, uint64_t key, const char *why)
{
    LOG_E("%s/%s: table '%s', bucket %d: key %" PRIu64 " %s", r->folder, r->name, t->name, bucket,
          key, why);
    return ST_CORRUPT;
}

static enum status check_keys(const struct checkpoint_restore *r, const struct net_table *t,
                              int bucket, const struct checkpoint_bucket *b)
{
    const char *why;
    for (int64_t i = 0; i < b->n; i++)
        if ((why = check_key(t, bucket, b->version, b->keys, b->steps, i)))
            return refuse_key(r, t, bucket, b->keys[i], why);
    for (int64_t i = 0, row = 0; i < b->n_pending; i++) {
        uint64_t key = b->pending_keys[i], count = b->pending_counts[i];
        if ((why = check_key(t, bucket, b->version, b->pending_keys, b->pending_steps, i)))
            return refuse_key(r, t, bucket, key, why);
        if (count < 1 || count >= (uint64_t)t->admit_after)
            return refuse_key(r, t, bucket, key,
                              "is pending, but its count is not between 1 and admit_after - 1");
        while (row < b->n && b->keys[row] < key)
            row++;
        if (row < b->n && b->keys[row] == key)
            return refuse_key(r, t, bucket, key, "is pending, but has a row");
    }
    return ST_OK;
}

/* Allocates at least one byte. */
static void *take(size_t n, size_t bytes)
{
    return malloc(n * bytes + 1);
}

/* The parts of a bucket that are read. */
enum wanted { KEYS_ONLY, KEYS_AND_VALUES, ALL };

/* Returns the number of the first part that is not read. */
static int end_of(enum wanted wanted)
{
    return wanted == ALL ? TABLES_FILE_MAX_PARTS : wanted == KEYS_AND_VALUES ? SLOT_0 : ROWS;
}

/* Returns the elements of a part that are read. */
static size_t wanted_elems(const struct bucket_tensors *b, enum wanted wanted, int part)
{
    return part < end_of(wanted) && b->part[part] ? (size_t)b->part[part]->n_elems : 0;
}

/* Allocates the arrays of a bucket. */
static enum status take_bucket(const struct bucket_tensors *b, enum wanted wanted,
                               struct checkpoint_bucket *out)
{
    size_t n = wanted_elems(b, wanted, KEYS), m = wanted_elems(b, wanted, PENDING_KEYS);
    size_t slots = wanted_elems(b, wanted, SLOT_0) + wanted_elems(b, wanted, SLOT_1);
    *out = (struct checkpoint_bucket){.version = b->version,
                                      .n = (int64_t)n,
                                      .keys = take(n, sizeof *out->keys),
                                      .steps = take(n, sizeof *out->steps),
                                      .values =
                                          take(wanted_elems(b, wanted, ROWS), sizeof *out->values),
                                      .slots = take(slots, sizeof *out->slots),
                                      .n_pending = (int64_t)m,
                                      .pending_keys = take(m, sizeof *out->pending_keys),
                                      .pending_steps = take(m, sizeof *out->pending_steps),
                                      .pending_counts = take(m, sizeof *out->pending_counts)};
    bool ok = out->keys && out->steps && out->values && out->slots && out->pending_keys &&
              out->pending_steps && out->pending_counts;
    return ok ? ST_OK : ST_NOMEM;
}

/* Reads the rows, which may be BF16 in the file. */
static enum status read_rows(const struct checkpoint_restore *r, const struct bucket_tensors *b,
                             float *to)
{
    const struct safetensors_entry *e = b->part[ROWS];
    if (e->dtype == SAFETENSORS_F32)
        return read_part(r, b, ROWS, to);
    void *halves = malloc((size_t)e->bytes + 1);
    enum status st = halves ? read_part(r, b, ROWS, halves) : ST_NOMEM;
    if (st == ST_OK)
        dtype_decode(DTYPE_BF16, to, halves, (size_t)e->n_elems);
    else if (!halves)
        LOG_E("%s/%s: out of memory for tensor '%s'", r->folder, r->name, e->name);
    free(halves);
    return st;
}

static enum status read_parts(const struct checkpoint_restore *r, const struct bucket_tensors *b,
                              enum wanted wanted, struct checkpoint_bucket *to)
{
    void *const data[TABLES_FILE_MAX_PARTS] = {
        [KEYS] = to->keys,
        [STEPS] = to->steps,
        [SLOT_0] = to->slots,
        [SLOT_1] = b->part[SLOT_1] ? to->slots + b->part[SLOT_0]->n_elems : NULL,
        [PENDING_KEYS] = to->pending_keys,
        [PENDING_STEPS] = to->pending_steps,
        [PENDING_COUNTS] = to->pending_counts};
    enum status st = ST_OK;
    for (int part = 0; part < end_of(wanted) && st == ST_OK; part++)
        if (b->part[part])
            st = part == ROWS ? read_rows(r, b, to->values) : read_part(r, b, part, data[part]);
    return st;
}

static struct bucket_tensors *tensors_of(const struct checkpoint_restore *r, int table, int bucket)
{
    const struct chunks *c = r->m->chunks;
    return &r->buckets[c->tables[table].first_chunk - c->n_dense + bucket];
}

bool checkpoint_restore_holds_bucket(const struct checkpoint_restore *r, int table, int bucket)
{
    return tensors_of(r, table, bucket)->has_any;
}

/* Reads some parts of a bucket, and checks its keys. */
static enum status read_bucket(const struct checkpoint_restore *r, int table, int bucket,
                               enum wanted wanted, struct checkpoint_bucket *out)
{
    const struct net_table *t = &r->m->chunks->tables[table];
    const struct bucket_tensors *b = tensors_of(r, table, bucket);
    struct checkpoint_bucket own = {0};
    enum status st = ST_OK;
    if (!b->has_any) {
        LOG_E("%s/%s: bucket %d of table '%s' is missing", r->folder, r->name, bucket, t->name);
        return ST_NOT_FOUND;
    }
    st = take_bucket(b, wanted, &own);
    if (st != ST_OK) {
        LOG_E("%s/%s: out of memory for bucket %d of table '%s', which has %" PRId64 " rows",
              r->folder, r->name, bucket, t->name, own.n);
        TRY(st);
    }
    TRY(read_parts(r, b, wanted, &own));
    TRY(check_keys(r, t, bucket, &own));
    *out = own;
    own = (struct checkpoint_bucket){0};
done:
    checkpoint_bucket_free(&own);
    return st;
}

int64_t checkpoint_restore_bucket_rows(const struct checkpoint_restore *r, int table, int bucket,
                                       int64_t *version)
{
    const struct bucket_tensors *b = tensors_of(r, table, bucket);
    *version = b->version;
    return b->part[KEYS]->n_elems;
}

enum status checkpoint_restore_bucket_read(const struct checkpoint_restore *r, int table,
                                           int bucket, bool has_values,
                                           struct checkpoint_bucket *out)
{
    return read_bucket(r, table, bucket, has_values ? KEYS_AND_VALUES : KEYS_ONLY, out);
}

enum status checkpoint_restore_bucket(const struct checkpoint_restore *r, int table, int bucket,
                                      int slot_floats, struct checkpoint_bucket *out)
{
    const struct bucket_tensors *b = tensors_of(r, table, bucket);
    if (b->has_any && b->slot_floats != slot_floats) {
        LOG_E(
            "%s/%s: table '%s' was written with another optimizer: a row has %d floats of its state, not %d",
            r->folder, r->name, r->m->chunks->tables[table].name, b->slot_floats, slot_floats);
        return ST_CORRUPT;
    }
    return read_bucket(r, table, bucket, ALL, out);
}

void checkpoint_bucket_free(struct checkpoint_bucket *b)
{
    free(b->keys);
    free(b->steps);
    free(b->values);
    free(b->slots);
    free(b->pending_keys);
    free(b->pending_steps);
    free(b->pending_counts);
    *b = (struct checkpoint_bucket){0};
}
