/* ps/checkpoint/own_folder.c - see own_folder.h. */
#include "ps/checkpoint/own_folder.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/threads.h"
#include "checkpoint/folder.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AGAIN_MS = 10000, MAX_LOOKS = 30, MAX_ORDERED = 16 };

struct kept_part {
    struct checkpoint_part part;
    bool is_own; /* this server wrote the part, at its address */
};

struct own_folder {
    struct own_folder_config cfg;
    pthread_t thread;

    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t wake;
    int begun, known, stopping;
    bool busy; /* the thread waits for the disk */
    bool left; /* the object was destroyed while the thread waited */
    int looks; /* consecutive reads of the folder in which some files could not be read */
    struct kept_part *parts; /* newest first */
    int n_parts;
    bool has_keep; /* `keep` is pending; this module owns its list */
    struct checkpoint_keep keep;
    char home[FOLDER_ID_BYTES];
    char id[FOLDER_ID_BYTES]; /* id of the folder; empty: none */
    /* how many requests to read the id were made, and how many were answered */
    int asked, answered;
    uint64_t n_ordered; /* number of orders so far; `ordered` has the last of them */
    struct checkpoint_id ordered[MAX_ORDERED];
    /* values of n_ordered when `keep` was requested, and when the sweep in progress was
     * requested */
    uint64_t keep_ordered, swept_ordered;
};

/* Checks a part's file. ST_OK: all its bytes are as they were written. ST_IO, ST_NOMEM: the file
 * could not be read, and may be intact. */
static enum status check(const struct own_folder *k, const struct checkpoint_part *p, int *is_own)
{
    char name[MANIFEST_NAME_BYTES], path[PATH_MAX], why[SAFETENSORS_WHY_BYTES];
    struct safetensors_file *f = NULL;
    checkpoint_manifest_file_name(p->id, p->server, p->n_servers, name);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", k->cfg.folder, name) >= sizeof path)
        return ST_INVALID;
    enum status st = safetensors_open_any(path, &f, why);
    if (st == ST_OK)
        st = safetensors_check(f, NULL, why);
    *is_own = st == ST_OK && checkpoint_part_is_from(f, p->server, k->cfg.address);
    safetensors_close(f);
    if (st != ST_OK)
        LOG_W("%s: skipped: %s", path, why);
    return st;
}

/* Adds a part. Returns false if there is no memory. The caller holds the lock. */
static bool add(struct own_folder *k, const struct checkpoint_part *part, int is_own)
{
    int at = 0;
    struct kept_part *p = realloc(k->parts, ((size_t)k->n_parts + 1) * sizeof *p);
    if (!p)
        return false;
    k->parts = p;
    while (at < k->n_parts && checkpoint_names_compare(p[at].part.id, part->id) > 0)
        at++;
    for (int i = at; i < k->n_parts && !checkpoint_names_compare(p[i].part.id, part->id); i++)
        if (p[i].part.server == part->server && p[i].part.n_servers == part->n_servers) {
            p[i] = (struct kept_part){*part, is_own};
            return true;
        }
    memmove(p + at + 1, p + at, (size_t)(k->n_parts - at) * sizeof *p);
    p[at] = (struct kept_part){*part, is_own};
    k->n_parts++;
    return true;
}

/* Acquires the lock again after a wait for the disk. Returns false if the own_folder was
 * destroyed. */
static bool end_work(struct own_folder *k) ACQUIRES(k->lock)
{
    pthread_mutex_lock(&k->lock);
    k->busy = 0;
    pthread_cond_broadcast(&k->wake);
    return !k->left;
}

static void begin_work(struct own_folder *k) RELEASES(k->lock)
{
    k->busy = 1;
    pthread_mutex_unlock(&k->lock);
}

/* Checks that the folder still has the known id: an empty list, or a missing file, may be due to a
 * folder that is not mounted. Only the thread calls this function, and only the thread changes the
 * id. */
static enum status still_is(const struct own_folder *k)
{
    return k->id[0] ? checkpoint_folder_is(k->cfg.folder, k->id) : ST_OK;
}

/* Reads the folder's id. Returns false if the own_folder was destroyed. */
static bool read_id(struct own_folder *k) REQUIRES(k->lock)
{
    char id[FOLDER_ID_BYTES];
    int asked = k->asked;
    begin_work(k);
    enum status st = checkpoint_folder_id(k->cfg.folder, id);
    if (!end_work(k))
        return false;
    k->answered = asked;
    if (st == ST_OK && strcmp(id, k->id) != 0) { /* the folder has another id than before */
        memcpy(k->id, id, sizeof k->id);
        k->known = k->n_parts = k->looks = 0;
    }
    return true;
}

/* Reads all data of the parts in the folder, and leaves out parts that stay unreadable. Returns
 * false if the own_folder was destroyed. */
static bool look(struct own_folder *k) REQUIRES(k->lock)
{
    struct checkpoint_part *list = NULL;
    int n = 0, n_whole = 0, n_unread = 0, is_own;
    struct kept_part *whole = NULL;
    begin_work(k);
    enum status st = checkpoint_parts_list(k->cfg.folder, NULL, &list, &n, &n_unread);
    if (st == ST_OK && !(whole = calloc((size_t)n + 1, sizeof *whole)))
        st = ST_NOMEM;
    for (int i = 0; i < n && whole; i++) {
        enum status one = check(k, &list[i], &is_own);
        n_unread += one == ST_IO || one == ST_NOMEM;
        if (one == ST_OK)
            whole[n_whole++] = (struct kept_part){list[i], is_own};
    }
    if (st == ST_OK)
        st = still_is(k);
    bool there = end_work(k);
    if (there && st == ST_OK && n_unread > 0 && ++k->looks < MAX_LOOKS)
        st = ST_IO;
    for (int i = 0; there && i < n_whole && st == ST_OK; i++)
        st = add(k, &whole[i].part, whole[i].is_own) ? ST_OK : ST_NOMEM;
    free(list);
    free(whole);
    if (!there)
        return false;
    k->known = st == ST_OK;
    k->looks = k->known ? 0 : k->looks;
    int64_t deadline = clock_deadline_ns(k->cfg.again_ms > 0 ? k->cfg.again_ms : AGAIN_MS);
    while (!k->known && !k->stopping && k->asked == k->answered &&
           clock_cond_wait(&k->wake, &k->lock, deadline) == 0)
        ;
    return true;
}

static bool is_gone(const struct own_folder *k, const struct checkpoint_part *p)
{
    char name[MANIFEST_NAME_BYTES], path[PATH_MAX];
    checkpoint_manifest_file_name(p->id, p->server, p->n_servers, name);
    snprintf(path, sizeof path, "%s/%s", k->cfg.folder, name);
    return access(path, F_OK) != 0 && errno == ENOENT;
}

static void forget(struct own_folder *k, const struct checkpoint_part *gone)
{
    int n = 0;
    for (int i = 0; i < k->n_parts; i++)
        if (checkpoint_names_compare(k->parts[i].part.id, gone->id) ||
            k->parts[i].part.server != gone->server ||
            k->parts[i].part.n_servers != gone->n_servers)
            k->parts[n++] = k->parts[i];
    k->n_parts = n;
}

/* Returns true if the checkpoint was ordered after the sweep in progress was requested. */
static bool needs(void *ctx, struct checkpoint_id id)
{
    struct own_folder *k = ctx;
    pthread_mutex_lock(&k->lock);
    /* If more orders followed the sweep's request than `ordered` holds, any checkpoint may be
     * one of them. */
    bool is_needed = k->n_ordered - k->swept_ordered > MAX_ORDERED;
    for (uint64_t i = k->swept_ordered; i < k->n_ordered && !is_needed; i++)
        is_needed = checkpoint_names_compare(k->ordered[i % MAX_ORDERED], id) == 0;
    pthread_mutex_unlock(&k->lock);
    return is_needed;
}

/* Carries out the pending sweep. Returns false if the own_folder was destroyed. */
static bool sweep(struct own_folder *k) REQUIRES(k->lock)
{
    struct checkpoint_keep keep = k->keep;
    char home[FOLDER_ID_BYTES];
    int n = k->n_parts, n_gone = 0;
    struct kept_part *gone = malloc(((size_t)n + 1) * sizeof *gone);
    if (gone && n > 0)
        memcpy(gone, k->parts, (size_t)n * sizeof *gone);
    memcpy(home, k->home, sizeof home);
    keep.home = home[0] ? home : NULL;
    keep.needs = needs;
    keep.ctx = k;
    k->swept_ordered = k->keep_ordered;
    k->has_keep = 0;
    begin_work(k);
    enum status st = checkpoint_parts_clean(k->cfg.folder, k->cfg.address, &keep);
    free((void *)keep.kept);
    for (int i = 0; gone && i < n; i++)
        if (is_gone(k, &gone[i].part))
            gone[n_gone++] = gone[i];
    if (st != ST_OK || still_is(k) != ST_OK) /* the id is compared after the removal */
        n_gone = 0;
    bool there = end_work(k);
    for (int i = 0; there && i < n_gone; i++)
        forget(k, &gone[i].part);
    free(gone);
    return there;
}

static void *keeper_main(void *arg)
{
    struct own_folder *k = arg;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        int reads = k->asked != k->answered && !k->stopping;
        int looks = k->begun && !k->known && !k->stopping, sweeps = k->known && k->has_keep;
        if (reads ? !read_id(k) : looks ? !look(k) : sweeps ? !sweep(k) : 0)
            break;
        if ((reads || looks || sweeps) && !k->stopping) {
            pthread_mutex_unlock(&k->lock);
            k->cfg.changed(k->cfg.ctx);
            pthread_mutex_lock(&k->lock);
        } else if (k->stopping && !(k->known && k->has_keep)) {
            break;
        } else if (!reads && !looks && !sweeps) {
            pthread_cond_wait(&k->wake, &k->lock);
        }
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

enum status own_folder_create(const struct own_folder_config *cfg, struct own_folder **out)
{
    struct own_folder *k = calloc(1, sizeof *k);
    if (!k)
        return ST_NOMEM;
    k->cfg = *cfg;
    snprintf(k->id, sizeof k->id, "%s", cfg->folder_id);
    pthread_mutex_init(&k->lock, NULL);
    clock_cond_init(&k->wake);
    int err = pthread_create(&k->thread, NULL, keeper_main, k);
    if (err) {
        LOG_E("the thread for this server's own folder, %s, cannot be started: %s", cfg->folder,
              threads_error(err));
        free(k);
        return ST_NOMEM;
    }
    *out = k;
    return ST_OK;
}

void own_folder_destroy(struct own_folder *k, int64_t deadline_ns)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->stopping = 1;
    pthread_cond_broadcast(&k->wake);
    while ((k->busy || (k->known && k->has_keep)) &&
           clock_cond_wait(&k->wake, &k->lock, deadline_ns) == 0)
        ;
    int left = k->left = k->busy;
    pthread_mutex_unlock(&k->lock);
    if (left) {
        LOG_W("the file system of %s does not answer: old checkpoint files in it are not deleted",
              k->cfg.folder);
        pthread_detach(k->thread);
        return;
    }
    pthread_join(k->thread, NULL);
    free((void *)(k->has_keep ? k->keep.kept : NULL));
    free(k->parts);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

void own_folder_begin(struct own_folder *k)
{
    pthread_mutex_lock(&k->lock);
    k->begun = 1;
    pthread_cond_broadcast(&k->wake);
    pthread_mutex_unlock(&k->lock);
}

void own_folder_add(struct own_folder *k, const struct checkpoint_part *written)
{
    pthread_mutex_lock(&k->lock);
    if (!add(k, written, 1))
        LOG_W(
            "out of memory: this server's part of the checkpoint at step %lld is usable only after a restart",
            (long long)written->id.step);
    pthread_mutex_unlock(&k->lock);
}

void own_folder_reread_id(struct own_folder *k)
{
    pthread_mutex_lock(&k->lock);
    k->asked++;
    pthread_cond_broadcast(&k->wake);
    pthread_mutex_unlock(&k->lock);
}

bool own_folder_id(struct own_folder *k, char id[FOLDER_ID_BYTES])
{
    pthread_mutex_lock(&k->lock);
    bool is_known = k->asked == k->answered;
    if (is_known)
        memcpy(id, k->id, sizeof k->id);
    pthread_mutex_unlock(&k->lock);
    return is_known;
}

void own_folder_note_order(struct own_folder *k, struct checkpoint_id ordered)
{
    pthread_mutex_lock(&k->lock);
    k->ordered[k->n_ordered++ % MAX_ORDERED] = ordered;
    pthread_mutex_unlock(&k->lock);
}

void own_folder_sweep(struct own_folder *k, const struct checkpoint_keep *keep)
{
    struct checkpoint_id *list = malloc(((size_t)keep->n_kept + 1) * sizeof *list);
    if (!list)
        return; /* the next request also removes the parts that this one left */
    if (keep->n_kept > 0)
        memcpy(list, keep->kept, (size_t)keep->n_kept * sizeof *list);
    pthread_mutex_lock(&k->lock);
    void *old = k->has_keep ? (void *)k->keep.kept : NULL;
    k->keep = *keep;
    k->keep.kept = list;
    snprintf(k->home, sizeof k->home, "%s", keep->home ? keep->home : "");
    k->has_keep = 1;
    k->keep_ordered = k->n_ordered;
    pthread_cond_broadcast(&k->wake);
    pthread_mutex_unlock(&k->lock);
    free(old);
}

/* Chooses the parts to report and returns their number. The caller holds the lock. */
static int choose(const struct own_folder *k, struct net_part *out)
{
    int n = 0, n_own = 0;
    for (int i = 0; i < k->n_parts; i++)
        n_own += k->parts[i].is_own;
    int n_others = n_own < CONTROL_MAX_PARTS ? CONTROL_MAX_PARTS - n_own : 0;
    for (int i = 0; i < k->n_parts && n < CONTROL_MAX_PARTS; i++) {
        const struct checkpoint_part *p = &k->parts[i].part;
        if (!k->parts[i].is_own && n_others-- <= 0)
            continue;
        out[n++] = (struct net_part){.generation = p->id.generation,
                                     .step = p->id.step,
                                     .server = p->server,
                                     .n_servers = p->n_servers,
                                     .bytes = p->file.bytes,
                                     .crc32c = p->file.crc32c};
    }
    return n;
}

bool own_folder_parts(struct own_folder *k, struct net_part **out, int *n)
{
    pthread_mutex_lock(&k->lock);
    int known = k->known && k->asked == k->answered;
    struct net_part *list = known ? calloc(CONTROL_MAX_PARTS, sizeof *list) : NULL;
    if (list)
        *n = choose(k, list);
    pthread_mutex_unlock(&k->lock);
    if (!list)
        return false;
    *out = list;
    return true;
}
