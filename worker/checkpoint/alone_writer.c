/* worker/checkpoint/alone_writer.c - alone_writer_at_step copies the state under the lock and wakes
 * the thread, which writes the copy to a file. While `busy` is set, only the thread may use the
 * copy; otherwise only the holder of the lock. */
#include "worker/checkpoint/alone_writer.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/slow_wait.h"
#include "base/threads.h"
#include "checkpoint/shard_file.h"
#include "kernels/vector/finite.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LOWEST_PRIORITY = 19, QUIET_MS = 3000 };

struct alone_writer {
    struct alone_writer_config cfg;
    struct net_job job;
    struct alone_folder folder;
    struct updates_state state;
    float *values, *slots; /* copy of the state */
    struct checkpoint_shard_chunk *list;
    /* [n_chunks] index of each chunk's file: always 0, because one file has all chunks */
    int *shard;
    char *server;
    pthread_t thread;
    int runs; /* the thread was started */

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t wake;
    int busy, ending, stop_soon, fenced;
    enum status written; /* result of writing the last copy */
    bool is_last;        /* the copy has the state after the job's last step */
    int64_t copied;      /* step of the copy; at first the step from which training continued */
    int64_t next_ns;
    bool is_best; /* the copy will be the best checkpoint; then `best` is set, except for its id */
    int best_is_kept;
    struct checkpoint_best best;
};

static void fill_file(const struct alone_writer *s, int64_t step, struct checkpoint_shard_file *f)
{
    static int member = 0;
    const struct alone_folder *from = &s->folder;
    struct updates_state state;
    CHECK(updates_state(s->cfg.folder.updates, &state));
    *f = (struct checkpoint_shard_file){
        .folder = from->path,
        .step = step,
        .generation = from->generation,
        .n_servers = 1,
        .job = &s->job,
        .chunks = s->cfg.folder.chunks,
        .progress = {.known = 1,
                     .position = net_place_position(&state.place, s->job.batch, step),
                     .n_members = 1,
                     .member = &member,
                     .servers = {1, (char **)&s->server}},
    };
    memcpy(f->home, from->id, sizeof f->home);
}

static enum status write_manifest(const struct alone_writer *s,
                                  const struct checkpoint_shard_file *f,
                                  struct safetensors_written *file)
{
    char why[MANIFEST_WHY_BYTES] = "";
    const struct checkpoint_manifest m = {.step = f->step,
                                          .generation = f->generation,
                                          .job = s->job,
                                          .chunks = (struct chunks *)f->chunks,
                                          .n_files = 1,
                                          .files = file,
                                          .shard = s->shard,
                                          .trained_on = (char *)(uintptr_t)s->cfg.folder.trained_on,
                                          .progress = f->progress,
                                          .lineage = s->folder.lineage};
    const struct checkpoint_folder_check here = {.here = NULL};
    enum status st = checkpoint_folder_check_files(f->folder, &m, &here, why);
    if (st != ST_OK)
        LOG_W("checkpoint at step %" PRId64 ": %s: %s", f->step, status_text(st), why);
    if (st == ST_OK)
        st = checkpoint_folder_still_owner(f->folder, &s->folder.lease);
    if (st == ST_OK)
        st = checkpoint_manifest_write(f->folder, &m);
    return st;
}

/* Writes the copy of this step as a checkpoint. If best is not NULL, this is also the best
 * checkpoint, and *kept becomes 1 if the folder's record of the best checkpoint was written. */
static enum status save(struct alone_writer *s, int64_t step, bool is_last,
                        struct checkpoint_best *best, int *kept)
{
    struct checkpoint_shard_file f;
    struct safetensors_written file;
    fill_file(s, step, &f);
    for (int i = 0; i < f.chunks->n_chunks; i++)
        s->list[i].version = step;
    enum status st = checkpoint_shard_file_write(&f, s->list, f.chunks->n_chunks, &file);
    if (st == ST_OK)
        st = write_manifest(s, &f, &file);
    const struct checkpoint_id id = {f.generation, step};
    if (st == ST_OK && best)
        st = checkpoint_folder_still_owner(f.folder, &s->folder.lease);
    if (st == ST_OK && best) {
        best->id = id;
        *kept = checkpoint_best_write(f.folder, best) == ST_OK;
        if (!*kept)
            LOG_W("%s/best: not written: the checkpoint at step %" PRId64
                  " may be deleted although it is the best",
                  f.folder, step);
    }
    struct checkpoint_sweep sweep = {.owner = &s->folder.lease};
    if (st == ST_OK) {
        LOG_I("checkpoint at step %" PRId64 ": %s, %.1f MB", step, f.folder,
              (double)file.bytes * 1e-6);
        sweep.keep = s->cfg.keep;
        sweep.writing = id;
    } else if (st != ST_REFUSED) {
        if (is_last)
            LOG_W("checkpoint at step %" PRId64 " given up", step);
        else
            LOG_W("checkpoint at step %" PRId64 " given up; training continues", step);
        sweep.given_up = id;
    }
    enum status swept = st == ST_REFUSED ? st : checkpoint_retention_sweep(f.folder, &sweep);
    if (swept != ST_OK && swept != ST_REFUSED)
        LOG_W("checkpoint at step %" PRId64 ": cannot delete old checkpoint files in %s", step,
              f.folder);
    return swept == ST_REFUSED ? swept : st;
}

static void *saver_main(void *arg)
{
    struct alone_writer *s = arg;
    /* on Linux, this changes only this thread's priority */
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOWEST_PRIORITY);
    pthread_mutex_lock(&s->lock);
    while (!s->ending || s->busy) {
        if (!s->busy) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        int64_t step = s->copied;
        struct checkpoint_best best = s->best, *is_best = s->is_best ? &best : NULL;
        bool is_last = s->is_last;
        s->is_best = false;
        pthread_mutex_unlock(&s->lock);
        int kept = 0;
        enum status st = save(s, step, is_last, is_best, &kept);
        pthread_mutex_lock(&s->lock);
        s->busy = 0;
        s->best_is_kept |= kept;
        s->written = st;
        if (st != ST_OK)
            s->copied = -1;
        s->fenced |= st == ST_REFUSED;
        pthread_cond_broadcast(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static enum status allocate_memory(struct alone_writer *s)
{
    const struct chunks *c = s->cfg.folder.chunks;
    size_t n = (size_t)c->n_elems, n_slots = (size_t)s->state.n_slots;
    s->values = malloc(n * sizeof(float));
    s->slots = malloc(n * (n_slots ? n_slots : 1) * sizeof(float));
    s->list = calloc((size_t)c->n_chunks, sizeof *s->list);
    s->shard = calloc((size_t)c->n_chunks, sizeof *s->shard);
    if (!s->values || !s->slots || !s->list || !s->shard) {
        LOG_E("--checkpoint_dir: out of memory for a copy of %" PRId64 " parameters", c->n_elems);
        return ST_NOMEM;
    }
    for (int i = 0; i < c->n_chunks; i++) {
        const struct net_chunk *k = &c->chunks[i];
        int has = n_slots > 0 && c->params[k->param].rule != PARAM_AVERAGE;
        s->list[i] = (struct checkpoint_shard_chunk){
            .chunk = i,
            .value = s->values + k->first,
            .slots = has ? s->slots + (int64_t)n_slots * k->first : NULL,
            /* counts of updates without a gradient; training does not change them */
            .idle = updates_idle(s->cfg.folder.updates, i)};
    }
    return ST_OK;
}

const struct net_rounding *alone_writer_rounding(const struct alone_writer *s)
{
    return &s->job.rounding;
}

enum status alone_writer_create(const struct alone_writer_config *cfg, struct alone_writer **out)
{
    enum status st = ST_OK;
    struct alone_writer *s = calloc(1, sizeof *s);
    if (!s) {
        LOG_E("--checkpoint_dir: out of memory");
        return ST_NOMEM;
    }
    s->cfg = *cfg;
    s->job = *cfg->folder.job;
    s->cfg.folder.job = &s->job;
    s->folder.lock_fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->wake);
    CHECK(updates_state(cfg->folder.updates, &s->state));
    TRY(allocate_memory(s));
    struct slow_wait *wait = slow_wait_begin(s->cfg.folder.path, -1, NULL, NULL);
    st = alone_folder_open(&s->cfg.folder, &s->folder);
    slow_wait_end(wait);
    TRY(st);
    if (s->folder.rounding.n_bytes > 0)
        s->job.rounding = s->folder.rounding;
    s->server = s->folder.name;
    /* if --restore is set, this folder may have no checkpoint of the step from which training
     * continues */
    s->copied = cfg->folder.restore ? -1 : s->folder.step;
    s->next_ns = clock_deadline_ns(cfg->save_ms);
    int err = pthread_create(&s->thread, NULL, saver_main, s);
    if (err) {
        LOG_E("the thread that writes checkpoints cannot be started: %s", threads_error(err));
        TRY(ST_NOMEM);
    }
    s->runs = 1;
done:
    if (st == ST_OK)
        *out = s;
    else
        alone_writer_destroy(s);
    return st;
}

void alone_writer_destroy(struct alone_writer *s)
{
    if (!s)
        return;
    if (s->runs) {
        pthread_mutex_lock(&s->lock);
        s->ending = 1;
        pthread_cond_broadcast(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    alone_folder_close(&s->folder);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s->values);
    free(s->slots);
    free(s->list);
    free(s->shard);
    free(s);
}

/* Copies the state. Called under the lock, while the thread is not busy. A state with values that
 * are not finite never replaces a checkpoint. */
static void copy(struct alone_writer *s, int64_t step)
{
    size_t n_elems = (size_t)s->cfg.folder.chunks->n_elems, n = n_elems * sizeof(float);
    s->written = ST_OK;
    if (finite_first_bad(DTYPE_F32, s->state.params, n_elems) < n_elems) {
        LOG_W("no checkpoint at step %" PRId64 ": a parameter is not finite", step);
        s->is_best = false;
        return;
    }
    memcpy(s->values, s->state.params, n);
    memcpy(s->slots, s->state.slots, n * (size_t)s->state.n_slots);
    s->copied = step;
    s->busy = 1;
    s->next_ns = clock_deadline_ns(s->cfg.save_ms);
    pthread_cond_broadcast(&s->wake);
}

/* Waits until the thread has written the copy or failed. Logs a line if the wait is long. The
 * caller holds the lock. */
static void wait_until_written(struct alone_writer *s) REQUIRES(s->lock)
{
    int64_t line_ns = clock_deadline_ns(QUIET_MS);
    while (s->busy && clock_cond_wait(&s->wake, &s->lock, line_ns) == 0)
        ;
    if (s->busy)
        LOG_W("checkpoint at step %" PRId64
              ": still writing it to %s after %d s; this worker waits for it",
              s->copied, s->folder.path, QUIET_MS / 1000);
    while (s->busy)
        pthread_cond_wait(&s->wake, &s->lock);
}

/* Waits until the copy of the last step is written or cannot be written. ST_FULL, ST_IO: not
 * written, logged. If the state has values that are not finite (ST_INVALID), this was logged
 * before, and is no error here, because a restart would not write the state either. */
static enum status save_last(struct alone_writer *s, int64_t step) REQUIRES(s->lock)
{
    s->is_last = true;
    wait_until_written(s);
    if (s->copied != step && !s->fenced)
        copy(s, step);
    wait_until_written(s);
    if (s->fenced || s->written == ST_OK || s->written == ST_INVALID)
        return s->fenced ? ST_REFUSED : ST_OK;
    LOG_E(
        "the last checkpoint, of step %" PRId64
        ", could not be written to %s: the steps since the previous checkpoint are lost. Free some space, then start this worker again with the same flags: it resumes from the newest checkpoint",
        step, s->folder.path);
    return s->written == ST_FULL ? ST_FULL : ST_IO;
}

enum status alone_writer_at_step(void *ctx, int64_t step)
{
    struct alone_writer *s = ctx;
    pthread_mutex_lock(&s->lock);
    int by_steps = s->cfg.save_steps > 0 && step % s->cfg.save_steps == 0;
    int by_time = s->cfg.save_ms > 0 && clock_now_ns() >= s->next_ns;
    if (s->stop_soon)
        save_last(s, step);
    else if (step != s->copied && (by_steps || by_time) && !s->busy && !s->fenced)
        copy(s, step);
    else if (step != s->copied && by_steps && s->busy)
        LOG_W("no checkpoint at step %" PRId64 ": an earlier one is still being written", step);
    enum status st = s->fenced ? ST_REFUSED : s->stop_soon ? ST_CANCELLED : ST_OK;
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum status alone_writer_best(struct alone_writer *s, int64_t step,
                              const struct checkpoint_best *best)
{
    pthread_mutex_lock(&s->lock);
    wait_until_written(s);
    if (!s->fenced) {
        s->is_best = true;
        s->best_is_kept = 0;
        s->best = *best;
        copy(s, step);
    }
    enum status st = s->fenced ? ST_REFUSED : ST_OK;
    pthread_mutex_unlock(&s->lock);
    return st;
}

bool alone_writer_best_is_kept(struct alone_writer *s)
{
    pthread_mutex_lock(&s->lock);
    wait_until_written(s);
    int kept = s->best_is_kept;
    pthread_mutex_unlock(&s->lock);
    return kept;
}

enum status alone_writer_found_best(const struct alone_writer *s, struct checkpoint_best *out)
{
    struct checkpoint_best best;
    enum status st = checkpoint_best_find(s->folder.path, s->cfg.folder.restore, &best);
    if (st == ST_OK && best.id.step > s->folder.step)
        st = ST_NOT_FOUND;
    if (st == ST_OK)
        *out = best;
    return st;
}

void alone_writer_stop_soon(struct alone_writer *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop_soon = 1;
    pthread_mutex_unlock(&s->lock);
}

enum status alone_writer_finish(struct alone_writer *s, int64_t step)
{
    pthread_mutex_lock(&s->lock);
    enum status st = save_last(s, step);
    pthread_mutex_unlock(&s->lock);
    return st;
}

void alone_writer_settle(struct alone_writer *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    wait_until_written(s);
    pthread_mutex_unlock(&s->lock);
}
