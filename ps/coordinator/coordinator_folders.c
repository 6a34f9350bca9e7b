/* ps/coordinator/coordinator_folders.c - records the servers' reports of their folders
 * (coordinator_folders.h), and fills replies with the kept checkpoints
 * (coordinator_shell_impl.h). */
#include "ps/coordinator/coordinator_folders.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/coordinator/coordinator_shell_impl.h"
#include "ps/coordinator/plan_applier.h"
#include "ps/service/planner.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MS = 5000 };

void coordinator_folders_free(struct coordinator_folders *f)
{
    for (int i = 0; i < f->n; i++)
        free(f->list[i].parts);
    free(f->list);
    *f = (struct coordinator_folders){0};
}

bool coordinator_folders_any_own(const struct coordinator_folders *f)
{
    int any = 0;
    for (int i = 0; i < f->n; i++)
        any |= f->list[i].is_own;
    return any;
}

const struct coordinator_folder *coordinator_folders_at(const struct coordinator_folders *f,
                                                        const char *address)
{
    for (int i = 0; i < f->n; i++)
        if (f->list[i].called && strcmp(f->list[i].address, address) == 0)
            return &f->list[i];
    return NULL;
}

static bool has_part(const struct coordinator_folder *f, const struct checkpoint_manifest *m,
                     int file)
{
    for (int i = 0; i < f->n_parts; i++) {
        const struct net_part *p = &f->parts[i];
        if (p->generation == m->generation && p->step == m->step && p->server == file &&
            p->n_servers == m->n_files && p->bytes == m->files[file].bytes &&
            p->crc32c == m->files[file].crc32c)
            return true;
    }
    return false;
}

enum status coordinator_folders_has(void *ctx, const struct checkpoint_manifest *m, int file,
                                    char why[MANIFEST_WHY_BYTES])
{
    struct coordinator_folders *f = ctx;
    const struct coordinator_folder *unknown = NULL;
    char name[MANIFEST_NAME_BYTES];
    for (int i = 0; i < f->n; i++) {
        if (f->list[i].is_own && has_part(&f->list[i], m, file))
            return ST_OK;
        if (!f->list[i].called || (f->list[i].is_own && !f->list[i].knows_parts))
            unknown = &f->list[i];
    }
    checkpoint_manifest_file_name((struct checkpoint_id){m->generation, m->step}, file, m->n_files,
                                  name);
    if (unknown)
        snprintf(why, MANIFEST_WHY_BYTES,
                 "the server at %.100s has not reported yet whether it has %s", unknown->address,
                 name);
    else
        snprintf(
            why, MANIFEST_WHY_BYTES,
            "%s is in no server's folder; ps:%d (%.100s) wrote it to its own folder: restart that server with that folder",
            name, file, file < m->progress.servers.n ? m->progress.servers.addr[file] : "unknown");
    memcpy(f->why, why, sizeof f->why);
    return unknown ? ST_BUSY : ST_NOT_FOUND;
}

enum status coordinator_folders_restrict(const struct coordinator_folders *f, struct net_plan *p,
                                         const struct checkpoint_restore *from, int is_named)
{
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(from);
    int n = p->servers.n, all_here = 1;
    unsigned char *reads = calloc((size_t)m->n_files * (size_t)n, 1);
    if (!reads)
        return ST_NOMEM;
    for (int i = 0; i < m->n_files; i++)
        all_here &= checkpoint_restore_has_file(from, i);
    for (int i = 0; i < m->n_files; i++)
        for (int k = 0; k < n; k++) {
            const struct coordinator_folder *at = coordinator_folders_at(f, p->servers.addr[k]);
            bool is_own = k > 0 && at && at->is_own;
            reads[i * n + k] = checkpoint_restore_has_file(from, i)
                                   ? !is_own || (is_named && all_here)
                                   : is_own && has_part(at, m, i);
        }
    enum status st = planner_restrict(p, m, reads);
    if (st == ST_NOT_FOUND)
        LOG_W(
            "step %" PRId64
            ": a server cannot read all of its chunks; a server with its own folder must keep that folder, and --chunk_bytes must not change",
            m->step);
    free(reads);
    return st;
}

static bool is_same(const struct coordinator_folder *f, const struct net_control *c)
{
    if (!f->called || strcmp(f->address, c->address) != 0 || strcmp(f->id, c->folder) != 0 ||
        f->knows_parts != c->knows_parts || f->n_parts != c->n_parts)
        return false;
    for (int i = 0; i < c->n_parts; i++) {
        const struct net_part *a = &f->parts[i], *b = &c->parts[i];
        if (a->generation != b->generation || a->step != b->step || a->server != b->server ||
            a->n_servers != b->n_servers || a->bytes != b->bytes || a->crc32c != b->crc32c)
            return false;
    }
    return true;
}

/* Returns the entry for an address. The caller holds the lock. */
static struct coordinator_folder *slot_of(struct coordinator_shell *l, const char *address)
{
    int n = coordinator_view_n_servers(l->state), slot = 0;
    while (slot < n && strcmp(coordinator_view_server_address(l->state, slot), address) != 0)
        slot++;
    if (slot == n)
        return NULL;
    if (n > l->folders.n) {
        struct coordinator_folder *grown = realloc(l->folders.list, (size_t)n * sizeof *grown);
        if (!grown)
            return NULL;
        memset(grown + l->folders.n, 0, (size_t)(n - l->folders.n) * sizeof *grown);
        l->folders.list = grown;
        l->folders.n = n;
    }
    return &l->folders.list[slot];
}

void coordinator_folders_note(struct coordinator_shell *l, const struct net_control *c)
{
    bool is_new = 0;
    pthread_mutex_lock(&l->lock);
    const char *own = l->folder_id;
    int is_own = own[0] && c->folder[0] && strcmp(own, c->folder) != 0;
    struct coordinator_folder *f = slot_of(l, c->address);
    struct net_part *parts =
        f && !is_same(f, c) ? malloc((size_t)c->n_parts * sizeof *parts + 1) : NULL;
    if (parts) { /* if memory is lacking, the server's next call reports its folder again */
        is_new = is_own && (!f->is_own || strcmp(f->address, c->address) != 0);
        if (c->n_parts > 0)
            memcpy(parts, c->parts, (size_t)c->n_parts * sizeof *parts);
        free(f->parts);
        *f = (struct coordinator_folder){.called = 1,
                                         .is_own = is_own,
                                         .knows_parts = c->knows_parts,
                                         .n_parts = c->n_parts,
                                         .parts = parts};
        snprintf(f->address, sizeof f->address, "%s", c->address);
        snprintf(f->id, sizeof f->id, "%s", c->folder);
        l->folders.version++;
    }
    pthread_mutex_unlock(&l->lock);
    if (is_new && LOG_LEVEL_INFO >= log_level_get()) {
        static struct log_kind kind; /* any caller can cause this line */
        log_write_few(&kind, LOG_LEVEL_INFO,
                      "checkpoints: the server at %s keeps its parts in a folder of its own",
                      c->address);
    }
}

enum status coordinator_folders_copy(const struct coordinator_shell *l,
                                     struct coordinator_folders *out)
{
    int n = coordinator_view_n_servers(l->state), *slot = calloc((size_t)n + 1, sizeof *slot);
    struct coordinator_folders f = {.version = l->folders.version};
    f.list = calloc((size_t)n + 1, sizeof *f.list);
    enum status st = slot && f.list ? ST_OK : ST_NOMEM;
    int n_next = st == ST_OK ? coordinator_view_next_servers(l->state, slot) : 0;
    for (int i = 0; i < n_next && st == ST_OK; i++) {
        const char *address = coordinator_view_server_address(l->state, slot[i]);
        const struct coordinator_folder *from = coordinator_folders_at(&l->folders, address);
        struct coordinator_folder *to = &f.list[f.n];
        if (slot[i] == 0)
            continue; /* ps 0's own folder */
        f.n++;
        snprintf(to->address, sizeof to->address, "%s", address);
        if (!from)
            continue;
        *to = *from;
        to->parts = malloc((size_t)from->n_parts * sizeof *to->parts + 1);
        to->n_parts = to->parts ? from->n_parts : 0;
        if (to->n_parts > 0)
            memcpy(to->parts, from->parts, (size_t)to->n_parts * sizeof *to->parts);
        st = to->parts ? ST_OK : ST_NOMEM;
    }
    free(slot);
    if (st == ST_OK)
        *out = f;
    else
        coordinator_folders_free(&f);
    return st;
}

static bool is_kept(const struct net_kept *list, int n, struct net_kept id)
{
    for (int i = 0; i < n; i++)
        if (list[i].generation == id.generation && list[i].step == id.step)
            return true;
    return false;
}

/* Inserts a checkpoint in front; a full list drops the oldest. */
static void keep_checkpoint(struct coordinator_saved *k, uint64_t generation, int64_t step)
{
    struct net_kept id = {generation, step};
    if (is_kept(k->list, k->n, id))
        return;
    k->older_stay |= k->n == CONTROL_MAX_KEPT;
    k->n -= k->n == CONTROL_MAX_KEPT;
    memmove(k->list + 1, k->list, (size_t)k->n * sizeof *k->list);
    k->list[0] = id;
    k->n++;
}

void coordinator_folders_keep(struct coordinator_shell *l, uint64_t generation, int64_t step)
{
    pthread_mutex_lock(&l->lock);
    keep_checkpoint(&l->saved, generation, step);
    pthread_mutex_unlock(&l->lock);
}

void coordinator_folders_fill_reply(struct coordinator_shell *l, struct net_control_reply *reply,
                                    struct coordinator_saved *room)
{
    struct coordinator_manifest_view making;
    coordinator_view_manifest(l->state, &making);
    pthread_mutex_lock(&l->lock);
    snprintf(reply->folder, sizeof reply->folder, "%s", l->folder_id);
    *room = l->saved;
    pthread_mutex_unlock(&l->lock);
    if (!room->known)
        return;
    if (coordinator_view_order_step(l->state) >= 0)
        keep_checkpoint(room, making.generation, making.step);
    reply->knows_kept = 1;
    reply->older_stay = room->older_stay;
    reply->kept = room->list;
    reply->n_kept = room->n;
}

/* Checks whether the found checkpoint can be resumed from; if not yet, writes the reason.
 * ST_NOT_FOUND: it never can. */
static enum status look_elsewhere(struct coordinator_folders *f,
                                  const struct checkpoint_restore *from, char *why,
                                  size_t why_bytes)
{
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(from);
    enum status st = ST_OK, all = ST_OK;
    char text[MANIFEST_WHY_BYTES];
    for (int i = 0; i < f->n; i++)
        if (!f->list[i].called) {
            snprintf(why, why_bytes, "the server at %.100s has not connected to ps:0 yet",
                     f->list[i].address);
            return ST_BUSY;
        }
    for (int i = 0; i < m->n_files && all != ST_NOT_FOUND; i++) {
        if (checkpoint_restore_has_file(from, i) ||
            (st = coordinator_folders_has(f, m, i, text)) == ST_OK)
            continue;
        snprintf(why, why_bytes, "%s", text);
        all = st;
    }
    return all;
}

bool coordinator_folders_can_restore(struct coordinator_shell *l, char *why, size_t why_bytes)
{
    struct coordinator_folders f;
    if (!l->cfg.restore || l->plan)
        return true;
    if (coordinator_folders_copy(l, &f) != ST_OK) {
        snprintf(why, why_bytes, "ps:0 is out of memory");
        return false;
    }
    enum status st = look_elsewhere(&f, l->cfg.restore, why, why_bytes);
    coordinator_folders_free(&f);
    if (st == ST_NOT_FOUND && l->searched != l->folders.version + 1) {
        l->searched = l->folders.version + 1;
        l->searches = 1;
        l->news = 1;
        pthread_cond_broadcast(&l->wake);
    }
    if (st != ST_OK && clock_now_ns() >= l->next_line_ns) {
        LOG_W("training waits to resume from step %" PRId64 ": %s",
              checkpoint_restore_manifest(l->cfg.restore)->step, why);
        l->next_line_ns = clock_deadline_ns(LINE_MS);
    }
    return st == ST_OK;
}
