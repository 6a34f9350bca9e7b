/* tests/net_job_tables_test.c - a job with tables is refused if a setting cannot be combined with
 * tables. */
#include "net/wire/job_tables.h"
#include "net/wire/tables.h"
#include "tests/check.h"
#include "tests/table_rig.h"
#include <string.h>

static void use_local_steps(struct net_job *job)
{
    job->local_steps = 4;
    job->local = job->optim;
}
static void use_fragments(struct net_job *job)
{
    job->fragments = 2;
}
static void push_int8(struct net_job *job)
{
    job->push_dtype = DTYPE_INT8;
}
static void send_int4(struct net_job *job)
{
    job->version_dtype = DTYPE_INT4;
}
static void push_topk(struct net_job *job)
{
    job->push_dtype = DTYPE_TOPK;
}
static void use_auto(struct net_job *job)
{
    job->wire_auto = true;
}
static void use_backups(struct net_job *job)
{
    job->aggregate = 1;
}
static void use_clip_norm(struct net_job *job)
{
    job->optim.clip_norm = 1;
}
static void use_ema(struct net_job *job)
{
    job->optim.ema_decay = 0.5f;
}
static void use_compensation(struct net_job *job)
{
    job->sync_mode = JOB_ASYNC;
    job->delay_compensation = 0.5f;
}
static void use_half_floats(struct net_job *job)
{
    job->push_dtype = DTYPE_BF16;
    job->version_dtype = DTYPE_F16;
    job->optim.clip_value = 1;
}
static void use_ssp(struct net_job *job)
{
    job->sync_mode = JOB_SSP;
    job->staleness = 3;
}

/* Each setting is refused in a job with tables alone, and the sentence names the setting. */
static void settings_that_need_whole_models_are_refused(void **state)
{
    static const struct {
        void (*set)(struct net_job *job);
        const char *why; /* NULL: the job is valid */
    } cases[] = {
        {use_local_steps, "local_steps"},
        {use_fragments, "fragments"},
        {push_int8, "int8"},
        {send_int4, "int4"},
        {push_topk, "topk"},
        {use_auto, "auto"},
        {use_backups, "backup workers"},
        {use_clip_norm, "clip_norm"},
        {use_ema, "ema_decay"},
        {use_compensation, "delay_compensation"},
        {use_half_floats, NULL},
        {use_ssp, NULL},
    };
    const struct net_param param = {.name = "w", .shape = {2, {64, 1024}}};
    const struct net_table table = {.name = "ads",
                                    .dim = 16,
                                    .n_buckets = 64,
                                    .max_rows = 250000,
                                    .step_rows = 65536,
                                    .optimizer = TABLE_RIG_SGD};
    struct chunks *dense = NULL, *tables = NULL;
    assert_int_equal(chunks_create(&param, 1, 1 << 17, &dense), ST_OK);
    assert_int_equal(chunks_copy(dense, &tables), ST_OK);
    assert_int_equal(tables_add(tables, &table, 1), ST_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct net_job job = {.n_workers = 2, .aggregate = 2, .train_steps = 100, .batch = 64};
        optim_defaults(OPTIM_SGD, &job.optim);
        assert_null(job_check_tables(&job, tables->n_tables));
        cases[i].set(&job);
        assert_null(job_check_tables(&job, dense->n_tables));
        const char *why = job_check_tables(&job, tables->n_tables);
        if (!cases[i].why)
            assert_null(why);
        else
            assert_non_null(strstr(why, cases[i].why));
    }
    chunks_destroy(dense);
    chunks_destroy(tables);
}

int main(void)
{
    return RUN_TESTS(settings_that_need_whole_models_are_refused);
}
