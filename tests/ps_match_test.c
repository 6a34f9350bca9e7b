/* tests/ps_match_test.c - who may join: the sentence names the first thing that differs. */
#include "checkpoint/job_check.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

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
    assert_int_equal(ps_match_job(&job, chunks, join, why, sizeof why), ST_MISMATCH);
    assert_string_equal(why, expect);
}

static void test_job(void **state)
{
    char why[512] = "";
    struct net_join j = join_of();
    assert_int_equal(ps_match_job(&job, chunks, &j, why, sizeof why), ST_OK);
    j.job.seed = 2;
    differs(&j, "another job: --seed: 1 here, 2 there");
    job.batch = 64;
    differs(&j, "another job: --seed: 1 here, 2 there"); /* it does not say how many samples */
    j.job.batch = 100;
    differs(&j, "another job: --batch_size: 64 here, 100 there");
    j.job.train_steps = 200;
    differs(&j, "another job: --batch_size: 64 here, 100 there");
    j.job.batch = 64;
    differs(&j, "another job: --train_steps: 100 here, 200 there");
    j.job.optim.beta2 = 0.5f;
    differs(&j, "another job: --beta2: 0.999000013 here, 0.5 there");
    j.job.optim.learning_rate = 0.5f;
    differs(&j, "another job: --learning_rate: 0.00100000005 here, 0.5 there");
    j.job.optim.kind = OPTIM_SGD;
    differs(&j, "another job: --optimizer: adam here, sgd there");
    j.job.version_dtype = DTYPE_F16;
    differs(&j, "another job: --wire_dtype (of versions): fp32 here, fp16 there");
    j.job.push_dtype = DTYPE_BF16;
    differs(&j, "another job: --wire_dtype: fp32 here, bf16 there");
    j.job.delay_compensation = 0.5f;
    differs(&j, "another job: --delay_compensation: 0 here, 0.5 there");
    j.job.staleness = 3;
    differs(&j, "another job: --staleness: 0 here, 3 there");
    j.job.aggregate = 2; /* all of them, which 0 says too */
    differs(&j, "another job: --staleness: 0 here, 3 there");
    j.job.aggregate = 1;
    differs(&j, "another job: --replicas_to_aggregate: 2 here, 1 there");
    j.job.sync_mode = JOB_ASYNC;
    differs(&j, "another job: --sync_mode: sync here, async there");
    j.job.n_workers = 3;
    differs(&j, "another job: --worker_hosts: 2 here, 3 there");
}

/* A worker that joins a running job knows neither how many there are nor for how many steps. */
static void test_unsaid(void **state)
{
    char why[512] = "";
    struct net_join j = join_of();
    j.member = -1;
    j.job.n_workers = 0;
    j.job.train_steps = 0;
    assert_int_equal(ps_match_job(&job, chunks, &j, why, sizeof why), ST_OK);
    j.job.aggregate = 1; /* but it does say this */
    differs(&j, "another job: --replicas_to_aggregate: 2 here, 1 there");
}

static void test_model(void **state)
{
    struct net_param other[2] = {params[0], params[1]};
    struct chunks *c;
    struct net_join j = join_of();
    other[1].shape.dim[0] = 33;
    assert_int_equal(chunks_create(other, 2, 1 << 20, &c), ST_OK);
    j.chunks = c;
    differs(&j, "another model: parameter 1 'conv1/biases': shape 32 here, 33 there");
    chunks_destroy(c);
}

static void refused(struct net_join j, int n_workers, const char *part)
{
    char why[512] = "";
    assert_int_equal(ps_match_first(&j, n_workers, why, sizeof why), ST_INVALID);
    if (!strstr(why, part))
        fail_msg("'%s' lacks '%s'", why, part);
}

static void test_first(void **state)
{
    char why[512];
    struct net_join j = join_of();
    assert_int_equal(ps_match_first(&j, 2, why, sizeof why), ST_OK);
    assert_int_equal(ps_match_first(&j, 0, why, sizeof why), ST_OK);
    refused(j, 3, "--worker_hosts: 3 workers here, 2 there");
    j.member = 2;
    refused(j, 2, "--task_index: 2 is not below the 2 workers");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job),
        cmocka_unit_test(test_unsaid),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_first),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
