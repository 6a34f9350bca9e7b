/* worker/checkpoint/alone_folder.c - opens the folder of a worker without servers: locks it, finds
 * the newest complete checkpoint, claims the folder, and loads the checkpoint into the optimizers'
 * updates (worker/train/updates.h). If the start fails before the claim, the folder keeps its
 * owner. */
#include "worker/checkpoint/alone_folder.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "checkpoint/job_check.h"
#include "checkpoint/owner.h"
#include "checkpoint/restore.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { LOOKS_MS = 5000, LOOK_EACH_MS = 10 };

/* Opens the file `worker-lock`; creates it if it does not exist. */
static enum status open_lock(struct alone_folder *f, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", f->path, OWNER_LOCK_NAME) >= PATH_MAX) {
        LOG_E("--checkpoint_dir: %s: the path is too long", f->path);
        return ST_INVALID;
    }
    f->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->lock_fd < 0) {
        enum status st = status_of_errno(errno);
        LOG_E("--checkpoint_dir: %s cannot be opened: %s", path, status_errno_text(errno));
        return st;
    }
    return ST_OK;
}

/* Locks the file. A process that checks for an owner (owner.h) holds a shared lock for a moment;
 * the function waits until such a lock is released. Returns 0, or an errno: EWOULDBLOCK if a worker
 * has the lock. */
static int try_lock(int fd)
{
    int64_t deadline_ns = clock_deadline_ns(LOOKS_MS);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int failed = errno;
        if (failed != EWOULDBLOCK || flock(fd, LOCK_SH | LOCK_NB) != 0 ||
            clock_now_ns() >= deadline_ns)
            return failed;
        flock(fd, LOCK_UN);
        poll(NULL, 0, LOOK_EACH_MS);
    }
    return 0;
}

static void note_locked(const struct alone_folder *f, const char *path, int failed)
{
    if (failed)
        LOG_W("%s cannot be locked: %s; start no second program with this --checkpoint_dir", path,
              strerror(failed));
    else if (ftruncate(f->lock_fd, 0) != 0 || dprintf(f->lock_fd, "%s\n", f->name) < 0)
        LOG_D("%s: not written: %s", path, strerror(errno));
}

/* Locks the folder. ST_REFUSED: a process of this host, or of a host whose locks this host sees,
 * has the lock. If take_over is set, another process's lock is no error, and f->lock_fd is -1 until
 * replace_lock. */
static enum status lock_folder(struct alone_folder *f, bool take_over)
{
    char path[PATH_MAX];
    enum status st = ST_OK;
    TRY(open_lock(f, path));
    int failed = try_lock(f->lock_fd);
    if (failed == EWOULDBLOCK && take_over) {
        alone_folder_close(f);
        return ST_OK;
    }
    if (failed == EWOULDBLOCK) {
        LOG_E(
            "--checkpoint_dir: %s belongs to another worker without servers, which is starting: " OWNER_REMEDY,
            f->path);
        return ST_REFUSED; /* an error that a supervisor must not answer by endless restarts */
    }
    note_locked(f, path, failed);
done:
    return st;
}

/* Locks a new lock file, because the folder's previous worker keeps the old one locked until it
 * ends. The caller must have claimed the folder; before the claim the previous worker is its
 * owner. */
static enum status replace_lock(struct alone_folder *f)
{
    char path[PATH_MAX];
    enum status st = ST_OK;
    snprintf(path, sizeof path, "%s/%s", f->path, OWNER_LOCK_NAME);
    unlink(path);
    TRY(open_lock(f, path));
    note_locked(f, path, try_lock(f->lock_fd));
done:
    return st;
}

/* Copies a checkpoint's values, slots and counts of idle updates to the updates. */
static enum status load_checkpoint(const struct alone_folder_config *cfg,
                                   const struct checkpoint_restore *r)
{
    struct updates_state state;
    enum status st = ST_OK;
    int64_t step = checkpoint_restore_manifest(r)->step;
    CHECK(updates_state(cfg->updates, &state));
    for (int i = 0; i < cfg->chunks->n_chunks; i++) {
        const struct net_chunk *c = &cfg->chunks->chunks[i];
        int averages = cfg->chunks->params[c->param].rule == PARAM_AVERAGE;
        int64_t version = -1;
        if (!checkpoint_restore_holds(r, c->first, c->n_elems)) {
            LOG_E(
                "the checkpoint at step %" PRId64
                " is in several servers' own folders; copy all of its files into one folder, and use this folder",
                step);
            return ST_NOT_FOUND;
        }
        TRY(checkpoint_restore_read(r, c->first, c->n_elems, state.params + c->first,
                                    averages ? NULL : state.slots + state.n_slots * c->first,
                                    &version));
        if (version != step) {
            LOG_E("the checkpoint at step %" PRId64 " also has parameters of step %" PRId64
                  "; a worker without servers can resume only from a single step",
                  step, version);
            return ST_MISMATCH;
        }
        checkpoint_restore_idle(r, cfg->chunks, i, step, updates_idle(cfg->updates, i));
    }
done:
    return st;
}

/* Logs that the checkpoint has more steps than the job. */
static void log_past(const struct alone_folder_config *cfg, const struct checkpoint_manifest *m)
{
    const struct net_job *job = cfg->job;
    if (cfg->epochs > 0)
        LOG_E(
            "--epochs=%g makes %" PRId64
            " steps at --batch_size=%d, and the checkpoint is at step %" PRId64
            ", made at --batch_size=%d; set more --epochs, the same --batch_size, or another --checkpoint_dir",
            cfg->epochs, job->train_steps, job->batch, m->step, m->job.batch);
    else
        LOG_E("--train_steps: the checkpoint is at step %" PRId64 ", past the %" PRId64
              " of this job; set more steps, or another --checkpoint_dir",
              m->step, job->train_steps);
}

static enum status check_job(const struct alone_folder_config *cfg,
                             const struct checkpoint_manifest *m)
{
    const struct net_join join = {
        .job = *cfg->job, .chunks = cfg->chunks, .trained_on = cfg->trained_on};
    char why[640];
    enum status st = checkpoint_job_check_restored(m, &join, why, sizeof why);
    if (st != ST_OK) {
        LOG_E("%s", why);
    } else if (m->step > cfg->job->train_steps) {
        log_past(cfg, m);
        st = ST_MISMATCH;
    } else if (cfg->epochs > 0 && m->job.batch > 0 && m->job.batch != cfg->job->batch) {
        LOG_W(
            "--epochs=%g makes %" PRId64 " steps at --batch_size=%d, but the steps up to %" PRId64
            " used --batch_size=%d, so the job does not train on exactly that many epochs; --train_steps sets the end exactly",
            cfg->epochs, cfg->job->train_steps, cfg->job->batch, m->step, m->job.batch);
    }
    return st;
}

/* Finds the newest checkpoint. *found: at first the checkpoint of an earlier call, or NULL; the
 * function replaces it if a newer one exists. Refuses a checkpoint that does not fit the job. */
static enum status find_checkpoint(const struct alone_folder_config *cfg,
                                   struct checkpoint_restore **found)
{
    const char *path = cfg->restore ? cfg->restore : cfg->path;
    struct checkpoint_restore *r = NULL;
    enum status st = checkpoint_restore_find(path, &r);
    if (st == ST_NOT_FOUND && !cfg->restore)
        return ST_OK;
    if (st == ST_NOT_FOUND)
        LOG_E("--restore: there is no checkpoint in %s", path);
    if (st != ST_OK)
        return st;
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(r);
    const struct checkpoint_manifest *before = *found ? checkpoint_restore_manifest(*found) : NULL;
    if (before && before->generation == m->generation && before->step == m->step) {
        checkpoint_restore_close(r);
        return ST_OK;
    }
    checkpoint_restore_close(*found);
    *found = r;
    LOG_I("found a checkpoint at step %" PRId64 ": %s", m->step, path);
    return check_job(cfg, m);
}

/* Loads the checkpoint into the updates. If r is NULL, training starts at step 0. */
static enum status restore_updates(struct alone_folder *f, const struct alone_folder_config *cfg,
                                   const struct checkpoint_restore *r)
{
    enum status st = ST_OK;
    if (!r)
        return ST_OK;
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(r);
    TRY(load_checkpoint(cfg, r));
    f->step = m->step;
    f->position = checkpoint_manifest_position(m);
    f->rounding = m->job.rounding;
    updates_resume(cfg->updates, f->step, f->position);
done:
    return st;
}

static enum status claim_folder(struct alone_folder *f)
{
    enum status st =
        checkpoint_folder_claim(f->path, process_incarnation(), f->name, 0, &f->lease, &f->lease);
    f->generation = checkpoint_term(f->lease.epoch, 1);
    return st;
}

/* Returns the restores before the checkpoints of this process. r: the checkpoint from which it
 * continues; NULL: none. One of another folder counts as the beginning of the job, because its ids
 * mean nothing here. */
static struct checkpoint_lineage lineage_of(const struct alone_folder *f,
                                            struct checkpoint_restore *r)
{
    if (r)
        checkpoint_restore_note_home(r, f->path);
    if (!r || !checkpoint_restore_is_home(r))
        return checkpoint_lineage_begin(f->generation);
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(r);
    return checkpoint_lineage_resume(&m->lineage, f->generation,
                                     (struct checkpoint_id){m->generation, m->step});
}

enum status alone_folder_open(const struct alone_folder_config *cfg, struct alone_folder *out)
{
    struct alone_folder f = {.path = cfg->path, .lock_fd = -1};
    struct checkpoint_restore *found = NULL;
    enum status st = ST_OK;
    snprintf(f.name, sizeof f.name, OWNER_ALONE_PREFIX "%.64s:%ld", cfg->host, (long)getpid());
    TRY(checkpoint_folder_make(cfg->path));
    TRY(checkpoint_owner_check(cfg->path, NULL, cfg->take_over, &f.lease));
    TRY(lock_folder(&f, cfg->take_over));
    TRY(find_checkpoint(cfg, &found)); /* if the start fails here, the folder keeps its owner */
    TRY(restore_updates(&f, cfg, found));
    const struct checkpoint_restore *before = found;
    if (checkpoint_folder_id(cfg->path, f.id) != ST_OK)
        f.id[0] = 0;
    TRY(claim_folder(&f));
    TRY(find_checkpoint(cfg,
                        /* the previous owner may have written a checkpoint before the claim */
                        &found));
    if (found != before)
        TRY(restore_updates(&f, cfg, found));
    f.lineage = lineage_of(&f, found);
    if (f.lock_fd < 0)
        TRY(replace_lock(&f));
    const struct checkpoint_sweep sweep = {.owner = &f.lease};
    if (checkpoint_retention_sweep(cfg->path, &sweep) != ST_OK)
        LOG_W("%s: cannot delete old checkpoint files", cfg->path);
done:
    checkpoint_restore_close(found);
    if (st == ST_OK)
        *out = f;
    else
        alone_folder_close(&f);
    return st;
}

void alone_folder_close(struct alone_folder *f)
{
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    f->lock_fd = -1;
}
