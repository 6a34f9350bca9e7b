/* tests/checkpoint_manifest_test.c - a job's settings in a checkpoint's manifest: a reader gets the
 * same values, and refuses invalid ones. */
#include "checkpoint/manifest.h"
#include "net/wire/tables.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/table_rig.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[FOLDER_RIG_BYTES], path[64], why[MANIFEST_WHY_BYTES];
static struct chunks *chunks;
static struct net_job job;

static int setup(void **state)
{
    const struct net_param param = {.name = "w", .shape = {2, {64, 16}}};
    folder_rig_new(folder);
    snprintf(path, sizeof path, "%s/weir-3.json", folder);
    job = (struct net_job){.n_workers = 2, .aggregate = 2, .train_steps = 100, .seed = 1};
    optim_defaults(OPTIM_SGD, &job.optim);
    return chunks_create(&param, 1, 8192, &chunks) != ST_OK;
}

static int teardown(void **state)
{
    chunks_destroy(chunks);
    unlink(path);
    return rmdir(folder);
}

/* Writes a manifest and reads the job from it. ST_CORRUPT: the reader refuses it. */
static enum status through(struct net_job *out)
{
    struct safetensors_written file = {0};
    struct checkpoint_manifest *read = NULL;
    const struct checkpoint_manifest m = {
        .step = 3, .generation = 1, .job = job, .chunks = chunks, .n_files = 1, .files = &file};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    enum status st = checkpoint_manifest_read(path, &read, why);
    if (st == ST_OK)
        *out = read->job;
    checkpoint_manifest_free(read);
    return st;
}

/* Returns an optimizer with settings that all differ from the defaults. */
static struct optim_rows_config unusual_optimizer(void)
{
    struct optim_rows_config o = {
        .kind = OPTIM_ROWS_ADAM, .ftrl_beta = 3, .l1 = 0.25f, .l2 = 0.35f};
    o.common = (struct optim_config){.kind = OPTIM_ADAM,
                                     .learning_rate = 0.1f,
                                     .momentum = 0.2f,
                                     .decay = 0.3f,
                                     .beta1 = 0.8f,
                                     .beta2 = 0.7f,
                                     .epsilon = 0.001f,
                                     .clip_value = 2,
                                     .schedule = SCHEDULE_STEP,
                                     .warmup_steps = 5,
                                     .lr_decay = 0.7f,
                                     .lr_decay_steps = 6,
                                     .n_boundaries = 2,
                                     .boundary = {10, 20}};
    return o;
}

/* A setting that no table may have makes the manifest invalid. */
static void tables_are_kept(void **state)
{
    const struct net_table tables[] = {{.name = "ads",
                                        .dim = 16,
                                        .n_buckets = 4,
                                        .max_rows = INT64_C(1) << 33,
                                        .step_rows = 1000,
                                        .optimizer = unusual_optimizer(),
                                        .init = ROW_INIT_NORMAL,
                                        .init_scale = 0.15f,
                                        .admit_after = 4,
                                        .evict_after = INT64_C(1) << 33,
                                        .when_full = ROW_FULL_EVICT,
                                        .row_dtype = DTYPE_BF16},
                                       {.name = "w",
                                        .dim = 1,
                                        .n_buckets = 1,
                                        .max_rows = 1,
                                        .step_rows = 1,
                                        .optimizer = TABLE_RIG_SGD}};
    struct safetensors_written file = {0};
    struct checkpoint_manifest *read = NULL;
    int shard[8] = {0};
    assert_int_equal(tables_add(chunks, tables, 2), ST_OK);
    assert_int_equal(chunks->n_chunks, chunks->n_dense + 5);
    const struct checkpoint_manifest m = {.step = 3,
                                          .generation = 1,
                                          .job = job,
                                          .chunks = chunks,
                                          .n_files = 1,
                                          .files = &file,
                                          .shard = shard};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    assert_int_equal(checkpoint_manifest_read(path, &read, why), ST_OK);
    assert_int_equal(read->chunks->n_tables, 2);
    assert_int_equal(tables_compare(read->chunks, chunks, why, sizeof why), ST_OK);
    assert_int_equal(read->chunks->tables[1].first_chunk, chunks->n_dense + 4);
    checkpoint_manifest_free(read);
}

/* Writes a manifest with table 0, and reads it. */
static void read_with(const struct net_table *table, enum status expected)
{
    struct safetensors_written file = {0};
    struct checkpoint_manifest *read = NULL;
    struct chunks *c;
    assert_int_equal(chunks_copy(chunks, &c), ST_OK);
    const char *name = c->tables[0].name;
    c->tables[0] = *table;
    c->tables[0].name = name;
    const struct checkpoint_manifest m = {
        .step = 3, .generation = 1, .job = job, .chunks = c, .n_files = 1, .files = &file};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    assert_int_equal(CAPTURE(checkpoint_manifest_read(path, &read, why)), expected);
    checkpoint_manifest_free(read);
    chunks_destroy(c);
}

static void tables_with_bad_settings_are_refused(void **state)
{
    struct net_table good = {.name = "ads",
                             .dim = 16,
                             .n_buckets = 4,
                             .max_rows = 1000,
                             .step_rows = 1000,
                             .optimizer = unusual_optimizer()};
    struct net_table bad;
    assert_int_equal(tables_add(chunks, &good, 1), ST_OK);
    read_with(&good, ST_OK);
#define REFUSED(field, value)                                                                      \
    bad = good;                                                                                    \
    bad.field = value;                                                                             \
    read_with(&bad, ST_CORRUPT)
    REFUSED(dim, TABLES_MAX_DIM + 1);
    REFUSED(n_buckets, 3);
    REFUSED(max_rows, -1);
    REFUSED(step_rows, 0);
    REFUSED(optimizer.kind, OPTIM_ROWS_N_KINDS);
    REFUSED(optimizer.common.schedule, SCHEDULE_N_KINDS);
    REFUSED(optimizer.common.learning_rate, 0);
    REFUSED(optimizer.common.weight_decay, 1);
    REFUSED(optimizer.l1, -1);
    REFUSED(init, ROW_INIT_N_KINDS);
    REFUSED(init_scale, -1);
    REFUSED(admit_after, -1);
    REFUSED(evict_after, -1);
    REFUSED(when_full, ROW_FULL_N_KINDS);
    REFUSED(row_dtype, DTYPE_F16);
#undef REFUSED
}

static void contributions_are_kept(void **state)
{
    static const struct net_contribution bad[] = {{-1, 2, 1}, {0, 2, 1}, {JOB_MAX_WORKERS, 2, 1},
                                                  {4, 0, 1},  {4, 4, 1}, {4, 2, UINT64_MAX}};
    struct safetensors_written file = {0};
    int member[] = {0, 1};
    char *server[] = {"a:1"};
    struct net_contribution by[] = {{0, 3, 1000001}, {4, 2, 0}};
    struct checkpoint_manifest *read = NULL;
    struct checkpoint_manifest m = {
        .step = 3, .generation = 1, .job = job, .chunks = chunks, .n_files = 1, .files = &file};
    m.progress = (struct checkpoint_progress){.known = 1,
                                              .n_members = 2,
                                              .member = member,
                                              .servers = {1, server},
                                              .n_contributed = 2,
                                              .contributed = by,
                                              .parent = {1, INT64_C(1) << 40, UINT32_MAX, 3}};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    assert_int_equal(checkpoint_manifest_read(path, &read, why), ST_OK);
    assert_int_equal(read->progress.n_contributed, 2);
    assert_true(read->progress.parent.known);
    assert_true(read->progress.parent.version == m.progress.parent.version);
    assert_true(read->progress.parent.crc32c == UINT32_MAX);
    assert_int_equal(read->progress.parent.slots_since, 3);
    for (int i = 0; i < 2; i++)
        assert_true(read->progress.contributed[i].member == by[i].member &&
                    read->progress.contributed[i].version == by[i].version &&
                    read->progress.contributed[i].generation == by[i].generation);
    checkpoint_manifest_free(read);
    m.progress.parent.version = -1;
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    assert_int_equal(checkpoint_manifest_read(path, &read, why), ST_CORRUPT);
    m.progress.parent =
        (struct checkpoint_parent_version){1, 1, 1, 4}; /* slots_since is above the step */
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    assert_int_equal(checkpoint_manifest_read(path, &read, why), ST_CORRUPT);
    m.progress.parent.known = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        by[1] = bad[i];
        assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
        assert_int_equal(checkpoint_manifest_read(path, &read, why), ST_CORRUPT);
    }
}

static void rounding_is_kept(void **state)
{
    struct net_job got;
    assert_int_equal(through(&got), ST_OK);
    assert_int_equal(got.rounding.n_bytes, 0);
    uint8_t rounded[11] = {0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1}, back[11];
    net_rounding_set(&job.rounding, rounded, 11);
    assert_int_equal(through(&got), ST_OK);
    assert_int_equal(got.rounding.n_bytes, 2);
    assert_true(net_rounding_get(&got.rounding, back, 11));
    assert_memory_equal(back, rounded, sizeof back);
    assert_false(net_rounding_get(&got.rounding, back, 8)); /* 8 layers: another network */
    job.rounding.n_bytes = 0;
}

static void label_smoothing_is_kept(void **state)
{
    struct net_job got;
    assert_int_equal(through(&got), ST_OK);
    assert_true(got.label_smoothing == 0);
    job.label_smoothing = 0.1f;
    assert_int_equal(through(&got), ST_OK);
    assert_true(got.label_smoothing == 0.1f);
    job.label_smoothing = 1;
    assert_int_equal(through(&got), ST_CORRUPT);
    job.label_smoothing = 0;
}

static void ema_decay_is_kept(void **state)
{
    struct net_job got;
    assert_int_equal(through(&got), ST_OK);
    assert_true(got.optim.ema_decay == 0);
    job.optim.ema_decay = 0.9f;
    assert_int_equal(through(&got), ST_OK);
    assert_true(got.optim.ema_decay == 0.9f);
    job.optim.ema_decay = 1;
    assert_int_equal(through(&got), ST_CORRUPT);
    job.optim.ema_decay = 0;
}

static void epochs_are_kept(void **state)
{
    struct net_job got;
    assert_int_equal(through(&got), ST_OK);
    assert_true(got.epochs == 0);
    job.epochs = 0.25;
    assert_int_equal(through(&got), ST_OK);
    assert_true(got.epochs == 0.25);
    job.epochs = 0;
}

/* Returns the status of reading a manifest whose parameters have these factors, or the factors that
 * the reader found. */
static enum status factors_through(struct chunks *with, struct optim_factors *out)
{
    struct safetensors_written file = {0};
    struct checkpoint_manifest *read = NULL;
    const struct checkpoint_manifest m = {
        .step = 3, .generation = 1, .job = job, .chunks = with, .n_files = 1, .files = &file};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    enum status st = checkpoint_manifest_read(path, &read, why);
    for (int i = 0; st == ST_OK && i < with->n_params; i++)
        out[i] = read->chunks->params[i].factors;
    checkpoint_manifest_free(read);
    return st;
}

static void factors_are_kept(void **state)
{
    static const struct optim_factors want[] = {{1, 1}, {0.1f, 1}, {1, 0}, {1.0f / 3, 3e30f}};
    enum { N = sizeof want / sizeof *want };
    static const char *const names[N] = {"a", "b", "c", "d"};
    struct optim_factors got[N];
    struct net_param p[N];
    struct chunks *with = NULL;
    char digest[2][65];
    for (int i = 0; i < N; i++)
        p[i] = (struct net_param){
            .name = names[i], .shape = {1, {4}}, .has_factors = i > 0, .factors = want[i]};
    assert_int_equal(chunks_create(p, N, 8192, &with), ST_OK);
    assert_int_equal(factors_through(with, got), ST_OK);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(checkpoint_manifest_digest(&job, with, digest[0]), ST_OK);
    with->params[1].factors.rate = 0.2f; /* a job with another factor has another digest */
    assert_int_equal(checkpoint_manifest_digest(&job, with, digest[1]), ST_OK);
    assert_string_not_equal(digest[0], digest[1]);
    with->params[1].factors.rate = -1;
    assert_int_equal(factors_through(with, got), ST_CORRUPT);
    chunks_destroy(with);
}

static void local_steps_are_kept(void **state)
{
    struct net_job got;
    const struct net_job before = job;
    job.local_steps = 50;
    optim_defaults(OPTIM_RMSPROP, &job.local);
    job.local.schedule = SCHEDULE_COSINE;
    assert_int_equal(through(&got), ST_OK);
    assert_int_equal(got.local_steps, 50);
    assert_int_equal(got.local.kind, OPTIM_RMSPROP);
    assert_int_equal(got.local.schedule, SCHEDULE_COSINE);
    assert_int_equal(got.local.total_steps, 50 * job.train_steps);
    assert_int_equal(got.fragments, 0);
    job.fragments = JOB_MAX_FRAGMENTS;
    assert_int_equal(through(&got), ST_OK);
    assert_int_equal(got.fragments, JOB_MAX_FRAGMENTS);
    job.fragments++;
    assert_int_equal(through(&got), ST_CORRUPT);
    job.fragments = 0;
    job.local_steps = JOB_MAX_LOCAL_STEPS + 1;
    assert_int_equal(through(&got), ST_CORRUPT);
    job = before;
}

static void means_and_deviations_are_kept(void **state)
{
    struct net_job got;
    const char *of;
    assert_int_equal(through(&got), ST_OK);
    assert_int_equal(got.normal.n, 0);
    job.normal = (struct job_normal){2, {0.1f, -1e-30f}, {1.0f / 3, 3e38f}};
    assert_int_equal(through(&got), ST_OK);
    assert_int_equal(job_input_normal_differ(&got.normal, &job.normal, &of), -1);
    job.normal.std[1] = -1;
    assert_int_equal(through(&got), ST_CORRUPT);
    assert_string_equal(why, "has an invalid job");
}

static void augmentation_is_kept(void **state)
{
    struct net_job got;
    assert_int_equal(through(&got), ST_OK);
    assert_false(job_input_augments(&got.augment));
    job.augment = (struct job_augment){1, 2, 3, 4};
    assert_int_equal(through(&got), ST_OK);
    char here[JOB_AUGMENT_BYTES], there[JOB_AUGMENT_BYTES];
    assert_string_equal(job_input_augment_text(&got.augment, here),
                        job_input_augment_text(&job.augment, there));
    job.augment.shift = JOB_MAX_AUGMENT + 1;
    assert_int_equal(through(&got), ST_CORRUPT);
    assert_string_equal(why, "has an invalid job");
}

static void kind_of_labels_is_kept(void **state)
{
    struct net_job got;
    job.data = (struct job_data){.n_train = 10, .dim = {1, 2, 3}, .classes = 4};
    for (int kind = 0; kind < JOB_LABELS_N_KINDS; kind++) {
        job.data.labels = (enum job_labels)kind;
        assert_int_equal(through(&got), ST_OK);
        assert_int_equal(got.data.labels, kind);
        assert_int_equal(got.data.classes, 4);
    }
    job.data.n_train = 0;
}

static void names_and_places_are_kept(void **state)
{
    struct net_job got;
    job.data = (struct job_data){.n_train = 10,
                                 .dim = {1, 2, 3},
                                 .classes = 4,
                                 .class_names = 0xfedcba98,
                                 .own = 1,
                                 .standardized = 1,
                                 .files = 1};
    assert_int_equal(through(&got), ST_OK);
    assert_int_equal(got.data.class_names, 0xfedcba98);
    assert_int_equal(got.data.own, 1);
    assert_int_equal(got.data.standardized, 1);
    assert_int_equal(got.data.files, 1);
    job.data.n_train = 0;
}

/* Writes a manifest with a text on its training data, reads the manifest and returns the text in it
 * (malloc'd), or NULL if it has none. */
static char *text_through(const char *text)
{
    struct safetensors_written file = {0};
    struct checkpoint_manifest *read = NULL;
    const struct checkpoint_manifest m = {.step = 3,
                                          .generation = 1,
                                          .job = job,
                                          .chunks = chunks,
                                          .trained_on = (char *)(uintptr_t)text,
                                          .n_files = 1,
                                          .files = &file};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    assert_int_equal(checkpoint_manifest_read(path, &read, why), ST_OK);
    char *told = read->trained_on ? strdup(read->trained_on) : NULL;
    checkpoint_manifest_free(read);
    return told;
}

/* A manifest may have only so many containers as fit its size; brackets inside a text do not count
 * as containers. */
static void text_on_training_data_is_kept(void **state)
{
    static char text[4096] = "{\"columns\":\"a\\\"\\n{b\",\"model_json\":\"";
    memset(text + strlen(text), '[', sizeof text - strlen(text) - 3);
    text[sizeof text - 3] = '"';
    text[sizeof text - 2] = '}';
    char *told = text_through(text);
    assert_string_equal(told, text);
    free(told);
    assert_null(text_through(NULL));
    assert_null(text_through("\xff")); /* not UTF-8: the manifest omits the text and is valid */
}

static void text_longer_than_its_bound_is_refused(void **state)
{
    struct safetensors_written file = {0};
    struct checkpoint_manifest *read = NULL;
    char *text = malloc(JOB_MAX_TRAINED_ON_BYTES + 2);
    assert_non_null(text);
    memset(text, 'x', JOB_MAX_TRAINED_ON_BYTES + 1);
    text[JOB_MAX_TRAINED_ON_BYTES + 1] = 0;
    struct checkpoint_manifest m = {.step = 3,
                                    .generation = 1,
                                    .job = job,
                                    .chunks = chunks,
                                    .trained_on = text,
                                    .n_files = 1,
                                    .files = &file};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    assert_int_equal(checkpoint_manifest_read(path, &read, why), ST_CORRUPT);
    text[JOB_MAX_TRAINED_ON_BYTES] = 0;
    char *told = text_through(text);
    assert_string_equal(told, text);
    free(told);
    free(text);
}

int main(void)
{
    return RUN_EACH(setup, teardown, kind_of_labels_is_kept, names_and_places_are_kept,
                    text_on_training_data_is_kept, text_longer_than_its_bound_is_refused,
                    contributions_are_kept, rounding_is_kept, epochs_are_kept, factors_are_kept,
                    local_steps_are_kept, means_and_deviations_are_kept, augmentation_is_kept,
                    label_smoothing_is_kept, ema_decay_is_kept, tables_are_kept,
                    tables_with_bad_settings_are_refused);
}
