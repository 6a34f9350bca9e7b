/* ps/coordinator/coordinator_disk.c - carries out the coordinator's orders to the checkpoint
 * folder, in a thread of its own. A disk that hangs delays only this thread and the orders that
 * wait for it. If the thread still hangs when the process exits, it is abandoned. */
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "checkpoint/folder.h"
#include "files/durable.h"
#include "ps/coordinator/coordinator_disk_impl.h"
#include "ps/coordinator/coordinator_times.h"
#include "ps/coordinator/plan_applier.h"
#include "ps/service/planner.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHECK_MS = 60000, /* time for other servers' files to appear on a network folder */
    LEAVE_MS = 2000,
    MEMORY_MS = 50, /* retry interval after a failed allocation */
};

static void free_order(struct coordinator_disk_request *o)
{
    free(o->files);
    free(o->own);
    free(o->trained_on);
    coordinator_folders_free(&o->folders);
    net_plan_free(o->plan);
}

void coordinator_disk_post(struct coordinator_disk *d, const struct coordinator_mail *m,
                           struct checkpoint_restore *found, const char *name)
{
    pthread_mutex_lock(&d->lock);
    struct coordinator_shell *l = d->l;
    if (l) {
        pthread_mutex_lock(&l->lock);
        if (name) {
            struct checkpoint_restore *before = l->disk_found;
            l->disk_found = found;
            found = before; /* closed below without the locks, because that may last long */
            snprintf(l->disk_name, sizeof l->disk_name, "%s", name);
        }
        coordinator_shell_post(l, m);
        pthread_mutex_unlock(&l->lock);
    }
    pthread_mutex_unlock(&d->lock);
    checkpoint_restore_close(found);
}

/* Reads the folder's id if that failed at the start. Servers compare the id with that of their own
 * folder. */
static void reread_folder_id(struct coordinator_disk *d)
{
    if (d->folder_id[0] || checkpoint_folder_id(d->folder, d->folder_id) != ST_OK)
        return;
    pthread_mutex_lock(&d->lock);
    if (d->l) {
        pthread_mutex_lock(&d->l->lock);
        memcpy(d->l->folder_id, d->folder_id, sizeof d->folder_id);
        pthread_mutex_unlock(&d->l->lock);
    }
    pthread_mutex_unlock(&d->lock);
}

static void record_epoch(struct coordinator_disk *d, struct coordinator_disk_request *o)
{
    struct coordinator_mail m = {.kind = COORDINATOR_DISK, .op = o->op};
    m.st = d->lease.epoch ? checkpoint_folder_still_owner(d->folder, &d->lease) : ST_OK;
    if (m.st == ST_OK)
        m.st = checkpoint_folder_claim(d->folder, d->incarnation, d->address, o->epoch - 1,
                                       d->lease.epoch ? &d->lease : &d->looked_at, &d->lease);
    if (m.st == ST_BUSY) /* another process has claimed the folder */
        m.st = ST_REFUSED;
    m.epoch = d->lease.epoch;
    if (m.st == ST_OK && d->first_epoch == 0) {
        d->first_epoch = d->lease.epoch;
        coordinator_find_first(d, o); /* the last owner may have written a newer checkpoint */
    }
    if (m.st == ST_OK)
        reread_folder_id(d);
    coordinator_disk_post(d, &m, NULL, NULL);
}

static bool wait_until(void *ctx, int64_t until_ns)
{
    struct coordinator_disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    while (!d->stopping && clock_cond_wait(&d->wake, &d->lock, until_ns) == 0)
        ;
    int stopping = d->stopping;
    pthread_mutex_unlock(&d->lock);
    return stopping;
}

/* Protects the checkpoints in use, because the sweep after a late manifest would delete older ones:
 * the checkpoint of the plan in force, which servers read until all are in its generation, and a
 * found checkpoint, which the next plan uses. */
static void spare_checkpoints(struct coordinator_disk *d, struct checkpoint_sweep *sweep_folder)
{
    pthread_mutex_lock(&d->lock);
    struct coordinator_shell *l = d->l;
    if (l) {
        pthread_mutex_lock(&l->lock);
        const struct net_plan *p = l->plan;
        if (p && p->source == PLAN_CHECKPOINT &&
            coordinator_view_settled(l->state) != p->generation) {
            char name[CONTROL_TEXT_BYTES];
            struct checkpoint_name is;
            const char *mark = strstr(p->restore, PLAN_RESTORE_MARK);
            snprintf(name, sizeof name, "%.*s",
                     (int)(mark ? (size_t)(mark - p->restore) : strlen(p->restore)), p->restore);
            checkpoint_name_parse(name, &is);
            sweep_folder->base = is.id;
            if (is.id.generation == 0) /* a name of epoch 0 does not contain the generation */
                sweep_folder->keep = 0;
        }
        if (l->disk_found) {
            const struct checkpoint_manifest *m = checkpoint_restore_manifest(l->disk_found);
            sweep_folder->found = (struct checkpoint_id){m->generation, m->step};
        }
        pthread_mutex_unlock(&l->lock);
    }
    pthread_mutex_unlock(&d->lock);
}

/* Writes the manifest, with the last contribution of each member as the plan records it. */
static enum status put_manifest(const char *folder, struct checkpoint_manifest *m,
                                const struct net_plan *p)
{
    enum status st =
        net_plan_contributions(p, m->step, &m->progress.contributed, &m->progress.n_contributed);
    if (st == ST_OK)
        st = checkpoint_manifest_write(folder, m);
    free(m->progress.contributed);
    return st;
}

static enum status write_manifest(struct coordinator_disk *d,
                                  const struct coordinator_disk_request *o)
{
    const struct net_plan *p = o->plan;
    enum status st = ST_OK;
    char why[MANIFEST_WHY_BYTES] = "";
    double bytes = 0;
    struct checkpoint_manifest m = {.step = o->step,
                                    .generation = p->generation,
                                    .job = p->job,
                                    .chunks = p->chunks,
                                    .n_files = o->n_files,
                                    .files = o->files,
                                    .shard = p->shard,
                                    .trained_on = o->trained_on,
                                    .progress = {.known = 1,
                                                 .position = net_plan_position(p, o->step),
                                                 .n_members = p->n_members,
                                                 .member = p->member,
                                                 .servers = p->servers,
                                                 .parent = o->parent},
                                    .lineage = o->lineage};
    unsigned char *here = calloc((size_t)o->n_files + 1, 1);
    for (int i = 0; here && i < o->n_files; i++) {
        here[i] = !o->own[i][0];
        m.folder = here[i] ? m.folder : o->own;
    }
    const struct checkpoint_folder_check check = {
        .here = here, .deadline_ns = clock_deadline_ns(CHECK_MS), .wait = wait_until, .ctx = d};
    struct checkpoint_sweep sweep_folder = {
        .owner = &d->lease, .keep = d->keep, .writing = {p->generation, o->step}};
    st = here ? checkpoint_folder_check_files(d->folder, &m, &check, why) : ST_NOMEM;
    free(here);
    if (st != ST_OK)
        LOG_W("checkpoint at step %" PRId64 ": %s: %s", o->step, status_text(st), why);
    if (st == ST_OK)
        st = checkpoint_folder_still_owner(d->folder, &d->lease);
    if (st == ST_OK)
        st = put_manifest(d->folder, &m, p);
    for (int i = 0; i < o->n_files; i++)
        bytes += (double)o->files[i].bytes;
    if (st == ST_OK)
        LOG_I("checkpoint at step %" PRId64 ": %s, %.1f MB", o->step, d->folder, bytes * 1e-6);
    if (st == ST_OK)
        reread_folder_id(d);
    spare_checkpoints(d, &sweep_folder);
    if (st != ST_REFUSED && checkpoint_retention_sweep(d->folder, &sweep_folder) != ST_OK)
        LOG_W("checkpoint at step %" PRId64 ": cannot delete old files in %s", o->step, d->folder);
    return st;
}

/* Deletes the files of the failed order. No manifest is deleted, since the failed order wrote
 * none that could replace an older one. */
static enum status sweep_folder(struct coordinator_disk *d,
                                const struct coordinator_disk_request *o)
{
    const struct checkpoint_sweep sweep_folder = {.owner = &d->lease,
                                                  .given_up = {o->generation, o->step}};
    return checkpoint_retention_sweep(d->folder, &sweep_folder);
}

/* Records the best evaluation. The checkpoint of the previous best is deleted like any other. */
static enum status record_best(struct coordinator_disk *d, const struct coordinator_disk_request *o)
{
    struct checkpoint_sweep sweep_folder = {
        .owner = &d->lease, .keep = d->keep, .writing = {o->best.generation, o->best.step}};
    enum status st = checkpoint_folder_still_owner(d->folder, &d->lease);
    if (st == ST_OK)
        st = coordinator_evaluation_record_best(d->folder, &o->best);
    spare_checkpoints(d, &sweep_folder);
    if (st == ST_OK && checkpoint_retention_sweep(d->folder, &sweep_folder) != ST_OK)
        LOG_W("%s: cannot delete old checkpoint files", d->folder);
    return st;
}

/* Passes the list of kept checkpoints to the shell: servers with folders of their own must not
 * delete these checkpoints. A folder that failed or was replaced has no valid list. */
static void report_kept(struct coordinator_disk *d, const struct coordinator_disk_request *o,
                        enum status made)
{
    struct checkpoint_manifest_place *list = NULL;
    struct coordinator_saved kept = {.known = 1};
    int n = 0;
    if (!o->lists || made != ST_OK ||
        checkpoint_retention_list_of(d->folder, d->folder_id, &list, &n) != ST_OK)
        return;
    kept.older_stay = n > CONTROL_MAX_KEPT;
    for (int i = 0; i < n && i < CONTROL_MAX_KEPT; i++)
        kept.list[kept.n++] = (struct net_kept){list[i].id.generation, list[i].id.step};
    free(list);
    pthread_mutex_lock(&d->lock);
    if (d->l) {
        pthread_mutex_lock(&d->l->lock);
        d->l->saved = kept;
        pthread_mutex_unlock(&d->l->lock);
    }
    pthread_mutex_unlock(&d->lock);
}

/* Checks that this process owns the folder that it began with. The mount point of a folder that is
 * not mounted has no lease: checkpoint_folder_still_owner() alone would record one there. */
static enum status verify_owner(struct coordinator_disk *d)
{
    enum status st = d->folder_id[0] ? checkpoint_folder_is(d->folder, d->folder_id) : ST_OK;
    return st == ST_OK ? checkpoint_folder_still_owner(d->folder, &d->lease) : st;
}

/* Writes --ps_hosts as it was given, the present servers, and the history. Logs the first failure
 * of a list, not those of its retries. */
static enum status record_servers(struct coordinator_disk *d, const char *servers,
                                  int failed_before)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/servers", d->folder);
    log_mute(failed_before);
    enum status st = verify_owner(d);
    if (st == ST_OK)
        st = durable_put(path, servers, strlen(servers));
    log_mute(0);
    if (st == ST_OK && failed_before)
        LOG_I("%s: written after a retry", path);
    else if (st != ST_OK && st != ST_REFUSED && !failed_before)
        LOG_W(
            "%s: not written, retrying every %d s; if ps:0 is restarted before the file is written, it uses an older list of servers",
            path, RECORD_MS / 1000);
    return st;
}

/* Keeps a list that could not be written, unless a newer one exists. If another process owns the
 * folder, that process uses the list that it found in the folder: then this process does not write
 * its list again, and lets no drained server exit. The caller holds the lock. */
static void keep_servers(struct coordinator_disk *d, char *servers, enum status st)
{
    if (d->servers) {
        free(servers);
        return;
    }
    d->servers = servers;
    d->servers_failed = 1;
    d->servers_at_ns = st == ST_REFUSED ? INT64_MAX : clock_deadline_ns(RECORD_MS);
}

static void carry_out(struct coordinator_disk *d, struct coordinator_disk_request *o)
{
    struct coordinator_mail m = {.kind = COORDINATOR_DISK, .op = o->op, .step = o->step};
    if (o->searches) {
        coordinator_find_first(d, o);
    } else if (o->what == DISK_EPOCH) {
        record_epoch(d, o);
    } else if (o->what == DISK_FIND) {
        coordinator_find_next(d, o);
    } else if (o->what == DISK_SWEEP) {
        m.st = sweep_folder(d, o);
        m.step = -1;
        report_kept(d, o, m.st);
        coordinator_disk_post(d, &m, NULL, NULL);
    } else if (o->what == DISK_OWNER) {
        m.st = verify_owner(d);
        m.step = -1;
        coordinator_disk_post(d, &m, NULL, NULL);
    } else if (o->what == DISK_BEST) {
        m.st = record_best(d, o);
        report_kept(d, o, m.st);
        coordinator_disk_post(d, &m, NULL, NULL);
    } else {
        m.st = write_manifest(d, o);
        report_kept(d, o, m.st);
        coordinator_disk_post(d, &m, NULL, NULL);
    }
    free_order(o);
}

static void *disk_main(void *arg)
{
    struct coordinator_disk *d = arg;
    pthread_mutex_lock(&d->lock);
    while (!d->stopping) {
        bool is_due = d->servers && clock_now_ns() >= d->servers_at_ns;
        if (d->n == 0 && !is_due) {
            clock_cond_wait(&d->wake, &d->lock, d->servers ? d->servers_at_ns : INT64_MAX);
            continue;
        }
        char *servers = is_due ? d->servers : NULL;
        struct coordinator_disk_request o = d->order[0];
        enum status st = ST_OK;
        int failed_before = d->servers_failed;
        if (is_due)
            d->servers = NULL;
        else
            memmove(d->order, d->order + 1, (size_t)--d->n * sizeof *d->order);
        d->records = is_due;
        d->busy = 1;
        pthread_mutex_unlock(&d->lock);
        if (is_due)
            st = record_servers(d, servers, failed_before);
        else
            carry_out(d, &o);
        pthread_mutex_lock(&d->lock);
        d->busy = d->records = 0;
        if (st == ST_OK)
            free(servers);
        else
            keep_servers(d, servers, st);
        pthread_cond_broadcast(&d->wake);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Queues the order, which the queue then owns. Returns false if the queue is full; then the order
 * is freed. */
static bool put_order(struct coordinator_disk *d, struct coordinator_disk_request *o)
{
    pthread_mutex_lock(&d->lock);
    int room = d->n < COORDINATOR_DISK_ORDERS;
    if (room)
        d->order[d->n++] = *o;
    pthread_cond_broadcast(&d->wake);
    pthread_mutex_unlock(&d->lock);
    if (!room)
        free_order(o);
    return room;
}

/* Copies the manifest's data into the order: the plan may be gone when the disk is ready. */
static enum status fill_manifest(struct coordinator_shell *l, struct coordinator_disk_request *o)
{
    struct coordinator_manifest_view v;
    enum status st = ST_OK;
    coordinator_view_manifest(l->state, &v);
    const struct net_plan *p = coordinator_plan_of(l, v.generation);
    o->step = v.step;
    o->n_files = v.n_files;
    TRY(p && p->servers.n == v.n_files ? ST_OK : ST_NOT_FOUND);
    TRY(net_plan_copy(p, &o->plan));
    o->lineage = coordinator_plan_lineage(l, v.generation);
    o->files = calloc((size_t)v.n_files + 1, sizeof *o->files);
    TRY(o->files ? ST_OK : ST_NOMEM);
    o->own = calloc((size_t)v.n_files + 1, sizeof *o->own);
    TRY(o->own ? ST_OK : ST_NOMEM);
    for (int i = 0; i < v.n_files; i++) {
        const struct coordinator_folder *at =
            coordinator_folders_at(&l->folders, p->servers.addr[i]);
        o->files[i] = (struct safetensors_written){v.file[i].bytes, v.file[i].crc32c};
        if (i > 0 && at && at->is_own)
            memcpy(o->own[i], at->id, sizeof o->own[i]);
    }
    TRY(join_trained_on(l->cfg.service, &o->trained_on));
    coordinator_folders_keep(l, v.generation, v.step);
    if (l->cfg.region)
        l->cfg.region->parent_at(l->cfg.region->ctx, v.generation, v.step, &o->parent);
done:
    return st;
}

static void fill_sweep(const struct coordinator_shell *l, struct coordinator_disk_request *o)
{
    struct coordinator_manifest_view v;
    coordinator_view_manifest(l->state, &v);
    o->generation = v.generation;
    o->step = v.step;
}

void coordinator_disk_order(struct coordinator_shell *l, const struct coordinator_action *a)
{
    struct coordinator_disk_request o = {.op = a->op, .what = a->disk, .epoch = a->value};
    struct coordinator_mail failed = {.kind = COORDINATOR_DISK, .op = a->op, .st = ST_OK};
    if (a->disk == DISK_MANIFEST)
        failed.st = fill_manifest(l, &o);
    if (a->disk == DISK_SWEEP)
        fill_sweep(l, &o);
    if (a->disk == DISK_BEST)
        evaluation_new_best(l->state, &o.best);
    if (a->disk == DISK_FIND) {
        o.before = coordinator_plan_checkpoint(l, a->value);
        o.history = l->cfg.history;
        failed.st = coordinator_folders_copy(l, &o.folders);
    }
    o.lists = coordinator_folders_any_own(&l->folders);
    failed.step = o.step;
    if (failed.st != ST_OK)
        free_order(&o);
    else if (!put_order(l->disk, &o))
        failed.st = ST_BUSY;
    if (failed.st == ST_OK)
        return;
    pthread_mutex_lock(&l->lock);
    coordinator_shell_post(l, &failed);
    pthread_mutex_unlock(&l->lock);
}

void coordinator_disk_search(struct coordinator_shell *l)
{
    struct coordinator_disk_request o = {.searches = 1};
    if (coordinator_folders_copy(l, &o.folders) == ST_OK)
        put_order(l->disk, &o);
}

static void print_list(FILE *f, const struct hosts *h)
{
    for (int i = 0; i < h->n; i++)
        fprintf(f, "%s%s", i ? "," : "", h->addr[i]);
    fprintf(f, "\n");
}

/* Returns the text of the file `servers`, or NULL if there is no memory for it. */
static char *servers_text(const struct coordinator_shell *l, const struct hosts *servers)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return NULL;
    print_list(f, l->cfg.hosts);
    print_list(f, servers);
    checkpoint_history_print(&l->cfg.history, f);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

void coordinator_disk_servers(struct coordinator_shell *l, const struct hosts *servers)
{
    struct coordinator_disk *d = l->disk;
    char *text, *older;
    if (!l->cfg.folder)
        return;
    while (!(text = servers_text(l, servers))) { /* the list must be recorded */
        LOG_FEW("ps:0 is out of memory for the list of servers; retrying");
        clock_sleep_ms(MEMORY_MS);
    }
    l->held_ns = 0;
    pthread_mutex_lock(&d->lock);
    older = d->servers; /* a list that the disk has not recorded yet; only the newest list counts */
    d->servers = text;
    d->servers_failed = 0;
    d->servers_at_ns = 0;
    pthread_cond_broadcast(&d->wake);
    pthread_mutex_unlock(&d->lock);
    free(older);
}

bool coordinator_disk_records_servers(struct coordinator_shell *l, const char *drained)
{
    struct coordinator_disk *d = l->disk;
    if (!d)
        return false;
    pthread_mutex_lock(&d->lock);
    int records = d->servers != NULL || d->records;
    const char *why = d->servers_failed ? "the write failed and is retried"
                      : d->records      ? "the write has not finished"
                                        : "the disk is still busy with an earlier order";
    pthread_mutex_unlock(&d->lock);
    if (!records)
        l->held_ns = 0;
    else if (!l->held_ns)
        l->held_ns = clock_now_ns();
    else if (clock_now_ns() - l->held_ns >= LINE_MS * 1000000LL)
        LOG_FEW(
            "the server at %s has moved its chunks to the other servers, and exits when ps:0 has removed it from the list in %s/servers: %s",
            drained, d->folder, why);
    return records;
}

enum status coordinator_disk_create(struct coordinator_shell *l)
{
    struct coordinator_disk *d = calloc(1, sizeof *d);
    if (!d)
        return ST_NOMEM;
    d->l = l;
    d->folder = l->cfg.folder;
    snprintf(d->folder_id, sizeof d->folder_id, "%s", l->folder_id);
    d->restore_path = l->cfg.restore_path;
    d->address = l->cfg.hosts->addr[0];
    d->keep = l->cfg.keep;
    d->incarnation = l->incarnation;
    if (l->cfg.is_claimed)
        d->lease = l->cfg.lease;
    d->looked_at = l->cfg.lease;
    d->first_epoch = d->lease.epoch;
    pthread_mutex_init(&d->lock, NULL);
    clock_cond_init(&d->wake);
    l->disk = d;
    return ST_OK;
}

enum status coordinator_disk_start(struct coordinator_shell *l)
{
    int err = pthread_create(&l->disk_thread, NULL, disk_main, l->disk);
    l->has_disk_thread = err == 0;
    if (err)
        LOG_E("the thread for checkpoints cannot be started: %s", threads_error(err));
    return err ? ST_NOMEM : ST_OK;
}

void coordinator_disk_destroy(struct coordinator_shell *l)
{
    struct coordinator_disk *d = l->disk;
    int64_t deadline = clock_deadline_ns(LEAVE_MS);
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stopping = 1;
    pthread_cond_broadcast(&d->wake);
    while (d->busy && clock_cond_wait(&d->wake, &d->lock, deadline) == 0)
        ;
    int hangs = d->busy;
    d->l = NULL;
    pthread_mutex_unlock(&d->lock);
    if (hangs) { /* the thread and all that it uses end with the process */
        LOG_W(
            "the file system of %s does not answer: this process exits without waiting for its write",
            d->folder);
        pthread_detach(l->disk_thread);
        return;
    }
    if (l->has_disk_thread)
        pthread_join(l->disk_thread, NULL);
    while (d->n > 0)
        free_order(&d->order[--d->n]);
    free(d->servers);
    pthread_cond_destroy(&d->wake);
    pthread_mutex_destroy(&d->lock);
    free(d);
}
