/* tests/ps_match_test.c - checks of a joiner's job: the refusal names the first difference. */
#include "checkpoint/job_check.h"
#include "net/wire/job_steps.h"
#include "net/wire/tables.h"
#include "tests/check.h"
#include "tests/table_rig.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct net_param params[] = {
    {.name = "conv1/weights", .shape = {4, {32, 1, 5, 5}}},
    {.name = "conv1/biases", .shape = {1, {32}}},
};
static struct chunks *chunks;
static struct net_job job;

static int setup(void **state)
{
    job = (struct net_job){.n_workers = 2, .sync_mode = JOB_SYNC, .train_steps = 100, .seed = 1};
    optim_defaults(OPTIM_ADAM, &job.optim);
    return chunks_create(params, 2, 1 << 20, &chunks) != ST_OK;
}

static int teardown(void **state)
{
    chunks_destroy(chunks);
    return 0;
}

static struct net_join join_of(void)
{
    return (struct net_join){.member = 1, .incarnation = 5, .job = job, .chunks = chunks};
}

static void differs(const struct net_join *join, const char *expect)
{
    char why[512] = "";
    assert_int_equal(checkpoint_job_check(&job, chunks, join, why, sizeof why), ST_MISMATCH);
    assert_string_equal(why, expect);
}

static void first_difference_is_named(void **state)
{
    char why[512] = "";
    struct net_join j = join_of();
    assert_int_equal(checkpoint_job_check(&job, chunks, &j, why, sizeof why), ST_OK);
    j.job.seed = 2;
    differs(&j, "another job: --seed: the servers have 1, the worker has 2");
    job.batch = 64;
    differs(&j, "another job: --seed: the servers have 1, the worker has 2"); /* the request has no
                                                                                 batch size */
    j.job.batch = 100;
    differs(&j, "another job: --batch_size: the servers have 64, the worker has 100");
    j.job.train_steps = 200;
    differs(&j, "another job: --batch_size: the servers have 64, the worker has 100");
    j.job.batch = 64;
    differs(&j, "another job: --train_steps: the servers have 100, the worker has 200");
    j.job.validation_split = 0.125;
    differs(&j, "another job: --validation_split: the servers have 0, the worker has 0.125");
    j.job.validation_split = 0;
    j.job.normal = (struct job_normal){1, {0.25f}, {0.5f}};
    differs(&j, "another job: --mean: the servers have none, the worker has 0.25");
    job.normal = (struct job_normal){1, {0.25f}, {0.1f}};
    differs(&j, "another job: --std: the servers have 0.1, the worker has 0.5");
    job.normal = (struct job_normal){3, {0, 0.5f, 0}, {1, 1, 1}};
    j.job.normal = (struct job_normal){3, {0, 0.25f, 0}, {1, 1, 1}};
    differs(&j, "another job: --mean (channel 2): the servers have 0.5, the worker has 0.25");
    j.job.normal = job.normal;
    j.job.augment = (struct job_augment){.flip = 1, .crop = 4};
    differs(&j, "another job: --augment: the servers have none, the worker has flip,crop:4");
    job.augment = (struct job_augment){.flip = 1, .crop = 2};
    differs(&j, "another job: --augment: the servers have flip,crop:2, the worker has flip,crop:4");
    j.job.optim.beta2 = 0.5f;
    differs(&j, "another job: --beta2: the servers have 0.999, the worker has 0.5");
    j.job.optim.learning_rate = 0.5f;
    differs(&j, "another job: --learning_rate: the servers have 0.001, the worker has 0.5");
    j.job.optim.kind = OPTIM_SGD;
    differs(&j, "another job: --optimizer: the servers have adam, the worker has sgd");
    j.job.version_dtype = DTYPE_F16;
    differs(&j,
            "another job: --wire_dtype (of versions): the servers have fp32, the worker has fp16");
    j.job.push_dtype = DTYPE_BF16;
    differs(&j, "another job: --wire_dtype: the servers have fp32, the worker has bf16");
    j.job.delay_compensation = 0.5f;
    differs(&j, "another job: --delay_compensation: the servers have 0, the worker has 0.5");
    j.job.staleness = 3;
    differs(&j, "another job: --staleness: the servers have 0, the worker has 3");
    j.job.aggregate = 2; /* all workers, like 0 */
    differs(&j, "another job: --staleness: the servers have 0, the worker has 3");
    j.job.aggregate = 1;
    differs(&j, "another job: --replicas_to_aggregate: the servers have 2, the worker has 1");
    j.job.sync_mode = JOB_ASYNC;
    differs(&j, "another job: --sync_mode: the servers have sync, the worker has async");
    j.job.n_workers = 3;
    differs(
        &j,
        "another job: --worker_hosts: the servers have 2, the worker has 3; start an additional worker of a running job with --join, without --worker_hosts and --task_index");
    j.job.n_workers = 1;
    differs(&j, "another job: --worker_hosts: the servers have 2, the worker has 1");
}

/* The text distinguishes numbers that differ only in late digits, and lists of different lengths
 * with the same beginning. */
static void close_numbers_and_lists_are_distinguished(void **state)
{
    struct net_join j = join_of();
    j.job.validation_split = 0.125;
    job.validation_split = 0.125 + 1e-15;
    differs(
        &j,
        "another job: --validation_split: the servers have 0.125000000000001, the worker has 0.125");
    job.validation_split = j.job.validation_split = 0;
    j.job.optim.ema_decay = 0.9f;
    differs(&j, "another job: --ema_decay: the servers have 0, the worker has 0.9");
    j.job.optim.ema_decay = 0;
    j.job.label_smoothing = 0.1f;
    differs(&j, "another job: --label_smoothing: the servers have 0, the worker has 0.1");
    j.job.label_smoothing = 0;
    job.normal = (struct job_normal){3, {0, 0.5f, 0}, {1, 1, 1}};
    j.job.normal = (struct job_normal){3, {0, 0.50000006f, 0}, {1, 1, 1}};
    differs(&j, "another job: --mean (channel 2): the servers have 0.5, the worker has 0.50000006");
    j.job.normal = (struct job_normal){1, {0}, {1}};
    differs(&j, "another job: --mean, --std: the servers have 3 numbers, the worker has 1");
    job.normal.n = 0;
}

/* A worker that joins a running job has neither its number of workers nor its number of steps. */
static void fields_omitted_by_a_joiner_are_not_compared(void **state)
{
    char why[512] = "";
    struct net_join j = join_of();
    j.member = -1;
    j.job.n_workers = 0;
    j.job.train_steps = 0;
    assert_int_equal(checkpoint_job_check(&job, chunks, &j, why, sizeof why), ST_OK);
    j.job.aggregate = 1; /* the joiner has set this field */
    differs(&j, "another job: --replicas_to_aggregate: the servers have 2, the worker has 1");
}

/* A job that ended early accepts workers with its original number of steps. */
static void early_end_does_not_refuse_the_original_steps(void **state)
{
    char why[512] = "";
    struct net_join j = join_of();
    job.asked_steps = 100;
    job.train_steps = 40;
    assert_int_equal(checkpoint_job_check(&job, chunks, &j, why, sizeof why), ST_OK);
    j.job.train_steps = 40;
    differs(&j, "another job: --train_steps: the servers have 100, the worker has 40");
    job.asked_steps = 0;
    job.train_steps = 100;
}

/* Members with their own data, and with the same --epochs as the job, train for the job's steps. */
static void same_epochs_of_own_data_follow_the_job(void **state)
{
    char why[512] = "";
    const struct net_job before = job;
    job.epochs = 1.5;
    struct net_join j = join_of();
    j.job.train_steps = 300;
    differs(&j, "another job: --train_steps: the servers have 100, the worker has 300");
    job.data.own = j.job.data.own = 1;
    assert_int_equal(checkpoint_job_check(&job, chunks, &j, why, sizeof why), ST_OK);
    j.job.epochs = 3;
    differs(&j, "another job: --epochs: the servers have 1.5, the worker has 3");
    j.job.epochs = 0;
    differs(
        &j,
        "another job: --train_steps: the servers have 100, the worker has 300; with --data_shard=own all workers need the same --train_steps, or all the same --epochs");
    job.epochs = 0;
    differs(&j, "another job: --train_steps: the servers have 100, the worker has 300");
    j.job.train_steps = 100;
    j.job.epochs = 1.5;
    assert_int_equal(checkpoint_job_check(&job, chunks, &j, why, sizeof why), ST_OK);
    job = before;
}

/* A member that trains for the job's steps also gets the job's outer optimizer, except settings on
 * its own command line. */
static void outer_optimizer_follows_the_job_with_its_steps(void **state)
{
    char why[512] = "";
    const struct net_job before = job;
    job.epochs = 1.5;
    job.data.own = 1;
    job.local_steps = 2;
    job.local = job.optim;
    optim_outer_defaults(OPTIM_NESTEROV, 1, &job.optim);
    struct net_join j = join_of();
    optim_outer_defaults(OPTIM_SGD, 1, &j.job.optim);
    j.job.train_steps = 300;
    differs(&j, "another job: --outer_optimizer: the servers have nesterov, the worker has sgd");
    j.job.outer_unsaid = JOB_OUTER_ALL;
    assert_int_equal(checkpoint_job_check(&job, chunks, &j, why, sizeof why), ST_OK);
    j.job.optim.learning_rate = 0.25f;
    j.job.outer_unsaid = JOB_OUTER_KIND | JOB_OUTER_MOMENTUM;
    differs(&j, "another job: --outer_learning_rate: the servers have 1, the worker has 0.25");
    j.job.optim.learning_rate = 1;
    j.job.optim.momentum = 0.25f;
    j.job.outer_unsaid = JOB_OUTER_KIND | JOB_OUTER_RATE;
    differs(&j, "another job: --outer_momentum: the servers have 0.5, the worker has 0.25");
    j.job.outer_unsaid = JOB_OUTER_ALL;
    j.job.epochs = 0; /* the steps are from the command line */
    j.job.train_steps = 100;
    differs(&j, "another job: --outer_optimizer: the servers have nesterov, the worker has sgd");
    job = before;
}

/* All workers evaluate parts of the same data. If the servers have no record of validation data,
 * any data are accepted. */
static void validation_data_must_match(void **state)
{
    char why[512] = "";
    struct net_join j = join_of();
    j.job.validation = (struct net_validation){{600, 0xabc, 2}, 5, 3};
    assert_int_equal(checkpoint_job_check(&job, chunks, &j, why, sizeof why), ST_OK);
    job.validation = j.job.validation;
    assert_int_equal(checkpoint_job_check(&job, chunks, &j, why, sizeof why), ST_OK);
    j.job.validation.every = 10;
    differs(&j, "another job: --eval_every: the servers have 5, the worker has 10");
    j.job.validation.every = 5;
    j.job.validation.patience = 0;
    differs(&j, "another job: --early_stopping: the servers have 3, the worker has 0");
    j.job.validation.data.samples++;
    differs(
        &j,
        "another job: --validation_split, --validation_dir: the servers have 600 samples (CRC-32C 00000abc, labels 00000002), the worker has 600 samples (CRC-32C 00000abd, labels 00000002)");
    j.job.validation.data.n = 0;
    differs(
        &j,
        "another job: --validation_split, --validation_dir: the servers have 600 samples (CRC-32C 00000abc, labels 00000002), the worker has none");
    job.validation.data.n = 0;
}

static void different_models_are_refused(void **state)
{
    struct net_param other[2] = {params[0], params[1]};
    struct chunks *c;
    struct net_join j = join_of();
    other[1].shape.dim[0] = 33;
    assert_int_equal(chunks_create(other, 2, 1 << 20, &c), ST_OK);
    j.chunks = c;
    differs(&j,
            "another model: parameter 1 'conv1/biases': shape 32 on the servers, 33 on the worker");
    chunks_destroy(c);
}

static void refused(struct net_join j, int n_workers, const char *part)
{
    char why[512] = "";
    assert_int_equal(checkpoint_job_check_first(&j, n_workers, why, sizeof why), ST_INVALID);
    if (!strstr(why, part))
        fail_msg("'%s' lacks '%s'", why, part);
}

static void first_join_is_checked_against_the_checkpoint(void **state)
{
    char why[512];
    struct net_join j = join_of();
    assert_int_equal(checkpoint_job_check_first(&j, 2, why, sizeof why), ST_OK);
    assert_int_equal(checkpoint_job_check_first(&j, 0, why, sizeof why), ST_OK);
    refused(j, 3, "--worker_hosts: the servers have 3, the worker has 2");
    refused(j, 1,
            "the servers have 1, the worker has 2; start an additional worker of a running job");
    j.member = 2;
    refused(j, 2, "--task_index: 2 must be below 2, the number of workers");
    j.member = -1;
    refused(j, 2, "--task_index");
    j = join_of();
    j.incarnation = 0;
    refused(j, 2, "incarnation");
    j = join_of();
    j.job.n_workers = JOB_MAX_WORKERS + 1;
    refused(j, 0, "4097 workers");
    j.job.n_workers = 0;
    refused(j, 0, "0 workers");
    j = join_of();
    j.job.train_steps = 0;
    refused(j, 0, "--train_steps");
    j = join_of();
    j.job.optim.learning_rate = -1;
    refused(j, 0, "optimizer");
}

static void restored(const struct checkpoint_manifest *m, const struct net_join *j,
                     const char *part)
{
    char why[512] = "";
    enum status st = checkpoint_job_check_restored(m, j, why, sizeof why);
    assert_int_equal(st, part ? ST_MISMATCH : ST_OK);
    if (part && !strstr(why, part))
        fail_msg("'%s' lacks '%s'", why, part);
}

static struct net_table ads_of(int dim, int64_t max_rows)
{
    return (struct net_table){.name = "ads",
                              .dim = dim,
                              .n_buckets = 8,
                              .max_rows = max_rows,
                              .step_rows = 100,
                              .optimizer = TABLE_RIG_SGD};
}

static struct chunks *with_table(struct net_table table)
{
    struct chunks *c;
    assert_int_equal(chunks_copy(chunks, &c), ST_OK);
    assert_int_equal(tables_add(c, &table, 1), ST_OK);
    return c;
}

static void tables_of_a_checkpoint_are_compared(void **state)
{
    struct chunks *had = with_table(ads_of(16, 1000)), *wide = with_table(ads_of(32, 1000)),
                  *more = with_table(ads_of(16, 2000)), *fewer = with_table(ads_of(16, 999));
    struct checkpoint_manifest m = {.step = 5, .job = job, .chunks = had};
    struct net_join j = join_of();
    m.progress.known = 1;
    j.chunks = had;
    restored(&m, &j, NULL);
    j.chunks = more;
    restored(&m, &j, NULL); /* the bound may be raised */
    j.chunks = fewer;
    restored(&m, &j, "table 'ads': max_rows 1000 in the checkpoint, 999 on the worker");
    j.chunks = wide;
    restored(&m, &j, "table 'ads': dim 16 in the checkpoint, 32 on the worker; set the same");
    j.chunks = chunks;
    restored(&m, &j, "table 0 'ads'");
    m.chunks = chunks;
    j.chunks = had;
    restored(&m, &j, "table 0 'ads'");
    chunks_destroy(had);
    chunks_destroy(wide);
    chunks_destroy(more);
    chunks_destroy(fewer);
}

/* The servers of a job that resumes must continue the rows with the same bits. */
static void settings_of_a_table_are_compared(void **state)
{
    struct checkpoint_manifest m = {.step = 5, .job = job, .chunks = with_table(ads_of(16, 1000))};
    struct net_join j = join_of();
    struct net_table other;
    struct chunks *c;
    m.progress.known = 1;
#define REFUSED(field, value, text)                                                                \
    other = ads_of(16, 2000);                                                                      \
    other.field = value;                                                                           \
    c = with_table(other);                                                                         \
    j.chunks = c;                                                                                  \
    restored(&m, &j, "the checkpoint at step 5 is of another model: table 'ads': " text);          \
    chunks_destroy(c)
    REFUSED(optimizer.kind, OPTIM_ROWS_FTRL, "optimizer sgd in the checkpoint, ftrl on the worker");
    REFUSED(optimizer.common.learning_rate, 1, "learning_rate 0.01 in the checkpoint, 1 on");
    REFUSED(init, ROW_INIT_UNIFORM, "init zeros in the checkpoint, uniform on");
    REFUSED(init_scale, 2, "init_scale 0 in the checkpoint, 2 on");
    REFUSED(admit_after, 2, "admit_after 1 in the checkpoint, 2 on");
    REFUSED(evict_after, 2, "evict_after 0 in the checkpoint, 2 on");
    REFUSED(when_full, ROW_FULL_EVICT, "when_full stop in the checkpoint, evict on");
    REFUSED(row_dtype, DTYPE_BF16, "row_dtype fp32 in the checkpoint, bf16 on");
#undef REFUSED
    chunks_destroy(m.chunks);
}

/* A checkpoint records the data of one worker alone. */
static void data_of_each_worker_are_not_compared(void **state)
{
    struct checkpoint_manifest m = {.step = 5, .job = job, .chunks = chunks};
    struct net_join j = join_of();
    m.progress.known = 1;
    m.job.data = (struct job_data){.n_train = 10, .dim = {1, 2, 3}, .classes = 4};
    j.job = m.job;
    restored(&m, &j, NULL);
    j.job.data.own = 1;
    j.job.data.n_train = 20;
    restored(&m, &j, NULL); /* other data are allowed */
    m.job.data.own = 1;
    restored(&m, &j, NULL);
    j.job.data.own = 0;
    restored(&m, &j,
             "is of another data set: --data_shard: the checkpoint has own, the worker has "
             "same");
    j.job.data.n_train = 10;
    restored(&m, &j, NULL); /* the data that the checkpoint records */
    j.job.data.dim[2] = 2;
    restored(&m, &j, "is of another data set: shape of a sample: the checkpoint has 1x2x3");
    j.job.data = m.job.data; /* each worker has a part of its own */
    j.job.data.labels = JOB_LABELS_TARGETS;
    restored(&m, &j, NULL); /* a member has not described its data */
    m.job.data.labels = JOB_LABELS_CLASSES;
    restored(&m, &j, "is of another data set: labels: the checkpoint has class labels in ");
}

/* Returns a worker's text on its data: its columns, and n empty objects, which no worker sends. */
static char *text_on_data(const char *columns, int n)
{
    char *text = malloc(strlen(columns) + 3 * (size_t)n + 64), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"columns\":\"%s\",\"more\":[0", columns);
    for (int i = 0; i < n; i++)
        at += sprintf(at, ",{}");
    sprintf(at, "]}");
    return text;
}

/* An array of objects in 1 MB of text would need 80 MB and the time of many joins. */
static void columns_in_a_huge_text_are_not_read(void **state)
{
    struct checkpoint_manifest m = {.step = 5, .job = job, .chunks = chunks};
    struct net_join j = join_of();
    char *plain = text_on_data("a,{[\\\"\\nb", 0), *other = text_on_data("a,{[\\\"\\nc", 0),
         *many = text_on_data("a,{[\\\"\\nc", 340000);
    assert_true(strlen(many) < JOB_MAX_TRAINED_ON_BYTES);
    m.progress.known = 1;
    j.job.data.own = 1;
    m.job = j.job;
    m.trained_on = plain;
    j.trained_on = plain;
    restored(&m, &j, NULL);
    j.trained_on = other;
    restored(&m, &j, "feature 2 is the column 'c', but in the checkpoint it is 'b'");
    j.trained_on = many;
    restored(&m, &j, NULL);
    m.trained_on = many;
    j.trained_on = plain;
    restored(&m, &j, NULL);
    free(plain);
    free(other);
    free(many);
}

static void reading(const struct net_join *join, const char *described, const char *part)
{
    char why[512] = "";
    enum status st = checkpoint_job_check_running(&job, chunks, described, join, why, sizeof why);
    assert_int_equal(st, part ? ST_MISMATCH : ST_OK);
    if (part && !strstr(why, part))
        fail_msg("'%s' lacks '%s'", why, part);
}

/* Returns a worker's text on its data: the separator and the columns of its keys, the ignored
 * columns, and the columns of numbers. */
static const char *text_on_reading(const char *separator, const char *keys, const char *ignored,
                                   const char *columns)
{
    static char text[8][600];
    static int n;
    char *to = text[n++ % 8];
    int at = sprintf(to, "{\"key_separator\":\"%s\",\"columns\":\"%s\",", separator, columns);
    at += sprintf(to + at, "\"ignored_columns\":\"%s\",\"model_json\":", ignored);
    sprintf(to + at, "\"{\\\"inputs\\\":{\\\"ids\\\":{\\\"columns\\\":[%s]}}}\"}", keys);
    return to;
}

#define A "\\\"a\\\""
#define B "\\\"b\\\""
#define TEN "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
static void reading_of_own_data_is_compared(void **state)
{
    const char *had = text_on_reading("|", A "," B, "", "x\\ny");
    struct net_join j = join_of();
    job.data = (struct job_data){.n_train = 10, .dim = {1, 1, 2}, .own = true};
    j.job.data = job.data;
    j.trained_on = had;
    reading(&j, had, NULL);
    reading(&j, NULL, NULL);
    j.trained_on = text_on_reading("", A "," B, "", "x\\ny");
    reading(&j, had,
            "another data set: --key_separator: the servers have '|', the worker has none; "
            "set the same --key_separator");
    j.trained_on = text_on_reading("|", B "," A, "", "x\\ny");
    reading(&j, had, "--key_columns: input 'ids': the servers have a,b, the worker has b,a; list");
    j.trained_on = text_on_reading("|", A "," B, "z", "x\\ny");
    reading(&j, had, NULL); /* a part may have columns that only its worker ignores */
    j.trained_on = text_on_reading("|", A "," B, "x", "y\\nz");
    reading(&j, had, "--ignore_columns: the servers have none, the worker has x; ignore the same");
    j.trained_on = text_on_reading("|", A "," B, "", "y\\nx");
    reading(&j, had, "feature 1 is the column 'y', but on the servers it is 'x'");
    j.trained_on = text_on_reading("|", A "," B, "", "z" TEN TEN TEN TEN "\\ny");
    reading(&j, had, "\xc3\xa4...', but on the servers it is 'x'"); /* no half of a character */
}

/* Equal samples may have columns with other names. If the samples differ, the names explain it. */
static void reading_of_same_data_explains_difference(void **state)
{
    const char *had = text_on_reading("|", A, "", "x"), *has = text_on_reading("", A, "", "y");
    struct net_join j = join_of();
    job.data = (struct job_data){.n_train = 10, .dim = {1, 1, 1}, .train_samples = 1};
    j.job.data = job.data;
    j.trained_on = has;
    reading(&j, had, NULL);
    j.job.data.train_samples = 2;
    reading(&j, had, "--key_separator: the servers have '|', the worker has none");
    j.trained_on = had;
    reading(&j, had, "another data set: CRC-32C of the training samples");
}
#undef A
#undef B
#undef TEN

static const char *text_on_model(char to[300], const char *layer)
{
    sprintf(to, "{\"model_json\":\"{\\\"layers\\\":[{\\\"type\\\":\\\"relu\\\"},{%s}]}\"}", layer);
    return to;
}

/* Models with equal parameters may compute different results. */
static void layers_of_the_model_are_compared(void **state)
{
    char one[300], two[300];
    struct net_join j = join_of();
    j.trained_on = text_on_model(one, "\\\"rate\\\":0.5,\\\"device\\\":\\\"cpu:0\\\"");
    reading(&j, text_on_model(two, "\\\"rate\\\":5e-1"), NULL);
    reading(&j, text_on_model(two, "\\\"rate\\\":0.5,\\\"name\\\":\\\"b\\\""), NULL);
    reading(
        &j, text_on_model(two, "\\\"rate\\\":0.25"),
        "another model: --model: \"rate\" of layer 2: the servers have 0.25, the worker has 0.5; "
        "start all workers with the same model file");
    reading(&j, text_on_model(two, ""),
            "\"rate\" of layer 2: the servers have none, the worker has");
    reading(&j, text_on_model(two, "},{"), "the servers have 3 layers, the worker has 2");
}

/* In async the default learning rate depends on the number of workers, which may change. */
static void default_rate_of_async_may_differ(void **state)
{
    struct checkpoint_manifest m = {.step = 5, .job = job, .chunks = chunks};
    m.progress.known = 1;
    m.job.sync_mode = JOB_ASYNC;
    m.job.local_steps = 50;
    m.job.n_workers = 2;
    m.job.optim.learning_rate = 0.5f;
    struct net_join j = join_of();
    j.job = m.job;
    j.job.n_workers = 3;
    j.job.optim.learning_rate = 1 / 3.0f;
    restored(&m, &j, NULL);
    m.job.optim.learning_rate = 0.4f; /* set on the command line */
    restored(&m, &j, "--outer_learning_rate: the checkpoint has 0.4");
}

static void different_local_steps_are_refused(void **state)
{
    struct net_join j = join_of(), rounds = j;
    const struct net_job gradients = job;
    job.local_steps = 50;
    job.local = job.optim;
    differs(&j, "another job: --local_steps: the servers have 50, the worker has 1");
    rounds.job.local_steps = 50;
    rounds.job.local = job.local;
    rounds.job.local.beta2 = 0.5f;
    differs(&rounds, "another job: --beta2: the servers have 0.999, the worker has 0.5");
    rounds.job.optim.learning_rate *= 2;
    differs(&rounds,
            "another job: --outer_learning_rate: the servers have 0.001, the worker has 0.002");
    rounds.job.fragments = 2;
    differs(&rounds, "another job: --fragments: the servers have 1, the worker has 2");
    job = gradients;
}

int main(void)
{
    return RUN_GROUP(
        setup, teardown, columns_in_a_huge_text_are_not_read, different_local_steps_are_refused,
        default_rate_of_async_may_differ, first_difference_is_named,
        close_numbers_and_lists_are_distinguished, fields_omitted_by_a_joiner_are_not_compared,
        different_models_are_refused, first_join_is_checked_against_the_checkpoint,
        tables_of_a_checkpoint_are_compared, settings_of_a_table_are_compared,
        data_of_each_worker_are_not_compared, early_end_does_not_refuse_the_original_steps,
        same_epochs_of_own_data_follow_the_job, outer_optimizer_follows_the_job_with_its_steps,
        validation_data_must_match, reading_of_own_data_is_compared,
        reading_of_same_data_explains_difference, layers_of_the_model_are_compared);
}
