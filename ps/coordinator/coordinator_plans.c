/* ps/coordinator/coordinator_plans.c - plans as data (coordinator_shell_impl.h). The coordinator
 * names members, servers and the step or checkpoint to resume from; this file makes the plan's
 * lists of chunks and members. It keeps the newest plans: the plan in force, and plans whose chunks
 * or checkpoints are still in use. */
#include "base/log.h"
#include "checkpoint/job_check.h"
#include "checkpoint/names.h"
#include "net/wire/job_steps.h"
#include "ps/coordinator/coordinator_shell_impl.h"
#include "ps/coordinator/plan_applier.h"
#include "ps/service/planner.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOVES_TEXT_BYTES = 96 };

const struct net_plan *coordinator_plan_of(const struct coordinator_shell *l, uint64_t generation)
{
    for (int i = 0; i < COORDINATOR_KEPT_PLANS; i++)
        if (l->kept[i] && l->kept[i]->generation == generation)
            return l->kept[i];
    return NULL;
}

struct checkpoint_lineage coordinator_plan_lineage(const struct coordinator_shell *l,
                                                   uint64_t generation)
{
    for (int i = 0; i < COORDINATOR_KEPT_PLANS; i++)
        if (l->kept[i] && l->kept[i]->generation == generation)
            return l->lineage[i];
    return (struct checkpoint_lineage){.n = 0};
}

struct checkpoint_id coordinator_plan_checkpoint(const struct coordinator_shell *l,
                                                 uint64_t generation)
{
    const struct net_plan *p = coordinator_plan_of(l, generation);
    struct checkpoint_name is = {.kind = CHECKPOINT_NAME_OTHER};
    if (p && !strstr(p->restore, PLAN_RESTORE_MARK))
        checkpoint_name_parse(p->restore, &is);
    return is.kind == CHECKPOINT_NAME_MANIFEST ? is.id : (struct checkpoint_id){0, 0};
}

void coordinator_plans_free(struct coordinator_shell *l)
{
    for (int i = 0; i < COORDINATOR_KEPT_PLANS; i++)
        net_plan_free(l->kept[i]);
    checkpoint_restore_close(l->disk_found);
}

/* Lists the addresses of the plan's servers, borrowed from the state. ST_NOMEM. */
static enum status list_servers(const struct coordinator_shell *l,
                                const struct coordinator_plan_view *v, struct hosts *out)
{
    out->n = v->n_servers;
    out->addr = calloc((size_t)v->n_servers + 1, sizeof *out->addr);
    for (int i = 0; out->addr && i < v->n_servers; i++)
        out->addr[i] = (char *)coordinator_view_server_address(l->state, v->server[i]);
    return out->addr ? ST_OK : ST_NOMEM;
}

/* Assigns chunks to servers that can read them from the checkpoint. */
static enum status restrict_plan(const struct coordinator_shell *l,
                                 const struct checkpoint_restore *from, struct net_plan **plan)
{
    int is_named = strstr((*plan)->restore, PLAN_RESTORE_MARK) != NULL;
    enum status st = coordinator_folders_restrict(&l->folders, *plan, from, is_named);
    if (st == ST_OK)
        return st;
    net_plan_free(*plan);
    *plan = NULL;
    return st;
}

/* Makes a job's first plan from the first worker's job and the present servers. */
static enum status make_first(struct coordinator_shell *l, const struct coordinator_plan_view *v,
                              const struct hosts *servers, struct net_plan **out)
{
    const struct net_plan *given = l->first;
    const struct net_join join = {.job = given->job, .chunks = given->chunks};
    const struct planner_first first = {
        .generation = v->generation,
        .ps0 = l->incarnation,
        .join = &join,
        .servers = servers,
        .member = v->member,
        .n_members = v->n_members,
        .from = v->source == PLAN_CHECKPOINT && l->cfg.restore
                    ? checkpoint_restore_manifest(l->cfg.restore)
                    : NULL,
        .restore = l->cfg.restored,
    };
    enum status st = planner_make_first(&first, out);
    return st == ST_OK && first.from ? restrict_plan(l, l->cfg.restore, out) : st;
}

static enum status make_next(const struct coordinator_shell *l,
                             const struct coordinator_plan_view *v, const struct hosts *servers,
                             struct net_plan **out)
{
    const struct net_plan *base = v->base ? coordinator_plan_of(l, v->base) : l->plan;
    if (!base)
        return ST_NOT_FOUND;
    struct planner_next next = {.generation = v->generation,
                                .ps0 = l->incarnation,
                                .base = base,
                                .source = v->source,
                                .step = v->step,
                                .restore = l->disk_name,
                                .member = v->member,
                                .n_members = v->n_members,
                                .servers = servers,
                                .train_steps = v->train_steps};
    if (v->source == PLAN_MEMORY) {
        next.position = net_plan_position(base, v->step);
    } else if (v->source == PLAN_CHECKPOINT && l->disk_found) {
        const struct checkpoint_manifest *m = checkpoint_restore_manifest(l->disk_found);
        next.position = checkpoint_manifest_position(m);
        next.contributed = m->progress.contributed;
        next.n_contributed = m->progress.n_contributed;
    } else if (v->source == PLAN_CHECKPOINT) {
        return ST_NOT_FOUND;
    }
    enum status st = planner_make_next(&next, out);
    return st == ST_OK && v->source == PLAN_CHECKPOINT ? restrict_plan(l, l->disk_found, out) : st;
}

/* Calls the region's function that completes the plan, if this group is a region. */
static void fill_gates(const struct coordinator_shell *l, struct net_plan *p)
{
    const struct coordinator_region_hooks *r = l->cfg.region;
    struct checkpoint_parent_version restored = {0};
    const struct checkpoint_restore *from = l->disk_found ? l->disk_found : l->cfg.restore;
    if (!r)
        return;
    if (p->source == PLAN_CHECKPOINT && from)
        restored = checkpoint_restore_manifest(from)->progress.parent;
    r->plans(r->ctx, p, &restored);
}

enum status coordinator_plan_make(struct coordinator_shell *l, struct net_plan **out)
{
    struct coordinator_plan_view v;
    struct hosts servers = {0, NULL};
    enum status st = ST_OK;
    coordinator_view_next_plan(l->state, &v);
    TRY(list_servers(l, &v, &servers));
    TRY(v.base == 0 && l->has_job ? make_first(l, &v, &servers, out)
                                  : make_next(l, &v, &servers, out));
    fill_gates(l, *out);
done:
    free(servers.addr); /* the list's addresses belong to the state */
    if (st != ST_OK)
        LOG_W("the plan of generation " TERM_FMT " cannot be made: %s; retrying",
              TERM_ARG(v.generation), status_text(st));
    return st;
}

/* Writes "12.3 MB in 40 chunks", and " and 5 buckets" if there are tables. */
static const char *moves_text(const struct net_plan *old, const struct net_plan *p,
                              const char *address, int gets, char text[MOVES_TEXT_BYTES])
{
    struct planner_moved m;
    char buckets[32] = "";
    planner_moves(old, p, address, gets, &m);
    if (p->chunks->n_tables > 0)
        snprintf(buckets, sizeof buckets, " and %d %s", m.n_buckets,
                 m.n_buckets == 1 ? "bucket" : "buckets");
    snprintf(text, MOVES_TEXT_BYTES, "%.1f MB in %d chunks%s", (double)m.bytes * 1e-6, m.n_chunks,
             buckets);
    return text;
}

static void log_servers(const struct net_plan *old, const struct net_plan *p)
{
    char text[MOVES_TEXT_BYTES];
    for (int i = 0; i < p->servers.n; i++) {
        if (net_plan_server(old, p->servers.addr[i]) >= 0)
            continue;
        LOG_I("ps:%d (%s) joins at step %" PRId64 ": %s move to it (generation " TERM_FMT
              ", %d %s)",
              i, p->servers.addr[i], p->step, moves_text(old, p, p->servers.addr[i], 1, text),
              TERM_ARG(p->generation), p->servers.n, p->servers.n == 1 ? "server" : "servers");
    }
    for (int i = 0; i < old->servers.n; i++) {
        if (net_plan_server(p, old->servers.addr[i]) >= 0)
            continue;
        LOG_I("ps:%d (%s) leaves at step %" PRId64
              ": %s move to the other servers (generation " TERM_FMT ", %d %s)",
              i, old->servers.addr[i], p->step, moves_text(old, p, old->servers.addr[i], 0, text),
              TERM_ARG(p->generation), p->servers.n, p->servers.n == 1 ? "server" : "servers");
    }
}

/* Keeps a plan in place of the oldest kept one, but never replaces the plan from which the next
 * plans are made, nor the plan of a checkpoint that is being written. */
static void keep_plan(struct coordinator_shell *l, struct net_plan *next,
                      const struct checkpoint_lineage *lineage)
{
    struct coordinator_plan_view v;
    struct coordinator_manifest_view m;
    int out = 0;
    coordinator_view_next_plan(l->state, &v);
    coordinator_view_manifest(l->state, &m);
    while (out < COORDINATOR_KEPT_PLANS - 1 && l->kept[out] &&
           (l->kept[out]->generation == v.base || l->kept[out]->generation == m.generation))
        out++;
    net_plan_free(l->kept[out]);
    memmove(l->kept + out, l->kept + out + 1,
            (size_t)(COORDINATOR_KEPT_PLANS - 1 - out) * sizeof *l->kept);
    memmove(l->lineage + out, l->lineage + out + 1,
            (size_t)(COORDINATOR_KEPT_PLANS - 1 - out) * sizeof *l->lineage);
    l->kept[COORDINATOR_KEPT_PLANS - 1] = next;
    l->lineage[COORDINATOR_KEPT_PLANS - 1] = *lineage;
}

/* Returns the restores before the next plan. A checkpoint of another folder counts as the beginning
 * of the job, because its ids mean nothing here. */
static struct checkpoint_lineage lineage_of(const struct coordinator_shell *l,
                                            const struct net_plan *base,
                                            const struct net_plan *next)
{
    const struct checkpoint_restore *from = l->disk_found ? l->disk_found : l->cfg.restore;
    if (next->source == PLAN_MEMORY)
        return base ? coordinator_plan_lineage(l, base->generation)
                    : (struct checkpoint_lineage){.n = 0};
    if (next->source != PLAN_CHECKPOINT || !from || !checkpoint_restore_is_home(from))
        return checkpoint_lineage_begin(next->generation);
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(from);
    return checkpoint_lineage_resume(&m->lineage, next->generation,
                                     (struct checkpoint_id){m->generation, m->step});
}

/* Notes in the history that the job begins, or resumes from a checkpoint: checkpoints newer than
 * this one then no longer belong to the job. After --restore nothing is noted: a restart without
 * the flag may use these newer checkpoints again. */
static void note_history(struct coordinator_shell *l, const struct net_plan *next)
{
    if (next->source == PLAN_MEMORY)
        return;
    l->cfg.history = (struct checkpoint_history){{0, 0}, 0};
    if (strstr(next->restore, PLAN_RESTORE_MARK))
        return;
    l->cfg.history.since = next->generation;
    l->cfg.history.resumed = coordinator_plan_checkpoint(l, next->generation);
}

void coordinator_plan_publish(struct coordinator_shell *l, struct net_plan *next)
{
    struct coordinator_plan_view v;
    coordinator_view_next_plan(l->state, &v);
    const struct net_plan *base = v.base ? coordinator_plan_of(l, v.base) : NULL;
    if (base)
        log_servers(base, next);
    const struct checkpoint_lineage lineage = lineage_of(l, base ? base : l->plan, next);
    pthread_mutex_lock(&l->lock);
    struct checkpoint_restore *first = l->cfg.restore, *found = l->disk_found;
    l->plan = next;
    /* while these files are open, they still occupy the disk */
    l->cfg.restore = l->disk_found = NULL;
    pthread_mutex_unlock(&l->lock);
    checkpoint_restore_close(first);
    checkpoint_restore_close(found);
    keep_plan(l, next, &lineage);
    note_history(l, next);
    coordinator_disk_servers(l, &next->servers);
}

/* Checks whether the worker fits the checkpoint; if not, writes a sentence. The caller holds the
 * lock. */
static enum status check_join(struct coordinator_shell *l, struct net_join *full, char *why,
                              size_t why_bytes)
{
    const struct checkpoint_manifest *m =
        l->cfg.restore && !l->plan ? checkpoint_restore_manifest(l->cfg.restore) : NULL;
    if (full->job.n_workers == 0 && !m) {
        snprintf(why, why_bytes,
                 "the job has no checkpoint to resume from; workers without --join begin the job");
        return ST_NOT_FOUND;
    }
    if (full->job.n_workers == 0) /* the worker joins by --join, and sends no number of workers */
        full->job.n_workers = m->job.n_workers;
    enum status st = m ? checkpoint_job_check_restored(m, full, why, why_bytes) : ST_OK;
    if (st == ST_OK && m)
        ps_follow_restored(m, full);
    return st;
}

/* Fills in the event JOB of a first job. The caller holds the lock. */
static void fill_job(struct coordinator_shell *l, const struct net_join *full)
{
    const struct checkpoint_manifest *m =
        l->cfg.restore && !l->plan ? checkpoint_restore_manifest(l->cfg.restore) : NULL;
    /* nonzero: the job is older than this process */
    int as_then = m && full->generation > 0 && m->progress.known;
    l->job.train_steps = full->job.train_steps;
    l->job.step = m ? m->step : 0;
    l->job.lockstep = job_in_lockstep(&full->job);
    l->job.from_checkpoint = m != NULL;
    l->job.lives_on = full->generation > 0;
    l->job.claim = full->ps0 && full->ps0 != l->incarnation ? full->generation : 0;
    l->job.n_members = as_then ? m->progress.n_members : full->job.n_workers;
    l->job.member = as_then ? m->progress.member : NULL;
    l->has_job = 1;
    l->news = 1;
    pthread_cond_broadcast(&l->wake);
}

/* Accepts a first worker's job. The caller holds the lock. */
static enum status take_job(struct coordinator_shell *l, const struct net_join *join)
{
    const struct coordinator_region_hooks *r = l->cfg.region;
    struct checkpoint_parent_version restored = {0};
    if (!r)
        return ST_OK;
    if (l->cfg.restore && !l->plan)
        restored = checkpoint_restore_manifest(l->cfg.restore)->progress.parent;
    return r->takes_job(r->ctx, join, &restored);
}

enum status coordinator_plans_first_join(struct coordinator_shell *l, const struct net_join *join,
                                         char *why, size_t why_bytes)
{
    struct net_join full = *join;
    struct planner_first first = {.join = &full, .servers = &l->servers};
    struct coordinator_line wait;
    char text[512] = "";
    struct net_plan *p = NULL;
    enum status st = ST_OK;
    pthread_mutex_lock(&l->lock);
    int taken = l->has_job || l->stopping,
        can = !taken && coordinator_view_takes_job(l->state, &wait);
    if (!taken && !can && wait.id != LINE_NONE)
        coordinator_line_text(l->state, &wait, l->cfg.folder, text, sizeof text);
    if (text[0])
        snprintf(why, why_bytes, "%s", text);
    if (!can)
        goto done;
    st = check_join(l, &full, why, why_bytes);
    if (st != ST_OK) {
        st = st == ST_NOT_FOUND ? ST_OK : ST_MISMATCH;
        goto done;
    }
    if (!coordinator_folders_can_restore(l, why, why_bytes))
        goto done;
    if (l->plan)
        first.servers = &l->plan->servers;
    if (planner_make_first(&first, &p) != ST_OK) {
        snprintf(why, why_bytes, "the server is out of memory");
        goto done;
    }
    if (planner_bytes(p, 0) > (double)l->cfg.max_model_bytes) {
        snprintf(why, why_bytes, "the model exceeds this server's --max_model_bytes=%" PRId64 "%s",
                 l->cfg.max_model_bytes,
                 p->chunks->n_tables ? "; raise it, lower max_rows of its tables, or add servers"
                                     : "; raise it, or add servers");
        net_plan_free(p);
        st = ST_RANGE;
        goto done;
    }
    if (take_job(l, &full) != ST_OK) {
        snprintf(why, why_bytes, "the server is out of memory");
        net_plan_free(p);
        goto done;
    }
    l->first = p;
    join_begin_trained_on(l->cfg.service, join->trained_on);
    fill_job(l, &full);
done:
    pthread_mutex_unlock(&l->lock);
    return st;
}

static void list_snapshot(const struct coordinator_shell *l, struct coordinator_plans_snapshot *out)
{
    for (int i = 0; i < coordinator_view_n_servers(l->state); i++) {
        struct coordinator_shell_server *s = &out->servers[out->n_servers];
        coordinator_view_server(l->state, i, &s->view);
        if (s->view.kind == SERVER_NONE)
            continue;
        snprintf(s->address, sizeof s->address, "%s", coordinator_view_server_address(l->state, i));
        out->n_servers++;
    }
}

enum status coordinator_plans_snapshot(struct coordinator_shell *l,
                                       struct coordinator_plans_snapshot *out)
{
    enum status st = ST_OK;
    struct coordinator_line wait;
    struct coordinator_plans_snapshot s = {.plan = NULL};
    char text[640];
    pthread_mutex_lock(&l->lock);
    if (l->plan)
        st = net_plan_copy(l->plan, &s.plan);
    s.servers = calloc((size_t)coordinator_view_n_servers(l->state) + 1, sizeof *s.servers);
    if (!s.servers)
        st = ST_NOMEM;
    if (st == ST_OK) {
        list_snapshot(l, &s);
        if (coordinator_view_waits_for(l->state, &wait)) {
            coordinator_line_text(l->state, &wait, l->cfg.folder, text, sizeof text);
            snprintf(s.change, sizeof s.change, "%.*s", (int)sizeof s.change - 1, text);
            s.lacks_workers = wait.id == WAIT_WORKERS;
        }
        s.last_step = coordinator_view_last_step(l->state);
        s.order_step = coordinator_view_order_step(l->state);
        s.next_ms = coordinator_view_next_ms(l->state);
        evaluation_best(l->state, &s.best);
        s.wanted = l->requested;
        s.given = coordinator_view_given(l->state);
        s.incarnation = l->incarnation;
        s.is_ending = coordinator_view_is_ending(l->state);
        *out = s;
    }
    pthread_mutex_unlock(&l->lock);
    if (st != ST_OK)
        coordinator_plans_snapshot_free(&s);
    return st;
}

void coordinator_plans_snapshot_free(struct coordinator_plans_snapshot *s)
{
    net_plan_free(s->plan);
    free(s->servers);
}
