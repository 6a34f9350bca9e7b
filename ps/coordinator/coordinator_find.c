/* ps/coordinator/coordinator_find.c - searches for a checkpoint, in the disk's thread
 * (coordinator_disk_impl.h). */
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "ps/coordinator/coordinator_disk_impl.h"
#include "ps/coordinator/plan_applier.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED_MS = 10000 };

/* Finds the newest checkpoint or, if a server cannot read its part of that checkpoint, the newest
 * one before it. If --restore is set, a checkpoint of an earlier ps 0 counts only if --restore
 * names it. */
static enum status find(struct coordinator_disk *d, struct coordinator_disk_request *o,
                        struct checkpoint_restore **out, const char **mark)
{
    const struct checkpoint_elsewhere elsewhere = {coordinator_folders_has, &o->folders};
    const struct checkpoint_restore_query query = {.folder = d->folder,
                                                   .before = o->before,
                                                   .history = o->history,
                                                   .whole = 1,
                                                   .elsewhere = &elsewhere};
    int passes = o->before.generation > 0;
    enum status st = checkpoint_restore_open(&query, out);
    *mark = "";
    if (st == ST_OK && d->restore_path &&
        term_epoch(checkpoint_restore_manifest(*out)->generation) < d->first_epoch) {
        checkpoint_restore_close(*out);
        *out = NULL;
        st = ST_NOT_FOUND;
    }
    if (passes && !d->restore_path && (st == ST_NOT_FOUND || st == ST_CORRUPT)) {
        LOG_E(
            "%s: no complete checkpoint is older than the damaged one, and training waits; restore the damaged files, or start all programs with another --checkpoint_dir",
            d->folder);
        return ST_IO; /* ST_NOT_FOUND would restart the job at step 0 */
    }
    if (st == ST_NOT_FOUND && d->folder_id[0] &&
        checkpoint_folder_is(d->folder, d->folder_id) != ST_OK) {
        LOG_E(
            "%s: the checkpoints that this folder had are missing, and training waits for them; mount the folder again, or, if the checkpoints are lost, restart ps:0, which then begins at step 0",
            d->folder);
        return ST_IO;
    }
    if (!d->restore_path || (st != ST_NOT_FOUND && st != ST_CORRUPT))
        return st;
    *mark = PLAN_RESTORE_MARK;
    st = checkpoint_restore_find_with(d->restore_path, &elsewhere, out);
    /* the checkpoint of --restore existed at the start, so it may reappear */
    return st == ST_NOT_FOUND ? ST_IO : st;
}

static bool is_early(const struct coordinator_disk *d, const struct coordinator_disk_request *o)
{
    return o->folders.version == d->failed_version && clock_now_ns() < d->failed_until_ns;
}

static void note_failure(struct coordinator_disk *d, const struct coordinator_disk_request *o,
                         enum status st)
{
    int failed = st != ST_OK && st != ST_NOT_FOUND && st != ST_BUSY;
    d->failed = st;
    d->failed_version = o->folders.version;
    d->failed_until_ns = failed ? clock_deadline_ns(FAILED_MS) : 0;
}

/* Finds a checkpoint like find(), but neither repeats a search that failed a moment ago nor logs
 * its failure again. */
static enum status find_again(struct coordinator_disk *d, struct coordinator_disk_request *o,
                              struct checkpoint_restore **out, const char **mark)
{
    if (is_early(d, o))
        return d->failed;
    enum status st = find(d, o, out, mark);
    if (st == ST_BUSY)
        LOG_I("the newest checkpoint cannot be used yet: %s", o->folders.why);
    note_failure(d, o, st);
    return st;
}

/* Requests one more search for the checkpoint that a waiting first job resumes from. */
static void search_again(struct coordinator_disk *d)
{
    pthread_mutex_lock(&d->lock);
    if (d->l) {
        pthread_mutex_lock(&d->l->lock);
        d->l->searched = 0;
        pthread_mutex_unlock(&d->l->lock);
    }
    pthread_mutex_unlock(&d->lock);
}

/* Searches for the newest complete checkpoint. The first job resumes from it, unless that job
 * has been planned already. */
void coordinator_find_first(struct coordinator_disk *d, struct coordinator_disk_request *o)
{
    const struct checkpoint_elsewhere elsewhere = {coordinator_folders_has, &o->folders};
    const char *path = d->restore_path ? d->restore_path : d->folder;
    char name[MANIFEST_NAME_BYTES];
    struct checkpoint_restore *found = NULL;
    bool early = is_early(d, o);
    enum status st = early ? d->failed : checkpoint_restore_find_with(path, &elsewhere, &found);
    if (!early)
        note_failure(d, o, st);
    if (st == ST_IO || st == ST_NOMEM)
        search_again(d);
    if (st != ST_OK)
        return;
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(found);
    checkpoint_restore_note_home(found, d->folder);
    checkpoint_manifest_name((struct checkpoint_id){m->generation, m->step}, name);
    LOG_I("found a checkpoint at step %" PRId64 ": %s", m->step, path);
    pthread_mutex_lock(&d->lock);
    struct coordinator_shell *l = d->l;
    if (l) {
        pthread_mutex_lock(&l->lock);
        if (!l->plan && !l->has_job) {
            struct checkpoint_restore *old = l->cfg.restore;
            l->cfg.restore = found;
            found = old;
            snprintf(l->cfg.restored, sizeof l->cfg.restored, "%s%s", name,
                     d->restore_path ? PLAN_RESTORE_MARK : "");
        }
        pthread_mutex_unlock(&l->lock);
    }
    pthread_mutex_unlock(&d->lock);
    checkpoint_restore_close(found);
}

void coordinator_find_next(struct coordinator_disk *d, struct coordinator_disk_request *o)
{
    struct coordinator_mail m = {.kind = COORDINATOR_DISK, .op = o->op};
    struct checkpoint_restore *found = NULL;
    const char *mark = "";
    char name[MANIFEST_NAME_BYTES + 16] = "", file[MANIFEST_NAME_BYTES];
    m.st = find_again(d, o, &found, &mark);
    if (m.st == ST_OK) {
        const struct checkpoint_manifest *at = checkpoint_restore_manifest(found);
        m.step = at->step;
        checkpoint_restore_note_home(found, d->folder);
        checkpoint_manifest_name((struct checkpoint_id){at->generation, at->step}, file);
        snprintf(name, sizeof name, "%s%s", file, mark);
    }
    coordinator_disk_post(d, &m, found, name);
}
