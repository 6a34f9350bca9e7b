/* base/job_name.c - see job_name.h. */
#include "base/job_name.h"
#include "base/log.h"
#include <string.h>

static int is(const char *name, const char *other)
{
    return strcmp(name, other) == 0;
}

static int is_chief(const char *name)
{
    return is(name, "chief") || is(name, "master");
}

static void log_other(const char *name)
{
    if (is(name, "evaluator"))
        LOG_E(
            "--job_name: Weir has no separate evaluator: workers evaluate at the end of training, and with --eval_every=N also during training");
    else
        LOG_E(
            "--job_name: '%.100s' is not one of ps, worker, and chief or master, which is worker 0",
            name);
}

enum status job_name_check_ps(const char *name)
{
    if (!name || is(name, "ps"))
        return ST_OK;
    if (is(name, "worker") || is_chief(name))
        LOG_E("--job_name: start '%s' with the program worker; this program is ps", name);
    else
        log_other(name);
    return ST_INVALID;
}

enum status job_name_check_worker(const char *name, long long *task_index)
{
    if (!name || is(name, "worker"))
        return ST_OK;
    if (is_chief(name) && *task_index <= 0) {
        *task_index = 0;
        return ST_OK;
    }
    if (is_chief(name))
        LOG_E(
            "--job_name: the %s is worker 0, the first of --worker_hosts; for --task_index=%lld use --job_name=worker",
            name, *task_index);
    else if (is(name, "ps"))
        LOG_E("--job_name: start 'ps' with the program ps; this program is worker");
    else
        log_other(name);
    return ST_INVALID;
}
