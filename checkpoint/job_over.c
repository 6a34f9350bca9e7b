/* checkpoint/job_over.c - see job_over.h. */
#include "checkpoint/job_over.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "checkpoint/job_check.h"
#include "files/safetensors.h"
#include "net/wire/job_steps.h"
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LOOKS = 3 }; /* number of the job_over_look call that logs how to end the worker */

/* Returns the folder's newest checkpoint; NULL: no checkpoint, or it cannot be read. */
static struct checkpoint_manifest *newest(const char *folder)
{
    struct checkpoint_manifest_place *list = NULL;
    struct checkpoint_manifest *m = NULL;
    char path[PATH_MAX], name[MANIFEST_NAME_BYTES], why[MANIFEST_WHY_BYTES];
    int n = 0;
    if (checkpoint_retention_list(folder, &list, &n) != ST_OK)
        return NULL;
    if (n > 0 && list[0].readable && !list[0].old) {
        checkpoint_manifest_name(list[0].id, name);
        bool fits = (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path;
        if (!fits || checkpoint_manifest_read(path, &m, why) != ST_OK)
            m = NULL;
    }
    free(list);
    return m;
}

/* Returns true if the checkpoint has all steps of its job, and no fewer than this worker's flags
 * request. Only worker 0 may change the steps while --epochs stays the same. */
static bool is_complete(const struct checkpoint_manifest *m, const struct net_join *join)
{
    char why[640];
    if (m->step < m->job.train_steps)
        return false;
    bool follows = join && join->member != 0 && job_steps_follow(&m->job, &join->job);
    return join && (follows || join->job.train_steps <= job_asked_steps(&m->job)) &&
           m->job.batch == join->job.batch &&
           checkpoint_job_check_restored(m, join, why, sizeof why) == ST_OK;
}

/* Returns true if ps 0 shut down in order. *since: time of the last claim of the folder. */
static bool ended_in_order(const struct job_over *o, struct timespec *since)
{
    struct checkpoint_lease lease = {.epoch = 0};
    return checkpoint_folder_lease(o->folder, &lease) == ST_OK &&
           strcmp(lease.address, o->ps0) == 0 &&
           checkpoint_folder_owner_ended(o->folder, &lease, since);
}

/* Returns true if the file is no older than `since`. An older file belongs to an earlier job, which
 * may have had as many steps. */
static bool is_since(const char *path, const struct timespec *since)
{
    struct stat file;
    return stat(path, &file) == 0 &&
           (file.st_mtim.tv_sec > since->tv_sec ||
            (file.st_mtim.tv_sec == since->tv_sec && file.st_mtim.tv_nsec >= since->tv_nsec));
}

static bool export_is_of(const char *path, int64_t step)
{
    struct safetensors_file *f = NULL;
    char why[SAFETENSORS_WHY_BYTES];
    if (safetensors_open_any(path, &f, why) != ST_OK)
        return false;
    const char *text = safetensors_metadata(f, "global_step");
    bool same = text && strtoll(text, NULL, 10) == step;
    safetensors_close(f);
    return same;
}

static bool summary_is_of(const char *path, int64_t step)
{
    json_t *j = json_load_file(path, 0, NULL);
    bool same = json_integer_value(json_object_get(j, "global_step")) == step;
    json_decref(j);
    return same;
}

/* Returns the flag whose file is missing; NULL: no file is missing. */
static const char *missing_output(const struct job_over *o, int64_t step,
                                  const struct timespec *since)
{
    if (o->export_file && !(is_since(o->export_file, since) && export_is_of(o->export_file, step)))
        return "--export";
    if (o->summary_json &&
        !(is_since(o->summary_json, since) && summary_is_of(o->summary_json, step)))
        return "--summary_json";
    return NULL;
}

/* Logs how to end a worker whose job may have ended. */
static void log_remedy(const struct job_over *o)
{
    if (o->folder)
        LOG_W(
            "ps:0 (%s) has not answered since this worker was started, and %s does not show that the job has ended: start the servers, or end this worker (Ctrl-C or SIGTERM)",
            o->ps0, o->folder);
    else
        LOG_W(
            "ps:0 (%s) has not answered since this worker was started: start the servers or, if the job has ended, end this worker (Ctrl-C or SIGTERM); a worker that is started with the servers' --checkpoint_dir detects the end of its job by itself",
            o->ps0);
}

static bool look(struct job_over *o)
{
    struct timespec since;
    struct checkpoint_manifest *m = newest(o->folder);
    bool over = m && is_complete(m, o->join) && ended_in_order(o, &since);
    int64_t step = over ? m->step * job_local_steps(&m->job) : 0;
    const char *missing = over ? missing_output(o, step, &since) : NULL;
    if (over && !missing)
        LOG_I("the job is done: the last checkpoint in %s has all its %" PRId64
              " steps, and ps:0 (%s) has ended in order; nothing is left to do for this worker",
              o->folder, step, o->ps0);
    if (missing && !o->has_logged)
        LOG_W(
            "the job is done, as the last checkpoint in %s shows, but the file of this worker's %s is missing, or is of another job or step; waiting for the servers: start them again with the same flags, and this worker writes the file",
            o->folder, missing);
    o->has_logged |= missing != NULL;
    checkpoint_manifest_free(m);
    return over && !missing;
}

bool job_over_look(struct job_over *o)
{
    bool over = o->folder && look(o);
    if (!over && ++o->n_looks == LOOKS && !o->has_logged)
        log_remedy(o);
    return over;
}
