/* ps/status.c - see status.h. */
#include "ps/status.h"
#include "base/clock.h"
#include "ps/run.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ps_status {
    struct ps_status_config cfg;
    int64_t start_ns;

    pthread_mutex_t lock; /* guards what follows */
    char *model;          /* of the member that was let in last; NULL: none said it */
    int hidden_units;
    uint64_t generation; /* that steps are counted in for their pace, */
    int64_t base_step;   /* from here */
    int64_t base_ns;     /* and then on */
};

static int64_t ms_since(int64_t then_ns)
{
    return (clock_now_ns() - then_ns) / 1000000;
}

/* The steps per second since the generation's first member was let in here. Under the lock. */
static double pace(struct ps_status *s, uint64_t generation, int64_t step)
{
    if (s->generation != generation || s->base_step < 0) {
        s->generation = generation;
        s->base_step = step;
        s->base_ns = clock_now_ns();
    }
    double seconds = (double)(clock_now_ns() - s->base_ns) * 1e-9;
    return step > s->base_step && seconds > 0 ? (double)(step - s->base_step) / seconds : 0;
}

static void on_joined(void *ctx, const struct net_join *join)
{
    struct ps_status *s = ctx;
    int ended;
    struct run *run = ps_service_run(s->cfg.service, &ended);
    int64_t step = run ? ps_store_step(run->store) : -1;
    pthread_mutex_lock(&s->lock);
    if (run)
        pace(s, run->generation, step);
    if (join->model && (!s->model || strcmp(s->model, join->model) != 0)) {
        char *copy = strdup(join->model);
        if (copy) { /* else the one before stays */
            free(s->model);
            s->model = copy;
        }
    }
    if (join->model)
        s->hidden_units = join->hidden_units;
    pthread_mutex_unlock(&s->lock);
    run_unref(run);
}

static enum member_state state_of(const struct ps_person *p)
{
    if (p->done)
        return MEMBER_DONE;
    if (p->leaving)
        return p->missing_ms >= 0 ? MEMBER_LEFT : MEMBER_LEAVING;
    if (!p->joined)
        return MEMBER_EXPECTED;
    return p->missing_ms >= 0 ? MEMBER_MISSING : MEMBER_TRAINING;
}

/* state: JOINING, or what the person itself says. */
static void add_member(const struct ps_status *s, const struct ps_person *p, int joining,
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

/* How long the others waited for the members, and whom they wait for now. */
static enum status fill_lateness(const struct run *run, struct net_status *out)
{
    int n = run->plan->n_members;
    int64_t step;
    enum status st = ST_NOMEM;
    const struct ps_stragglers *late = ps_store_stragglers(run->store);
    struct ps_late_total *recent = calloc((size_t)n, sizeof *recent);
    int *awaited = calloc((size_t)n, sizeof *awaited);
    if (!recent || !awaited)
        goto done;
    out->n_recent = ps_stragglers_recent(late, recent);
    ps_store_missing(run->store, clock_now_ns() - STATUS_AWAITED_MS * 1000000LL, awaited, &step);
    for (int i = 0; i < out->n_members; i++) {
        struct net_status_member *m = &out->members[i];
        struct ps_late_total total;
        m->rank = m->state == MEMBER_JOINING ? -1 : net_plan_rank(run->plan, m->member);
        if (m->rank < 0)
            continue;
        ps_stragglers_total(late, m->rank, &total);
        m->times = total.times;
        m->seconds = total.seconds;
        m->recent_times = recent[m->rank].times;
        m->recent_seconds = recent[m->rank].seconds;
        m->awaited = awaited[m->rank];
    }
    st = ST_OK;
done:
    free(awaited);
    free(recent);
    return st;
}

static enum status fill_members(const struct ps_status *s, const struct run *run,
                                struct net_status *out)
{
    struct ps_person *members = NULL, *waiting = NULL;
    int n_members, n_waiting;
    enum status st;
    TRY(ps_service_people(s->cfg.service, &members, &n_members, &waiting, &n_waiting));
    out->members = calloc((size_t)(n_members + n_waiting) + 1, sizeof *out->members);
    TRY(out->members ? ST_OK : ST_NOMEM);
    for (int i = 0; i < n_members; i++)
        add_member(s, &members[i], 0, out);
    for (int i = 0; i < n_waiting; i++)
        add_member(s, &waiting[i], 1, out);
    st = fill_lateness(run, out);
done:
    free(members);
    free(waiting);
    return st;
}

static enum status fill_servers(const struct ps_status *s, const struct run *run,
                                struct net_status *out)
{
    const struct hosts *hosts = run ? &run->plan->servers : s->cfg.ps_hosts;
    int n = hosts->n, self = run ? run->self : s->cfg.self;
    out->servers = calloc((size_t)n, sizeof *out->servers);
    if (!out->servers)
        return ST_NOMEM;
    out->n_servers = n;
    for (int i = 0; i < n; i++) {
        struct net_status_server *to = &out->servers[i];
        *to = (struct net_status_server){.server = i,
                                         .state = i == self ? SERVER_HERE : SERVER_UNKNOWN,
                                         .heard_ms = i == self ? 0 : -1,
                                         .up_ms = i == self ? out->up_ms : -1};
        snprintf(to->address, sizeof to->address, "%s", hosts->addr[i]);
    }
    for (int c = 0; run && c < run->chunks->n_chunks; c++) {
        struct net_status_server *to = &out->servers[run->plan->shard[c]];
        to->n_chunks++;
        to->bytes += (uint64_t)run->chunks->chunks[c].n_elems * sizeof(float);
    }
    return ST_OK;
}

static enum status fill_run(struct ps_status *s, const struct run *run, int with_model,
                            struct net_status *out)
{
    const struct chunks *c = run->chunks;
    out->generation = run->generation;
    out->step = ps_store_step(run->store);
    out->highest = ps_store_highest(run->store);
    out->first_step = run->plan->step;
    out->position = run_position(run, out->step < out->first_step ? out->first_step : out->step);
    out->job = run->job;
    pthread_mutex_lock(&s->lock);
    out->steps_per_s = pace(s, run->generation, out->step);
    out->model = with_model && s->model ? strdup(s->model) : NULL;
    out->hidden_units = s->hidden_units;
    int lacks = with_model && s->model && !out->model;
    pthread_mutex_unlock(&s->lock);
    if (lacks)
        return ST_NOMEM;
    enum status st = chunks_create(c->params, c->n_params, c->chunk_bytes, &out->chunks);
    return st == ST_OK ? fill_members(s, run, out) : st;
}

static enum status on_status(void *ctx, int with_model, struct net_status *out)
{
    struct ps_status *s = ctx;
    int ended;
    enum status st = ST_OK;
    struct run *run = ps_service_run(s->cfg.service, &ended);
    *out = (struct net_status){.server = s->cfg.self,
                               .step = -1,
                               .highest = -1,
                               .up_ms = ms_since(s->start_ns),
                               .checkpoints = {.last = -1, .ordered = -1}};
    TRY(fill_servers(s, run, out));
    if (run) {
        TRY(fill_run(s, run, with_model, out));
        out->state = ended                          ? STATE_DONE
                     : ps_store_stopped(run->store) ? STATE_STOPPED
                     : out->step < 0                ? STATE_STARTING
                                                    : STATE_TRAINING;
    }
done:
    run_unref(run);
    return st;
}

static void on_command(void *ctx, const struct net_command *command, struct net_command_reply *out)
{
    struct ps_status *s = ctx;
    if (s->cfg.self != 0) {
        snprintf(out->text, sizeof out->text, "this is ps:%d; commands go to ps:0 (%.100s)",
                 s->cfg.self, s->cfg.ps_hosts->addr[0]);
        return;
    }
    struct lead *lead = saving_lead(s->cfg.saving);
    if (command->kind == COMMAND_DRAIN_SERVER || command->kind == COMMAND_REMOVE_WORKER) {
        int done = command->kind == COMMAND_DRAIN_SERVER
                       ? lead_drain_server(lead, command->index, out->text)
                       : lead_remove_worker(lead, command->index, out->text);
        out->answer = done ? COMMAND_ACCEPTED : COMMAND_REFUSED;
        return;
    }
    if (command->kind != COMMAND_CHECKPOINT) {
        snprintf(out->text, sizeof out->text, "this server cannot do that");
        return;
    }
    if (!s->cfg.folder) {
        snprintf(out->text, sizeof out->text,
                 "this job keeps no checkpoints: its servers have no --checkpoint_dir");
        return;
    }
    saving_request(s->cfg.saving);
    out->answer = COMMAND_ACCEPTED;
    snprintf(out->text, sizeof out->text, "a checkpoint is on its way");
}

enum status ps_status_create(const struct ps_status_config *cfg, struct ps_status **out)
{
    struct ps_status *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->cfg = *cfg;
    s->start_ns = clock_now_ns();
    s->base_step = -1;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return ST_OK;
}

void ps_status_destroy(struct ps_status *s)
{
    if (!s)
        return;
    free(s->model);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct net_server_people ps_status_people(struct ps_status *s)
{
    return (struct net_server_people){
        .ctx = s, .joined = on_joined, .status = on_status, .command = on_command};
}
