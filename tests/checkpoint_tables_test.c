/* tests/checkpoint_tables_test.c - rows of tables in checkpoints: any number of servers writes
 * them, each bucket is read again with its bits, and a checkpoint with a missing, altered or
 * misplaced bucket is refused. Called with `--write FOLDER`, the program only writes a checkpoint,
 * which tests/python/test_checkpoint_tables.py reads. */
#include "base/log.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/tables_file.h"
#include "kernels/vector/float_bits.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/table_rig.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP = 7, N_TABLES = 3, MAX_SERVERS = 3, MAX_ROWS = 256, MAX_FLOATS = 9 };

static char folder[FOLDER_RIG_BYTES], path[FOLDER_RIG_BYTES + MANIFEST_NAME_BYTES];
static char why[MANIFEST_WHY_BYTES];
static struct net_job job;
static struct chunks *chunks;
static float dense[3000];
/* floats of a row besides its values: adam, row-wise adagrad, sgd */
static const int slot_floats[N_TABLES] = {6, 1, 0};

/* Describes a fault that a test puts into a bucket of table 0. */
static struct {
    int bucket; /* -1: no fault */
    enum {
        NO_FAULT,
        SWAPPED,
        FOREIGN,
        TWICE,
        LATE,
        NAN_VALUE,
        NAN_SLOT,
        PENDING_TWICE,
        PENDING_FOREIGN,
        PENDING_LATE,
        PENDING_WITH_ROW,
        COUNT_OF_ZERO,
        COUNT_OF_A_ROW,
    } fault;
} spoil;

static void make_chunks(int64_t chunk_bytes, const char *table, struct chunks **out)
{
    const struct net_param param = {.name = "w", .shape = {1, {3000}}};
    struct net_table tables[N_TABLES] = {
        {.name = table, .dim = 3, .n_buckets = 8, .max_rows = 200, .step_rows = 100},
        {.name = "w", .dim = 4, .n_buckets = 2, .max_rows = 200, .step_rows = 50},
        {.name = "a/b[1/2]", .dim = 1, .n_buckets = 1, .max_rows = 10, .step_rows = 10},
    };
    tables[0].row_dtype = DTYPE_BF16;
    tables[0].admit_after = 3;
    tables[1].admit_after = 2;
    for (int i = 0; i < N_TABLES; i++)
        tables[i].optimizer = (struct optim_rows_config)TABLE_RIG_SGD;
    assert_int_equal(chunks_create(&param, 1, chunk_bytes, out), ST_OK);
    assert_int_equal(tables_add(*out, tables, N_TABLES), ST_OK);
}

static void set_job(void)
{
    job = (struct net_job){.n_workers = 1, .aggregate = 1, .train_steps = 100, .seed = 1};
    optim_defaults(OPTIM_SGD, &job.optim);
    for (int i = 0; i < 3000; i++)
        dense[i] = (float)i;
    make_chunks(4096, "ads", &chunks);
    spoil.bucket = -1;
}

static int setup(void **state)
{
    folder_rig_new(folder);
    set_job();
    return 0;
}

static int teardown(void **state)
{
    chunks_destroy(chunks);
    return folder_rig_delete(folder);
}

/* Rows of a bucket, as the tests expect them. */
struct rows {
    int64_t n;
    uint64_t keys[MAX_ROWS], steps[MAX_ROWS];
    float values[MAX_ROWS * MAX_FLOATS], slots[MAX_ROWS * MAX_FLOATS];
    int64_t n_pending;
    uint64_t pending_keys[MAX_ROWS], pending_steps[MAX_ROWS], pending_counts[MAX_ROWS];
};

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Makes the pending keys of a bucket: of 80 keys without rows those that belong to it. The highest
 * bit of every fourth key is set. */
static void make_pending(const struct net_table *t, int bucket, struct rows *out)
{
    out->n_pending = 0;
    for (uint64_t i = 0; i < (t->admit_after > 1 ? 80 : 0); i++) {
        uint64_t key = i * 3 + 1 + (i % 4 == 0 ? UINT64_C(1) << 63 : 0);
        if (tables_bucket(t, key) == bucket)
            out->pending_keys[out->n_pending++] = key;
    }
    qsort(out->pending_keys, (size_t)out->n_pending, sizeof *out->pending_keys, by_key);
    for (int64_t i = 0; i < out->n_pending; i++) {
        out->pending_steps[i] = out->pending_keys[i] % STEP;
        out->pending_counts[i] = 1 + out->pending_keys[i] % (uint64_t)(t->admit_after - 1);
    }
}

/* Makes the rows of a bucket: of the first 150 keys of each table those that belong to it. The
 * highest bit of every third key is set. Bucket 1 of table 1 has no rows. */
static void make_rows(const struct net_table *t, int table, int bucket, struct rows *out)
{
    out->n = 0;
    for (uint64_t i = 0; i < (table == 2 ? 7 : 150); i++) {
        uint64_t key = i * 3 + (i % 3 == 0 ? UINT64_C(1) << 63 : 0);
        if (tables_bucket(t, key) == bucket && !(table == 1 && bucket == 1))
            out->keys[out->n++] = key;
    }
    qsort(out->keys, (size_t)out->n, sizeof *out->keys, by_key);
    for (int64_t i = 0; i < out->n; i++)
        out->steps[i] = out->keys[i] % STEP;
    for (int64_t i = 0; i < out->n * t->dim; i++) {
        uint32_t lost = t->row_dtype == DTYPE_BF16 ? 0xffff : 0;
        out->values[i] = float_of(bits_of((float)out->keys[i / t->dim] + (float)i) & ~lost);
    }
    for (int64_t i = 0; i < out->n * slot_floats[table]; i++)
        out->slots[i] = -(float)i;
    make_pending(t, bucket, out);
}

static void apply_fault(const struct net_table *t, struct rows *r)
{
    uint64_t first = r->keys[0];
    switch (spoil.fault) {
    case NO_FAULT:
        break;
    case SWAPPED:
        r->keys[0] = r->keys[1];
        r->keys[1] = first;
        break;
    case FOREIGN:
        while (tables_bucket(t, r->keys[0]) == spoil.bucket)
            r->keys[0]++;
        break;
    case TWICE:
        r->keys[1] = first;
        break;
    case LATE:
        r->steps[1] = STEP + 1;
        break;
    case NAN_VALUE:
        r->values[2] = NAN;
        break;
    case NAN_SLOT:
        r->slots[3] = INFINITY;
        break;
    case PENDING_TWICE:
        r->pending_keys[1] = r->pending_keys[0];
        break;
    case PENDING_FOREIGN:
        while (tables_bucket(t, r->pending_keys[0]) == spoil.bucket)
            r->pending_keys[0]++;
        break;
    case PENDING_LATE:
        r->pending_steps[1] = STEP + 1;
        break;
    case PENDING_WITH_ROW:
        assert_true(first < r->pending_keys[1]);
        r->pending_keys[0] = first;
        break;
    case COUNT_OF_ZERO:
        r->pending_counts[1] = 0;
        break;
    case COUNT_OF_A_ROW:
        r->pending_counts[1] = (uint64_t)t->admit_after;
        break;
    }
}

struct server {
    struct chunks *chunks;
    int bucket[64], n;
    struct rows rows;
};

static enum status copy(void *ctx, int i, struct checkpoint_rows *out)
{
    struct server *s = ctx;
    const struct net_table *t = tables_of(s->chunks, s->bucket[i]);
    int table = (int)(t - s->chunks->tables), bucket = s->bucket[i] - t->first_chunk;
    make_rows(t, table, bucket, &s->rows);
    if (table == 0 && bucket == spoil.bucket)
        apply_fault(t, &s->rows);
    *out = (struct checkpoint_rows){.n = s->rows.n,
                                    .keys = s->rows.keys,
                                    .steps = s->rows.steps,
                                    .values = s->rows.values,
                                    .slots = s->rows.slots,
                                    .n_pending = s->rows.n_pending,
                                    .pending_keys = s->rows.pending_keys,
                                    .pending_steps = s->rows.pending_steps,
                                    .pending_counts = s->rows.pending_counts};
    return ST_OK;
}

/* Writes the file of one server with the chunks that `shard` assigns to it. */
static enum status write_file(int server, int n_servers, const int *shard,
                              struct safetensors_written *out)
{
    struct checkpoint_shard_chunk list[8];
    struct server s = {.chunks = chunks};
    int64_t version[64];
    int n = 0;
    for (int i = 0; i < chunks->n_chunks; i++) {
        if (shard[i] != server)
            continue;
        if (i < chunks->n_dense)
            list[n++] = (struct checkpoint_shard_chunk){
                .chunk = i, .version = STEP, .value = dense + chunks->chunks[i].first};
        else
            s.bucket[s.n++] = i;
    }
    for (int i = 0; i < s.n; i++) /* the first bucket is one version behind, like in async */
        version[i] = s.bucket[i] == chunks->n_dense ? STEP - 1 : STEP;
    const struct checkpoint_tables tables = {s.bucket, s.n, version, slot_floats, copy, &s};
    const struct checkpoint_shard_file file = {.folder = folder,
                                               .step = STEP,
                                               .generation = 1,
                                               .server = server,
                                               .n_servers = n_servers,
                                               .job = &job,
                                               .chunks = chunks,
                                               .tables = &tables};
    return checkpoint_shard_file_write(&file, list, n, out);
}

/* Writes a checkpoint of n servers. shards: the server of each chunk, for each file; NULL: the
 * usual one. */
static void write_checkpoint(int n, const int *const *shards)
{
    struct safetensors_written files[MAX_SERVERS];
    int *shard = malloc((size_t)chunks->n_chunks * sizeof *shard);
    assert_int_equal(chunks_shard(chunks, n, shard), ST_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(write_file(i, n, shards ? shards[i] : shard, &files[i]), ST_OK);
    const struct checkpoint_manifest m = {.step = STEP,
                                          .generation = 1,
                                          .job = job,
                                          .chunks = chunks,
                                          .n_files = n,
                                          .files = files,
                                          .shard = shard,
                                          .progress = {.known = true,
                                                       .position = 70,
                                                       .n_members = 1,
                                                       .member = (int[]){0},
                                                       .servers = {1, (char *[]){"a:1"}}}};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    free(shard);
}

static enum status open_it(struct checkpoint_restore **r)
{
    const struct checkpoint_restore_query q = {.folder = folder};
    return checkpoint_restore_open(&q, r);
}

/* Reads keys and steps alone, or with values. */
static void assert_parts(const struct checkpoint_restore *r, int table, int bucket,
                         const struct rows *want, bool has_values)
{
    struct checkpoint_bucket got;
    int64_t version;
    size_t n = (size_t)want->n, n_floats = n * (size_t)chunks->tables[table].dim;
    assert_int_equal(checkpoint_restore_bucket_rows(r, table, bucket, &version), want->n);
    assert_int_equal(version, table == 0 && bucket == 0 ? STEP - 1 : STEP);
    assert_int_equal(checkpoint_restore_bucket_read(r, table, bucket, has_values, &got), ST_OK);
    assert_int_equal(got.version, version);
    assert_int_equal(got.n, want->n);
    assert_memory_equal(got.keys, want->keys, n * sizeof *want->keys);
    assert_memory_equal(got.steps, want->steps, n * sizeof *want->steps);
    if (has_values)
        assert_memory_equal(got.values, want->values, n_floats * sizeof(float));
    assert_int_equal(got.n_pending, 0);
    checkpoint_bucket_free(&got);
}

static void assert_bucket(const struct checkpoint_restore *r, int table, int bucket)
{
    struct checkpoint_bucket got;
    struct rows want;
    const struct net_table *t = &chunks->tables[table];
    int slots = slot_floats[table];
    make_rows(t, table, bucket, &want);
    assert_true(checkpoint_restore_holds_bucket(r, table, bucket));
    assert_parts(r, table, bucket, &want, false);
    assert_parts(r, table, bucket, &want, true);
    assert_int_equal(checkpoint_restore_bucket(r, table, bucket, slots, &got), ST_OK);
    assert_int_equal(got.version, table == 0 && bucket == 0 ? STEP - 1 : STEP);
    assert_int_equal(got.n, want.n);
    size_t n = (size_t)want.n;
    assert_memory_equal(got.keys, want.keys, n * sizeof *want.keys);
    assert_memory_equal(got.steps, want.steps, n * sizeof *want.steps);
    assert_memory_equal(got.values, want.values, n * (size_t)t->dim * sizeof(float));
    assert_memory_equal(got.slots, want.slots, n * (size_t)slots * sizeof(float));
    assert_int_equal(got.n_pending, want.n_pending);
    size_t bytes = (size_t)want.n_pending * sizeof *want.pending_keys;
    assert_memory_equal(got.pending_keys, want.pending_keys, bytes);
    assert_memory_equal(got.pending_steps, want.pending_steps, bytes);
    assert_memory_equal(got.pending_counts, want.pending_counts, bytes);
    checkpoint_bucket_free(&got);
}

/* Any number of servers reads the buckets that another number has written, whatever the size of
 * the dense chunks. */
static void buckets_keep_their_bits(void **state)
{
    for (int n_wrote = 1; n_wrote <= MAX_SERVERS; n_wrote++) {
        struct checkpoint_restore *r;
        int n_rows = 0, n_pending = 0;
        write_checkpoint(n_wrote, NULL);
        assert_int_equal(open_it(&r), ST_OK);
        const struct chunks *then = checkpoint_restore_manifest(r)->chunks;
        assert_int_equal(tables_compare(then, chunks, why, sizeof why), ST_OK);
        for (int i = 0; i < N_TABLES; i++)
            for (int b = 0; b < chunks->tables[i].n_buckets; b++)
                assert_bucket(r, i, b);
        float values[3000];
        int64_t version;
        assert_int_equal(checkpoint_restore_read(r, 0, 3000, values, NULL, &version), ST_OK);
        assert_memory_equal(values, dense, sizeof dense);
        for (int b = 0; b < 8; b++) {
            struct checkpoint_bucket got;
            assert_int_equal(checkpoint_restore_bucket(r, 0, b, 6, &got), ST_OK);
            n_rows += (int)got.n;
            n_pending += (int)got.n_pending;
            checkpoint_bucket_free(&got);
        }
        assert_int_equal(n_rows, 150);
        assert_int_equal(n_pending, 80);
        checkpoint_restore_close(r);
        folder_rig_empty(folder);
    }
}

static void other_slots_are_refused(void **state)
{
    struct checkpoint_restore *r;
    struct checkpoint_bucket got;
    write_checkpoint(2, NULL);
    assert_int_equal(open_it(&r), ST_OK);
    assert_int_equal(CAPTURE(checkpoint_restore_bucket(r, 0, 2, 3, &got)), ST_CORRUPT);
    assert_non_null(strstr(capture_text, "table 'ads' was written with another optimizer: a row "
                                         "has 6 floats of its state, not 3"));
    checkpoint_restore_close(r);
}

static void bad_rows_are_refused(void **state)
{
    static const struct {
        int fault;
        const char *text;
    } bad[] = {{SWAPPED, "is not above the key before it"},
               {TWICE, "is not above the key before it"},
               {FOREIGN, "belongs to another bucket"},
               {LATE, "was changed after the version of the bucket"},
               {PENDING_TWICE, "is not above the key before it"},
               {PENDING_FOREIGN, "belongs to another bucket"},
               {PENDING_LATE, "was changed after the version of the bucket"},
               {PENDING_WITH_ROW, "is pending, but has a row"},
               {COUNT_OF_ZERO, "is pending, but its count is not between 1 and admit_after - 1"},
               {COUNT_OF_A_ROW, "is pending, but its count is not between 1 and admit_after - 1"}};
    spoil.bucket = 5;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct checkpoint_restore *r;
        struct checkpoint_bucket got;
        spoil.fault = bad[i].fault;
        write_checkpoint(2, NULL);
        assert_int_equal(open_it(&r), ST_OK);
        assert_bucket(r, 0, 4);
        assert_int_equal(CAPTURE(checkpoint_restore_bucket(r, 0, 5, 6, &got)), ST_CORRUPT);
        assert_non_null(strstr(capture_text, "table 'ads', bucket 5: key "));
        assert_non_null(strstr(capture_text, bad[i].text));
        checkpoint_restore_close(r);
        folder_rig_empty(folder);
    }
}

/* Opens the folder, which has no usable checkpoint, for this reason. */
static void assert_refused(const char *text)
{
    struct checkpoint_restore *r = NULL;
    assert_int_equal(CAPTURE(open_it(&r)), ST_CORRUPT);
    if (!strstr(capture_text, text))
        fail_msg("no '%s' in: %s", text, capture_text);
    folder_rig_empty(folder);
}

static void buckets_occur_exactly_once(void **state)
{
    int *once = malloc((size_t)chunks->n_chunks * sizeof *once);
    int *twice = malloc((size_t)chunks->n_chunks * sizeof *twice);
    const int *const shards[] = {once, twice};
    assert_int_equal(chunks_shard(chunks, 2, once), ST_OK);
    int other = chunks->tables[1].first_chunk;
    once[other] = 0;
    memcpy(twice, once, (size_t)chunks->n_chunks * sizeof *twice);
    twice[other] = 1; /* both files have the bucket */
    write_checkpoint(2, shards);
    assert_refused("w keys [0/2] is duplicated");
    once[other] = 1; /* no file has it */
    twice[other] = 0;
    write_checkpoint(2, shards);
    assert_refused("w lacks a part of a bucket");
    free(once);
    free(twice);
}

/* Opens the file of a checkpoint of one server. */
static FILE *open_only(void)
{
    char name[MANIFEST_NAME_BYTES];
    checkpoint_manifest_file_name((struct checkpoint_id){1, STEP}, 0, 1, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    return file;
}

/* Rewrites the header of the only file, whose old text is replaced by a new one of the same
 * length. The manifest gets the new checksum. */
static void edit_header(const char *old, const char *text)
{
    struct safetensors_written is = {0};
    struct safetensors_file *f;
    FILE *file = open_only();
    static char data[1 << 16];
    size_t n = fread(data, 1, sizeof data, file);
    char *at = memmem(data, n, old, strlen(old));
    assert_non_null(at);
    memcpy(at, text, strlen(text));
    rewind(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    fclose(file);
    if (safetensors_open_any(path, &f, why) == ST_OK) {
        assert_int_equal(safetensors_measure(f, &is, why), ST_OK);
        safetensors_close(f);
    }
    const struct checkpoint_manifest m = {
        .step = STEP, .generation = 1, .job = job, .chunks = chunks, .n_files = 1, .files = &is};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
}

static void false_tensors_are_refused(void **state)
{
    static const struct {
        const char *old, *text, *why;
    } edits[] = {
        {"\"ads keys [3/8]\"", "\"ads kegs [3/8]\"", "ads kegs [3/8] is not a tensor of this job"},
        {"\"ads keys [3/8]\"", "\"adz keys [3/8]\"", "adz keys [3/8] is not a tensor of this job"},
        {"\"ads keys [3/8]\"", "\"ads keys [8/8]\"", "ads keys [8/8] is not a tensor of this job"},
        {"\"ads keys [3/8]\"", "\"ads keys [3/4]\"", "ads keys [3/4] is not a tensor of this job"},
        {"\"ads slot 1 [3/8]\"", "\"ads slot 2 [3/8]\"", "is not a tensor of this job"},
        {"\"ads pending keys [3/8]\"", "\"ads pending kegs [3/8]\"",
         "ads pending kegs [3/8] is not a tensor of this job"},
        {"\"ads rows [3/8]\":{\"dtype\":\"BF16\"", "\"ads rows [3/8]\":{\"dtype\":\"F16\" ",
         "has another dtype or shape"},
        {"\"w slot 0 [0/2]\":{\"dtype\":\"F32\"", "\"w slot 1 [0/2]\":{\"dtype\":\"F32\"",
         "has another dtype or shape"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char old[96], text[96];
        write_checkpoint(1, NULL);
        /* the key of the checksum keeps its name's length, and changes, too */
        snprintf(old, sizeof old, "crc32c %.*s", (int)strcspn(edits[i].old + 1, "\""),
                 edits[i].old + 1);
        snprintf(text, sizeof text, "crc32c %.*s", (int)strcspn(edits[i].text + 1, "\""),
                 edits[i].text + 1);
        edit_header(old, text);
        edit_header(edits[i].old, edits[i].text);
        assert_refused(edits[i].why);
    }
}

/* Writes a checkpoint whose manifest has a table with another value of a number. */
static void write_with(int table, int64_t max_rows, int64_t admit_after)
{
    struct chunks *before = chunks, *other;
    write_checkpoint(1, NULL);
    make_chunks(4096, "ads", &other);
    other->tables[table].max_rows = max_rows;
    other->tables[table].admit_after = admit_after;
    chunks = other;
    edit_header("weir checkpoint", "weir checkpoint");
    chunks = before;
    chunks_destroy(other);
}

/* The manifest states a bound that is lower than the number of rows in some buckets. */
static void bound_of_rows_holds(void **state)
{
    write_with(0, 1, 3);
    assert_refused("has more rows than a bucket of this table may have");
}

/* All rows of each bucket are within the bound, but not together with its pending keys. */
static void bound_counts_pending_keys(void **state)
{
    struct net_table t = chunks->tables[0];
    struct rows rows;
    int64_t most_rows = 0, most = 0;
    for (int b = 0; b < t.n_buckets; b++) {
        make_rows(&t, 0, b, &rows);
        most_rows = rows.n > most_rows ? rows.n : most_rows;
        most = rows.n + rows.n_pending > most ? rows.n + rows.n_pending : most;
    }
    t.max_rows = 1;
    while (tables_share(&t, t.max_rows) < most_rows)
        t.max_rows++;
    assert_true(tables_share(&t, t.max_rows) < most);
    write_with(0, t.max_rows, 3);
    assert_refused("ads has more rows and pending keys than a bucket of this table may have");
}

/* A table has tensors of pending keys if and only if admit_after is above 1. */
static void pending_keys_follow_the_settings(void **state)
{
    write_with(0, 200, 1);
    assert_refused("has pending keys, but each key of this job's table gets a row at once");
    write_with(2, 10, 3);
    assert_refused("a/b[1/2] lacks a part of a bucket");
}

static void altered_row_is_found(void **state)
{
    struct checkpoint_restore *r;
    struct checkpoint_bucket got;
    write_checkpoint(1, NULL);
    assert_int_equal(open_it(&r), ST_OK);
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(r);
    FILE *f = open_only(); /* the last number is a value of the last table */
    assert_int_equal(fseek(f, (long)m->files[0].bytes - 4, SEEK_SET), 0);
    fputc('x', f);
    fclose(f);
    assert_bucket(r, 0, 7);
    assert_int_equal(CAPTURE(checkpoint_restore_bucket(r, 2, 0, 0, &got)), ST_CORRUPT);
    assert_non_null(
        strstr(capture_text, "tensor 'a/b[1/2] rows [0/1]': does not match its checksum"));
    checkpoint_restore_close(r);
}

static void rows_that_diverged_are_not_written(void **state)
{
    struct safetensors_written w;
    int shard[64] = {0};
    spoil.bucket = 1;
    spoil.fault = NAN_VALUE;
    assert_int_equal(CAPTURE(write_file(0, 1, shard, &w)), ST_INVALID);
    assert_non_null(strstr(capture_text, "step 7: table 'ads' is not finite"));
    spoil.fault = NAN_SLOT;
    assert_int_equal(CAPTURE(write_file(0, 1, shard, &w)), ST_INVALID);
    assert_non_null(strstr(capture_text, "the optimizer's state of table 'ads'"));
    assert_int_equal(rmdir(folder), 0); /* no file, not even a temporary one */
    folder_rig_new(folder);
}

/* A server's own part has only its buckets. */
static void part_holds_its_buckets(void **state)
{
    struct checkpoint_restore *r;
    struct checkpoint_bucket got;
    struct safetensors_written w;
    int *shard = malloc((size_t)chunks->n_chunks * sizeof *shard);
    assert_int_equal(chunks_shard(chunks, 2, shard), ST_OK);
    assert_int_equal(write_file(1, 2, shard, &w), ST_OK);
    const struct checkpoint_id id = {1, STEP};
    assert_int_equal(checkpoint_restore_open_own(folder, id, &job, chunks, &r), ST_OK);
    for (int i = 0; i < N_TABLES; i++)
        for (int b = 0; b < chunks->tables[i].n_buckets; b++) {
            bool holds = shard[chunks->tables[i].first_chunk + b] == 1;
            assert_int_equal(checkpoint_restore_holds_bucket(r, i, b), holds);
            if (holds)
                assert_bucket(r, i, b);
            else
                assert_int_equal(CAPTURE(checkpoint_restore_bucket(r, i, b, slot_floats[i], &got)),
                                 ST_NOT_FOUND);
        }
    checkpoint_restore_close(r);
    free(shard);
}

/* A checkpoint of a job with other tables has another digest. */
static void other_tables_are_another_job(void **state)
{
    struct chunks *other;
    char here[65], there[65];
    make_chunks(4096, "adz", &other);
    assert_int_equal(checkpoint_manifest_digest(&job, chunks, here), ST_OK);
    assert_int_equal(checkpoint_manifest_digest(&job, other, there), ST_OK);
    assert_string_not_equal(here, there);
    chunks_destroy(other);
}

/* All settings that change the bits of rows are in the digest. */
static void settings_of_a_table_change_the_digest(void **state)
{
    struct chunks *other;
    char here[65], there[65];
    assert_int_equal(checkpoint_manifest_digest(&job, chunks, here), ST_OK);
#define CHANGES(field, value)                                                                      \
    make_chunks(4096, "ads", &other);                                                              \
    other->tables[0].field = value;                                                                \
    assert_int_equal(checkpoint_manifest_digest(&job, other, there), ST_OK);                       \
    assert_string_not_equal(here, there);                                                          \
    chunks_destroy(other)
    CHANGES(dim, 4);
    CHANGES(n_buckets, 4);
    CHANGES(optimizer.kind, OPTIM_ROWS_FTRL);
    CHANGES(optimizer.common.learning_rate, 2);
    CHANGES(optimizer.common.clip_value, 2);
    CHANGES(optimizer.ftrl_beta, 2);
    CHANGES(optimizer.l1, 2);
    CHANGES(optimizer.l2, 2);
    CHANGES(init, ROW_INIT_UNIFORM);
    CHANGES(init_scale, 2);
    CHANGES(admit_after, 9);
    CHANGES(evict_after, 9);
    CHANGES(when_full, ROW_FULL_EVICT);
    CHANGES(row_dtype, DTYPE_F32);
#undef CHANGES
}

/* A job that was full resumes with a higher bound. */
static void bounds_of_a_table_may_change(void **state)
{
    struct chunks *other;
    char here[65], there[65];
    make_chunks(4096, "ads", &other);
    other->tables[0].max_rows *= 2;
    other->tables[0].step_rows /= 2;
    assert_int_equal(checkpoint_manifest_digest(&job, chunks, here), ST_OK);
    assert_int_equal(checkpoint_manifest_digest(&job, other, there), ST_OK);
    assert_string_equal(here, there);
    chunks_destroy(other);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        if (chdir(argv[2]) != 0)
            return 1;
        snprintf(folder, sizeof folder, ".");
        set_job();
        write_checkpoint(2, NULL);
        chunks_destroy(chunks);
        return 0;
    }
    return RUN_EACH(
        setup, teardown, buckets_keep_their_bits, other_slots_are_refused, bad_rows_are_refused,
        buckets_occur_exactly_once, false_tensors_are_refused, bound_of_rows_holds,
        bound_counts_pending_keys, pending_keys_follow_the_settings, altered_row_is_found,
        rows_that_diverged_are_not_written, part_holds_its_buckets, other_tables_are_another_job,
        settings_of_a_table_change_the_digest, bounds_of_a_table_may_change);
}
