/* worker/options/options_logdir.c - what belongs to --logdir: see options_impl.h. */
#include "worker/events/event_writer.h"
#include "worker/options/options_impl.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>

/* A folder where nothing can ever be written is an error; a disk that is full now is not. index: of
 * this worker; below 0: not known yet, then it is the folder's that all of them are in. */
static enum status check_folder(const char *logdir, int index)
{
    char folder[PATH_MAX] = "";
    int n = snprintf(folder, sizeof folder, index < 0 ? "%s" : "%s/worker_%d", logdir, index);
    int err = n < (int)sizeof folder ? event_writer_folder(folder) : ENAMETOOLONG;
    if (!err)
        return ST_OK;
    if (status_of_errno(err) != ST_INVALID) {
        LOG_W("--logdir=%.400s: nothing can be written there now: %s; training goes on", logdir,
              status_errno_text(err));
        return ST_OK;
    }
    LOG_E("--logdir=%.400s: event files cannot be written there%s: %s; give another folder", logdir,
          index < 0 ? "" : " (in its worker_N)", status_errno_text(err));
    return ST_INVALID;
}

enum status options_logdir_check(struct options *o)
{
    const struct options_raw *r = &options_raw;
    int given = r->logdir && *r->logdir;
    if (!given &&
        (options_table_is_given(&r->summary_steps) || options_table_is_given(&r->histogram_steps)))
        LOG_W("--summary_steps and --histogram_steps: no effect without --logdir");
    if (given && (o->evaluate || o->predict)) {
        LOG_E("--evaluate and --predict train nothing; leave --logdir out");
        return ST_INVALID;
    }
    if (!given || o->list_devices >= 0 || o->self_test >= 0)
        return ST_OK;
    o->logdir = r->logdir;
    o->summary_steps = r->summary_steps;
    o->histogram_steps = r->histogram_steps;
    return check_folder(o->logdir, o->task_index);
}
