/* ps/admin.c - collects the status of this server, and at ps 0 of the job, and carries out
 * operators' commands (admin.h). */
#include "ps/admin.h"
#include "base/clock.h"
#include "ps/model_name.h"
#include "ps/monitor/monitor.h"
#include "ps/service/pulse.h"
#include "ps/service/refusals.h"
#include "ps/service/run.h"
#include "ps/store/table_counts.h"
#include "ps/waits.h"
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct admin {
    struct admin_config cfg;
    int64_t start_ns;
    struct ps_monitor *monitor; /* NULL: no pages */
    char folder[PATH_MAX];      /* absolute path of cfg.folder; empty: none */

    pthread_mutex_t lock; /* guards the fields below */
    char *model;          /* model of the last admitted member; NULL: no member sent one */
    char model_name[STATUS_MODEL_BYTES];
    int hidden_units;
};

static int64_t ms_since(int64_t then_ns)
{
    return (clock_now_ns() - then_ns) / 1000000;
}

static void on_joined(void *ctx, const struct net_join *join)
{
    struct admin *s = ctx;
    pthread_mutex_lock(&s->lock);
    if (join->model && (!s->model || strcmp(s->model, join->model) != 0)) {
        char *copy = strdup(join->model);
        if (copy) { /* if memory is lacking, the previous model stays */
            free(s->model);
            s->model = copy;
            ps_model_name(copy, s->model_name);
        }
    }
    if (join->model)
        s->hidden_units = join->hidden_units;
    pthread_mutex_unlock(&s->lock);
}

static enum member_state state_of(const struct roster_entry *p)
{
    if (p->done)
        return MEMBER_DONE;
    if (p->leaving)
        return p->missing_ms >= 0 ? MEMBER_LEFT : MEMBER_LEAVING;
    if (!p->joined)
        return MEMBER_EXPECTED;
    return p->missing_ms >= 0 ? MEMBER_MISSING : MEMBER_TRAINING;
}

/* Adds a member to the status. joining: nonzero if it only waits to join; otherwise its state
 * follows from its entry. */
static void add_member(const struct admin *s, const struct roster_entry *p, int joining,
                       struct net_status *out)
{
    struct net_status_member *m = &out->members[out->n_members++];
    *m = (struct net_status_member){
        .member = p->member, .rank = -1, .state = joining ? MEMBER_JOINING : state_of(p)};
    if (m->state == MEMBER_MISSING)
        m->ms = p->missing_ms;
    if (p->address[0])
        snprintf(m->address, sizeof m->address, "%s", p->address);
    else if (p->member < s->cfg.worker_hosts->n)
        snprintf(m->address, sizeof m->address, "%s", s->cfg.worker_hosts->addr[p->member]);
}

/* Adds the reasons why joins were refused. While there is no job, the status contains nothing else
 * about workers. */
static enum status fill_refusals(const struct admin *s, struct net_status *out)
{
    struct refusals *all;
    enum status st = membership_refusals(s->cfg.service, &all);
    if (st != ST_OK)
        return st;
    int alone = !out->members;
    if (alone)
        TRY((out->members = calloc((size_t)all->n + 1, sizeof *out->members)) ? ST_OK : ST_NOMEM);
    for (int i = 0; alone && out->generation == 0 && i < all->n; i++) {
        const struct roster_entry p = {.member = all->refusal[i].member, .missing_ms = -1};
        add_member(s, &p, 0, out);
    }
    for (int i = 0; i < out->n_members; i++) {
        struct net_status_member *m = &out->members[i];
        const struct refusal *r = refusals_find(all, m->member);
        if (!r ||
            (m->state != MEMBER_EXPECTED && m->state != MEMBER_MISSING && m->state != MEMBER_LEFT))
            continue;
        memcpy(m->refused, r->why, sizeof m->refused);
        m->refused_ms = ms_since(r->at_ns);
    }
done:
    free(all);
    return st;
}

/* Adds how long training waited for each member, and which members it waits for now. */
static enum status fill_lateness(const struct admin *s, const struct run *run,
                                 struct net_status *out)
{
    int n = run->plan->n_members, n_totals;
    int64_t step;
    enum status st = ST_NOMEM;
    struct late_total *totals = NULL;
    struct late_total *recent = calloc((size_t)n, sizeof *recent);
    int *awaited = calloc((size_t)n, sizeof *awaited);
    if (!recent || !awaited)
        goto done;
    TRY(generation_lateness(s->cfg.service, &totals, &n_totals));
    out->n_recent = stragglers_recent(store_stragglers(run->store), recent);
    store_missing(run->store, clock_now_ns() - STATUS_AWAITED_MS * 1000000LL, awaited, &step);
    for (int i = 0; i < out->n_members; i++) {
        struct net_status_member *m = &out->members[i];
        m->rank = m->state == MEMBER_JOINING ? -1 : net_plan_rank(run->plan, m->member);
        if (m->member < n_totals) {
            m->times = totals[m->member].times;
            m->seconds = totals[m->member].seconds;
            m->skipped = totals[m->member].skipped;
        }
        if (m->rank < 0)
            continue;
        m->recent_times = recent[m->rank].times;
        m->recent_seconds = recent[m->rank].seconds;
        m->awaited = awaited[m->rank];
    }
    st = ST_OK;
done:
    free(totals);
    free(awaited);
    free(recent);
    return st;
}

static enum status fill_members(const struct admin *s, const struct run *run,
                                struct net_status *out)
{
    struct roster_entry *members = NULL, *waiting = NULL;
    int n_members, n_waiting;
    enum status st;
    TRY(membership_roster(s->cfg.service, &members, &n_members, &waiting, &n_waiting));
    out->members = calloc((size_t)(n_members + n_waiting) + 1, sizeof *out->members);
    TRY(out->members ? ST_OK : ST_NOMEM);
    for (int i = 0; i < n_members; i++)
        add_member(s, &members[i], 0, out);
    for (int i = 0; i < n_waiting; i++)
        add_member(s, &waiting[i], 1, out);
    st = fill_lateness(s, run, out);
done:
    free(members);
    free(waiting);
    return st;
}

/* Adds each server's share of the parameters. */
static void fill_shares(const struct net_plan *plan, struct net_status *out)
{
    for (int i = 0; i < out->n_servers; i++) {
        struct net_status_server *to = &out->servers[i];
        for (int c = 0; c < plan->chunks->n_chunks; c++) {
            int own = to->server == plan->shard[c];
            to->n_chunks += own;
            to->bytes += own ? (uint64_t)plan->chunks->chunks[c].n_elems * sizeof(float) : 0;
        }
    }
}

/* Fills in servers, checkpoints and pending work from ps 0's coordinator. */
static enum status fill_job(const struct admin *s, struct coordinator_shell *c,
                            struct net_status *out, bool *lacks_workers)
{
    static const enum server_state states[] = {[SERVER_PRESENT] = SERVER_HERE,
                                               [SERVER_SILENT] = SERVER_MISSING,
                                               [SERVER_JOINS] = SERVER_JOINING,
                                               [SERVER_LEAVES] = SERVER_LEAVING};
    struct coordinator_plans_snapshot snap;
    enum status st = coordinator_plans_snapshot(c, &snap);
    if (st != ST_OK)
        return st;
    out->servers = calloc((size_t)snap.n_servers + 1, sizeof *out->servers);
    TRY(out->servers ? ST_OK : ST_NOMEM);
    out->n_servers = snap.n_servers;
    for (int i = 0; i < snap.n_servers; i++) {
        const struct coordinator_shell_server *from = &snap.servers[i];
        struct net_status_server *to = &out->servers[i];
        *to = (struct net_status_server){.server = from->view.number,
                                         .state = states[from->view.kind],
                                         .heard_ms = i == 0 ? 0 : from->view.heard_ms,
                                         .up_ms = i == 0 ? out->up_ms : from->view.up_ms};
        memcpy(to->address, from->address, sizeof to->address);
    }
    if (snap.plan)
        fill_shares(snap.plan, out);
    memcpy(out->change, snap.change, sizeof out->change);
    *lacks_workers = snap.lacks_workers;
    snprintf(out->checkpoints.folder, sizeof out->checkpoints.folder, "%.*s",
             (int)sizeof out->checkpoints.folder - 1, s->folder);
    out->checkpoints.last = snap.last_step;
    out->checkpoints.ordered = snap.order_step;
    out->checkpoints.next_ms = snap.next_ms;
    out->checkpoints.wanted = snap.wanted;
    out->checkpoints.given = snap.given;
    out->checkpoints.owner = snap.incarnation;
    out->checkpoints.is_ending = snap.is_ending;
    if (snap.best.known)
        out->best = (struct net_best){snap.best.step, snap.best.loss, snap.best.accuracy};
done:
    coordinator_plans_snapshot_free(&snap);
    return st;
}

/* Fills in the list of servers from the plan. Called at servers other than ps 0. */
static enum status fill_plan(const struct admin *s, const struct run *run, struct net_status *out)
{
    const struct hosts *hosts = run ? &run->plan->servers : s->cfg.ps_hosts;
    out->servers = calloc((size_t)hosts->n + 1, sizeof *out->servers);
    if (!out->servers)
        return ST_NOMEM;
    out->n_servers = hosts->n;
    for (int i = 0; i < hosts->n; i++) {
        struct net_status_server *to = &out->servers[i];
        int own = i == out->server;
        *to = (struct net_status_server){.server = i,
                                         .state = own ? SERVER_HERE : SERVER_UNKNOWN,
                                         .heard_ms = own ? 0 : -1,
                                         .up_ms = own ? out->up_ms : -1};
        snprintf(to->address, sizeof to->address, "%s", hosts->addr[i]);
    }
    if (run)
        fill_shares(run->plan, out);
    return ST_OK;
}

static enum status fill_tables(const struct run *run, struct net_status *out)
{
    out->tables = calloc((size_t)run->chunks->n_tables, sizeof *out->tables);
    if (!out->tables)
        return ST_NOMEM;
    out->n_tables = run->chunks->n_tables;
    store_count_tables(run->store, out->tables);
    return ST_OK;
}

static enum status fill_run(struct admin *s, const struct run *run, int with_model,
                            struct net_status *out)
{
    const struct chunks *c = run->chunks;
    out->generation = run->generation;
    out->step = store_step(run->store);
    out->highest = store_highest(run->store);
    out->first_step = run->plan->step;
    out->position = run_position(run, out->step < out->first_step ? out->first_step : out->step);
    out->job = run->job;
    pthread_mutex_lock(&s->lock);
    out->model = with_model && s->model ? strdup(s->model) : NULL;
    out->hidden_units = s->hidden_units;
    memcpy(out->model_name, s->model_name, sizeof out->model_name);
    int lacks = with_model && s->model && !out->model;
    pthread_mutex_unlock(&s->lock);
    if (lacks)
        return ST_NOMEM;
    enum status st = chunks_copy(c, &out->chunks);
    if (st == ST_OK && c->n_tables > 0)
        st = fill_tables(run, out);
    return st == ST_OK ? fill_members(s, run, out) : st;
}

/* Returns an array that has, for each rank, the step whose evaluation lacks this worker's
 * result, or -1. Returns NULL if out of memory. */
static int64_t *evaluations_lacking(const struct admin *s, const struct run *run)
{
    struct coordinator_shell *c = node_coordinator(s->cfg.node);
    int n = run->plan->n_members;
    int64_t *step = calloc((size_t)n, sizeof *step);
    for (int i = 0; step && i < n; i++)
        step[i] = c ? coordinator_evaluation_lacks(c, i) : -1;
    return step;
}

/* Writes which programs training waits for, if the servers have made no step for a while. */
static enum status fill_waits(const struct admin *s, const struct run *run, bool lacks_workers,
                              struct net_status *out)
{
    enum status st = ST_OK;
    struct service_pace pace;
    int *late = NULL;
    int64_t *evaluates = NULL;
    char parent[STATUS_WAITING_BYTES];
    int64_t step, since_ns = clock_now_ns() - PULSE_STANDS_MS * INT64_C(1000000);
    service_pace(s->cfg.service, &pace);
    out->steps_per_s = run && out->state != STATE_DONE ? pace.steps_per_s : 0;
    if (pace.stood_ms < PULSE_STANDS_MS || out->state == STATE_DONE)
        return ST_OK;
    out->waiting_ms = pace.stood_ms;
    ps_region_waits(s->cfg.region, parent);
    struct ps_waits_config cfg = {.status = out,
                                  .lacks_workers = lacks_workers,
                                  .n_hosts = s->cfg.worker_hosts->n,
                                  .parent = parent};
    if (run && pace.is_slow) {
        late = calloc((size_t)run->plan->n_members, sizeof *late);
        evaluates = evaluations_lacking(s, run);
        TRY(late && evaluates ? ST_OK : ST_NOMEM);
        store_missing(run->store, since_ns, late, &step);
        cfg.late = late;
        cfg.evaluates = evaluates;
    }
    ps_waits_name(&cfg, out->waiting);
done:
    free(late);
    free(evaluates);
    return st;
}

static enum status on_status(void *ctx, int with_model, struct net_status *out)
{
    struct admin *s = ctx;
    int ended;
    bool lacks_workers = false;
    enum status st = ST_OK;
    struct run *run = service_run(s->cfg.service, &ended);
    struct coordinator_shell *c = node_coordinator(s->cfg.node);
    *out = (struct net_status){.server = run ? run->self : s->cfg.self,
                               .step = -1,
                               .highest = -1,
                               .up_ms = ms_since(s->start_ns),
                               .checkpoints = {.last = -1, .ordered = -1, .next_ms = -1},
                               .best = {.step = -1}};
    TRY(c ? fill_job(s, c, out, &lacks_workers) : fill_plan(s, run, out));
    if (run) {
        TRY(fill_run(s, run, with_model, out));
        out->state = ended                             ? STATE_DONE
                     : handover_is_stopped(run->store) ? STATE_STOPPED
                     : out->step < 0                   ? STATE_STARTING
                                                       : STATE_TRAINING;
    }
    TRY(fill_refusals(s, out));
    st = fill_waits(s, run, lacks_workers, out);
done:
    run_unref(run);
    return st;
}

static void command_checkpoint(struct admin *s, struct coordinator_shell *c,
                               struct net_command_reply *out)
{
    struct coordinator_plans_snapshot snap;
    if (!s->cfg.folder) {
        snprintf(out->text, sizeof out->text,
                 "this job keeps no checkpoints: its servers have no --checkpoint_dir");
        return;
    }
    coordinator_shell_request(c);
    if (coordinator_plans_snapshot(c, &snap) != ST_OK) {
        snprintf(out->text, sizeof out->text, "the server is out of memory");
        return;
    }
    out->wanted = snap.wanted;
    coordinator_plans_snapshot_free(&snap);
    out->answer = COMMAND_ACCEPTED;
    snprintf(out->text, sizeof out->text, "a checkpoint was requested");
}

/* Returns true if this server belongs to a region, or to the parent group of regions. */
static bool is_of_regions(const struct admin *s)
{
    int ended;
    struct run *run = service_run(s->cfg.service, &ended);
    bool is = run && (run->plan->gates.steps > 0 || (run->job.batch == 0 && run->job.local_steps));
    run_unref(run);
    return is;
}

static void on_command(void *ctx, const struct net_command *command, struct net_command_reply *out)
{
    struct admin *s = ctx;
    struct coordinator_shell *c = node_coordinator(s->cfg.node);
    int taken = 0;
    if (!c)
        snprintf(out->text, sizeof out->text, "only ps:0 accepts commands (%.100s)",
                 s->cfg.ps_hosts->addr[0]);
    else if (command->kind == COMMAND_CHECKPOINT)
        command_checkpoint(s, c, out);
    else if (command->kind == COMMAND_REMOVE_WORKER)
        taken = coordinator_shell_command(c, COORDINATOR_REMOVE_WORKER, command->index, out->text);
    else if (command->kind == COMMAND_STOP_JOB && is_of_regions(s))
        snprintf(
            out->text, sizeof out->text,
            "a job with regions ends only after its last step; to end it earlier, send SIGTERM to its programs");
    else if (command->kind == COMMAND_STOP_JOB)
        taken = coordinator_shell_command(c, COORDINATOR_STOP_JOB, 0, out->text);
    else
        taken = coordinator_shell_command(c, COORDINATOR_DRAIN_SERVER, command->index, out->text);
    if (taken && command->kind == COMMAND_REMOVE_WORKER) {
        membership_remove(s->cfg.service, command->index);
        ps_monitor_removed(s->monitor, command->index);
    }
    if (taken)
        out->answer = COMMAND_ACCEPTED;
}

static void on_evaluated(void *ctx, const struct net_evaluation *evaluation,
                         struct net_evaluation_reply *out)
{
    struct admin *s = ctx;
    struct coordinator_shell *c = node_coordinator(s->cfg.node);
    if (c)
        coordinator_evaluation_report(c, evaluation, out);
}

static int on_reported(void *ctx, const struct net_report *report)
{
    struct admin *s = ctx;
    return ps_monitor_reported(s->monitor, report);
}

static int takes_part(void *ctx, int worker)
{
    struct admin *s = ctx;
    int ended;
    struct run *run = service_run(s->cfg.service, &ended);
    int is_member = run ? net_plan_rank(run->plan, worker) >= 0 : -1;
    if (run)
        run_unref(run);
    return is_member;
}

static enum status make_monitor(struct admin *s)
{
    const struct ps_monitor_config cfg = {.listen_fd = s->cfg.pages_fd,
                                          .folder = s->cfg.folder,
                                          .task = s->cfg.task,
                                          .takes_part = takes_part,
                                          .service = s->cfg.service,
                                          .status = on_status,
                                          .ctx = s};
    return s->cfg.pages_fd < 0 ? ST_OK : ps_monitor_create(&cfg, &s->monitor);
}

enum status admin_create(const struct admin_config *cfg, struct admin **out)
{
    struct admin *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->cfg = *cfg;
    s->start_ns = clock_now_ns();
    if (cfg->folder && (cfg->folder[0] == '/' || !realpath(cfg->folder, s->folder)))
        snprintf(s->folder, sizeof s->folder, "%s", cfg->folder);
    pthread_mutex_init(&s->lock, NULL);
    enum status st = make_monitor(s);
    if (st == ST_OK)
        *out = s;
    else
        admin_destroy(s);
    return st;
}

void admin_stop(struct admin *s)
{
    if (s)
        ps_monitor_stop(s->monitor);
}

void admin_destroy(struct admin *s)
{
    if (!s)
        return;
    ps_monitor_destroy(s->monitor);
    free(s->model);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct net_admin_handlers admin_make_handlers(struct admin *s)
{
    return (struct net_admin_handlers){
        .ctx = s,
        .joined = on_joined,
        .status = on_status,
        .command = on_command,
        .evaluated = on_evaluated,
        .reported = s->monitor ? on_reported : NULL,
    };
}
