/* tests/base_job_name_test.c - --job_name: the names of each program, and the errors for other
 * names. */
#include "base/job_name.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <string.h>

static enum status worker(const char *name, long long given, long long *out)
{
    *out = given;
    return CAPTURE(job_name_check_worker(name, out));
}

static void says(const char *text)
{
    if (!strstr(capture_text, text))
        fail_msg("'%s' lacks '%s'", capture_text, text);
    assert_int_equal(capture_lines(), 1);
}

static void names_of_workers_accepted(void **state)
{
    long long task;
    assert_int_equal(worker(NULL, 3, &task), ST_OK);
    assert_int_equal(task, 3);
    assert_int_equal(worker("worker", -1, &task), ST_OK);
    assert_int_equal(task, -1);
    assert_int_equal(worker("chief", -1, &task), ST_OK);
    assert_int_equal(task, 0);
    assert_int_equal(worker("master", 0, &task), ST_OK);
    assert_int_equal(task, 0);
    assert_string_equal(capture_text, "");
    assert_int_equal(worker("master", 2, &task), ST_INVALID);
    says(
        "the master is worker 0, the first of --worker_hosts; for --task_index=2 use --job_name=worker");
    assert_int_equal(worker("ps", 0, &task), ST_INVALID);
    says("start 'ps' with the program ps; this program is worker");
    assert_int_equal(worker("evaluator", 0, &task), ST_INVALID);
    says("Weir has no separate evaluator");
    assert_int_equal(worker("Worker", 0, &task), ST_INVALID);
    says("'Worker' is not one of ps, worker, and chief or master");
    assert_int_equal(worker("", 0, &task), ST_INVALID);
    says("'' is not one of");
}

static void names_of_servers_accepted(void **state)
{
    assert_int_equal(CAPTURE(job_name_check_ps(NULL)), ST_OK);
    assert_int_equal(CAPTURE(job_name_check_ps("ps")), ST_OK);
    assert_int_equal(CAPTURE(job_name_check_ps("chief")), ST_INVALID);
    says("start 'chief' with the program worker; this program is ps");
    assert_int_equal(CAPTURE(job_name_check_ps("worker")), ST_INVALID);
    says("start 'worker' with the program worker");
    assert_int_equal(CAPTURE(job_name_check_ps("evaluator")), ST_INVALID);
    says("Weir has no separate evaluator");
}

int main(void)
{
    return RUN_TESTS(names_of_workers_accepted, names_of_servers_accepted);
}
