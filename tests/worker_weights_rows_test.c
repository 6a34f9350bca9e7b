/* tests/worker_weights_rows_test.c - rows of a checkpoint for the keys of a data set: only these
 * rows are kept, keys without a row have the initial values of the servers, and a step of an
 * evaluation reads them. Files without the tables of the model are refused. */
#include "base/log.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/tables_file.h"
#include "kernels/vector/row_init.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/table_rig.h"
#include "worker/data/dataset_keys.h"
#include "worker/train/table_step.h"
#include "worker/weights/weights_rows.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP = 9, N_TABLES = 2, DENSE = 50, MOST_DIM = 4, MOST_SERVERS = 2 };
/* Table 0 has a row for each even key below this. */
enum { END_OF_KEYS = 200000 };

static char folder[FOLDER_RIG_BYTES], path[FOLDER_RIG_BYTES + MANIFEST_NAME_BYTES];
static struct net_job job;
static struct chunks *chunks;
static float dense[DENSE];

/* Makes the chunks of a model with these tables. */
static struct chunks *make_chunks(const char *first, int dim, int n_tables)
{
    struct chunks *c;
    const struct net_param param = {.name = "out/weights", .shape = {1, {DENSE}}};
    struct net_table tables[N_TABLES] = {
        {.name = first, .dim = dim, .n_buckets = 2, .max_rows = END_OF_KEYS, .step_rows = 100},
        {.name = "wide", .dim = 1, .n_buckets = 8, .max_rows = 1000, .step_rows = 100},
    };
    tables[0].init = ROW_INIT_NORMAL;
    tables[0].init_scale = 0.5f;
    for (int i = 0; i < N_TABLES; i++)
        tables[i].optimizer = (struct optim_rows_config)TABLE_RIG_SGD;
    assert_int_equal(chunks_create(&param, 1, 4096, &c), ST_OK);
    assert_int_equal(tables_add(c, tables, n_tables), ST_OK);
    return c;
}

static int setup(void **state)
{
    folder_rig_new(folder);
    job = (struct net_job){.n_workers = 1, .aggregate = 1, .train_steps = 100, .seed = 21};
    optim_defaults(OPTIM_SGD, &job.optim);
    for (int i = 0; i < DENSE; i++)
        dense[i] = (float)i;
    chunks = make_chunks("factors", 3, N_TABLES);
    return 0;
}

static int teardown(void **state)
{
    chunks_destroy(chunks);
    return folder_rig_delete(folder);
}

/* Returns true if the table of the checkpoint has a row of this key. */
static bool has_row(int table, uint64_t key)
{
    uint64_t low = key & ~(UINT64_C(1) << 63);
    return table == 0 ? low < END_OF_KEYS && low % 2 == 0 : key < 100;
}

static float value_of(int table, uint64_t key, int i)
{
    return (float)(key % 1000003) + (float)(100 * table + i);
}

/* Rows of one server. */
struct server {
    const struct chunks *chunks;
    int bucket[64], n;
    uint64_t *keys, *steps;
    float *values;
};

static void add_key(struct server *s, int table, int bucket, uint64_t key, int64_t *n)
{
    const struct net_table *t = &s->chunks->tables[table];
    if (!has_row(table, key) || tables_bucket(t, key) != bucket)
        return;
    s->keys[*n] = key;
    s->steps[*n] = STEP - key % 3;
    for (int d = 0; d < t->dim; d++)
        s->values[*n * t->dim + d] = value_of(table, key, d);
    ++*n;
}

static enum status copy(void *ctx, int i, struct checkpoint_rows *out)
{
    struct server *s = ctx;
    const struct net_table *t = tables_of(s->chunks, s->bucket[i]);
    int table = (int)(t - s->chunks->tables), bucket = s->bucket[i] - t->first_chunk;
    int64_t n = 0;
    for (uint64_t key = 0; key < END_OF_KEYS; key++)
        add_key(s, table, bucket, key, &n);
    for (uint64_t key = 0; key < END_OF_KEYS; key++)
        add_key(s, table, bucket, key | UINT64_C(1) << 63, &n);
    *out =
        (struct checkpoint_rows){.n = n, .keys = s->keys, .steps = s->steps, .values = s->values};
    return ST_OK;
}

static void write_file(int server, int n_servers, const int *shard, struct safetensors_written *out)
{
    struct checkpoint_shard_chunk list[4];
    struct server s = {.chunks = chunks,
                       .keys = malloc(END_OF_KEYS * sizeof *s.keys),
                       .steps = malloc(END_OF_KEYS * sizeof *s.steps),
                       .values = malloc(END_OF_KEYS * MOST_DIM * sizeof *s.values)};
    static const int slot_floats[N_TABLES];
    int64_t version[64];
    int n = 0;
    assert_true(s.keys && s.steps && s.values);
    for (int i = 0; i < chunks->n_chunks; i++) {
        if (shard[i] != server)
            continue;
        if (i < chunks->n_dense)
            list[n++] = (struct checkpoint_shard_chunk){
                .chunk = i, .version = STEP, .value = dense + chunks->chunks[i].first};
        else
            s.bucket[s.n++] = i;
    }
    for (int i = 0; i < s.n; i++)
        version[i] = STEP;
    const struct checkpoint_tables tables = {s.bucket, s.n, version, slot_floats, copy, &s};
    const struct checkpoint_shard_file file = {.folder = folder,
                                               .step = STEP,
                                               .generation = 1,
                                               .server = server,
                                               .n_servers = n_servers,
                                               .job = &job,
                                               .chunks = chunks,
                                               .tables = chunks->n_tables > 0 ? &tables : NULL};
    assert_int_equal(checkpoint_shard_file_write(&file, list, n, out), ST_OK);
    free(s.keys);
    free(s.steps);
    free(s.values);
}

/* Writes a checkpoint of n servers. apart: the last server has a folder of its own, and its file is
 * not in `folder`. */
static void write_files(int n, bool apart)
{
    struct safetensors_written files[MOST_SERVERS];
    char folders[MOST_SERVERS][FOLDER_ID_BYTES] = {""}, name[MANIFEST_NAME_BYTES];
    int *shard = malloc((size_t)chunks->n_chunks * sizeof *shard);
    assert_int_equal(chunks_shard(chunks, n, shard), ST_OK);
    for (int i = 0; i < n; i++)
        write_file(i, n, shard, &files[i]);
    const struct checkpoint_manifest m = {.step = STEP,
                                          .generation = 1,
                                          .job = job,
                                          .chunks = chunks,
                                          .n_files = n,
                                          .files = files,
                                          .folder = apart ? folders : NULL,
                                          .shard = shard,
                                          .progress = {.known = true,
                                                       .position = 70,
                                                       .n_members = 1,
                                                       .member = (int[]){0},
                                                       .servers = {1, (char *[]){"a:1"}}}};
    snprintf(folders[n - 1], FOLDER_ID_BYTES, "%032x", 17);
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    free(shard);
    checkpoint_manifest_file_name((struct checkpoint_id){1, STEP}, n - 1, n, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (apart)
        assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s", folder);
}

static void write_checkpoint(int n)
{
    write_files(n, false);
}

/* Reads the rows of the set from `path` for a model with these chunks. */
static enum status read_rows(const struct chunks *model, const struct dataset *d, const int *input,
                             struct weights_rows **out)
{
    const struct weights_request q = {"predict", path, NULL, model, true, NULL};
    struct weights_source *source = NULL;
    enum status st = weights_source_open(q.flag, q.path, NULL, &source);
    if (st == ST_OK)
        st = weights_rows_read(&q, source, d, input, out);
    weights_source_close(source);
    return st;
}

static void assert_source(const struct row_source *s, int table)
{
    const struct net_table *t = &chunks->tables[table];
    const struct row_init_config init = {t->init, t->init_scale, row_init_key(job.seed, t->name)};
    size_t dim = (size_t)t->dim;
    for (size_t i = 0; i < s->n; i++) {
        float want[MOST_DIM];
        if (has_row(table, s->keys[i]))
            for (int d = 0; d < t->dim; d++)
                want[d] = value_of(table, s->keys[i], d);
        else
            row_init_values(&init, s->keys[i], dim, want);
        assert_memory_equal(s->rows + i * dim, want, dim * sizeof *want);
        assert_true(i == 0 || s->keys[i] > s->keys[i - 1]);
    }
}

/* Two inputs: 0 has a key in each cell, 1 has any number of keys in a cell. */
static const uint64_t of_first[] = {4, 5, 1000, 4, UINT64_C(1) << 63 | 8, 7};
static const uint64_t of_second[] = {99, 98, 99, 500};
static const uint32_t second_cells[] = {0, 2, 2, 4};
static const struct dataset_keys keys = {
    2, {{.n_columns = 2, .keys = of_first}, {1, of_second, second_cells}}};

/* The rows that are kept are those of the different keys: 5 and 3, although table 0 has 200,000
 * rows in 2 buckets. */
static void only_rows_of_the_samples_are_kept(void **state)
{
    static const int input[] = {0, 1};
    const struct dataset d = {.n = 3, .keys = &keys};
    struct weights_rows *r;
    for (int n = 1; n <= MOST_SERVERS; n++) {
        write_checkpoint(n);
        assert_int_equal(CAPTURE(read_rows(chunks, &d, input, &r)), ST_OK);
        const struct row_source *s = weights_rows_sources(r);
        assert_int_equal(s[0].n, 5);
        assert_int_equal(s[1].n, 3);
        assert_source(&s[0], 0);
        assert_source(&s[1], 1);
        assert_non_null(strstr(capture_text, "table 'factors': 3 of the 5 keys of the samples"));
        assert_non_null(strstr(capture_text, "table 'wide': 2 of the 3 keys of the samples"));
        weights_rows_free(r);
        folder_rig_empty(folder);
    }
}

/* Samples of a subset, of which the first has the row 2; both tables read one input. */
static void subsets_have_their_own_keys(void **state)
{
    static const int input[] = {1, 1};
    static const uint32_t rows[] = {2, 1};
    const struct dataset d = {.n = 2, .rows = rows, .keys = &keys};
    struct weights_rows *r;
    write_checkpoint(1);
    assert_int_equal(CAPTURE(read_rows(chunks, &d, input, &r)), ST_OK);
    for (int i = 0; i < N_TABLES; i++) {
        const struct row_source *s = &weights_rows_sources(r)[i];
        assert_int_equal(s->n, 2);
        assert_int_equal(s->keys[0], 99);
        assert_int_equal(s->keys[1], 500);
        assert_source(s, i);
    }
    weights_rows_free(r);
}

/* 600,000 keys, each of 150,000 four times: the list is sorted more than once before its end. */
static void many_keys_are_read_once_each(void **state)
{
    enum { DIFFERENT = 150000, N = 4 * DIFFERENT };
    static const int input[] = {0, 0};
    uint64_t *list = malloc(N * sizeof *list);
    assert_non_null(list);
    for (uint64_t i = 0; i < N; i++)
        list[i] = i * 7919 % DIFFERENT;
    const struct dataset_keys many = {1, {{.n_columns = 3, .keys = list}}};
    const struct dataset d = {.n = N / 3, .keys = &many};
    struct weights_rows *r;
    write_checkpoint(1);
    assert_int_equal(CAPTURE(read_rows(chunks, &d, input, &r)), ST_OK);
    assert_int_equal(weights_rows_sources(r)[0].n, DIFFERENT);
    assert_source(&weights_rows_sources(r)[0], 0);
    assert_non_null(strstr(capture_text, ": 75000 of the 150000 keys of the samples have rows"));
    weights_rows_free(r);
    free(list);
}

/* An evaluation computes bags of these rows without servers. */
static void steps_read_the_rows(void **state)
{
    static const int input[] = {1, 1};
    const struct dataset d = {.n = 3, .keys = &keys};
    const struct bags bags = {3, 4, of_second, second_cells};
    struct weights_rows *r;
    struct table_step *s;
    const float *out;
    write_checkpoint(1);
    assert_int_equal(CAPTURE(read_rows(chunks, &d, input, &r)), ST_OK);
    const struct table_reader reader = weights_rows_reader(r);
    const struct table_step_config cfg = {.reader = &reader,
                                          .index = 1,
                                          .table = &chunks->tables[1],
                                          .n_towers = 1,
                                          .reads_only = true};
    assert_int_equal(table_step_create(&cfg, &s), ST_OK);
    for (int i = 0; i < 2; i++) { /* the second batch has other keys than the first */
        const struct bags one = {2, 2, of_second + 2, (const uint32_t[]){0, 1, 2}};
        const struct crew crew = {0};
        table_step_set(s, 0, i == 0 ? &bags : &one);
        assert_int_equal(table_step_read(s, 0), ST_OK);
        assert_int_equal(table_step_output(s, 0, &crew, &out), ST_OK);
        if (i == 0)
            assert_true(out[0] == value_of(1, 99, 0) + value_of(1, 98, 0) && out[1] == 0 &&
                        out[2] == value_of(1, 99, 0));
        else
            assert_true(out[0] == value_of(1, 99, 0) && out[1] == 0);
    }
    table_step_destroy(s);
    weights_rows_free(r);
}

/* If no key has a row, the columns of the keys are probably wrong. */
static void keys_without_rows_are_warned_of(void **state)
{
    static const uint64_t odd[] = {1, 3};
    static const int input[] = {0, 0};
    const struct dataset_keys none = {1, {{.n_columns = 1, .keys = odd}}};
    const struct dataset d = {.n = 2, .keys = &none};
    struct weights_rows *r;
    write_checkpoint(1);
    assert_int_equal(CAPTURE(read_rows(chunks, &d, input, &r)), ST_OK);
    assert_non_null(
        strstr(capture_text, "table 'factors': none of the 2 keys of the samples has a row"));
    assert_non_null(strstr(capture_text, "table 'wide': 2 of the 2 keys of the samples"));
    assert_source(&weights_rows_sources(r)[0], 0);
    weights_rows_free(r);
}

static void assert_captured(const char *sentence)
{
    if (!strstr(capture_text, sentence))
        fail_msg("'%s' lacks '%s'", capture_text, sentence);
}

static void assert_refused(const struct chunks *model, enum status want, const char *sentence)
{
    static const int input[] = {0, 1};
    const struct dataset d = {.n = 3, .keys = &keys};
    struct weights_rows *r = NULL;
    assert_int_equal(CAPTURE(read_rows(model, &d, input, &r)), want);
    assert_null(r);
    assert_non_null(strstr(capture_text, path));
    assert_captured(sentence);
}

static void other_files_are_refused(void **state)
{
    const struct safetensors_tensor dense_one = {"out/weights", {1, {DENSE}}, .data = dense};
    const struct safetensors_content content = {&dense_one, 1, NULL, 0};
    struct chunks *other = make_chunks("names", 3, N_TABLES);
    struct chunks *wider = make_chunks("factors", 4, N_TABLES);
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    assert_int_equal(safetensors_write(path, &content, NULL), ST_OK);
    assert_refused(chunks, ST_UNSUPPORTED,
                   "the rows of table 'factors' are read only from a checkpoint of the servers");
    write_checkpoint(1);
    assert_refused(other, ST_MISMATCH,
                   "is of another model: it has 'factors', 'wide', but no table 'names'");
    assert_refused(
        wider, ST_MISMATCH,
        "a row of table 'factors' has 3 numbers, but layer 'factors' of the model has 4");
    chunks_destroy(other);
    chunks_destroy(wider);
    folder_rig_empty(folder);
    write_files(MOST_SERVERS, true);
    assert_refused(chunks, ST_NOT_FOUND,
                   "the checkpoint is in several servers' own folders; copy all of its files");
}

static void checkpoints_without_tables_are_refused(void **state)
{
    struct chunks *with = chunks;
    chunks = make_chunks("factors", 3, 0);
    write_checkpoint(1);
    assert_refused(with, ST_MISMATCH, "it has no table, but no table 'factors'");
    chunks_destroy(chunks);
    chunks = with;
}

/* Parameters of a checkpoint with a table that no layer reads are those of another model. */
static void tables_of_other_models_are_refused(void **state)
{
    struct chunks *model = make_chunks("factors", 3, 1);
    float flat[DENSE];
    uint8_t given[1];
    struct weights_result result;
    write_checkpoint(1);
    struct weights_request q = {"evaluate", folder, NULL, model, true, NULL};
    assert_int_equal(CAPTURE(weights_read(&q, flat, given, &result)), ST_MISMATCH);
    assert_captured("no layer reads its table 'wide'; set --model");
    q.flag = "init";
    q.whole = false;
    assert_int_equal(weights_read(&q, flat, given, &result), ST_OK);
    q.chunks = chunks;
    q.whole = true;
    assert_int_equal(weights_read(&q, flat, given, &result), ST_OK);
    assert_memory_equal(flat, dense, sizeof dense);
    chunks_destroy(model);
}

int main(void)
{
    return RUN_EACH(setup, teardown, only_rows_of_the_samples_are_kept, subsets_have_their_own_keys,
                    many_keys_are_read_once_each, steps_read_the_rows,
                    keys_without_rows_are_warned_of, other_files_are_refused,
                    checkpoints_without_tables_are_refused, tables_of_other_models_are_refused);
}
