/* tests/sim/lead.c - see server.h: the shell of ps 0's coordinator, as coordinator_shell.c is: a
 * mailbox, one step after the other, actions. Its thread is an event that comes a little later. */
#include "base/term.h"
#include "checkpoint/job_check.h"
#include "ps/coordinator/coordinator_shell.h"
#include "ps/service/planner.h"
#include "ps/service/run.h"
#include "tests/sim/server.h"
#include "tests/sim/worker.h"
#include <stdlib.h>
#include <string.h>

enum { FINISH_MS = 340000, GOODBYE_MS = 2000 };
enum { GONE_MS = 14000 }; /* of a server's silence, a step of ps 0's short of its SILENT_MS */

static void lead_step(struct server *s, struct coordinator_event *e);

static void wake_thread(struct server *s)
{
    struct lead *l = s->lead;
    if (l->mail_posted)
        return;
    l->mail_posted = 1;
    sim_timer(s->node, sim_below(&sim.node[s->node].random, 300) * 1000, TIMER_MAIL, 0);
}

static struct sim_mail *post_mail(struct server *s, enum coordinator_event_kind kind)
{
    struct sim_mail *m = sim_alloc(sizeof *m);
    m->kind = kind;
    *s->lead->mail_end = m;
    s->lead->mail_end = &m->next;
    wake_thread(s);
    return m;
}

void lead_changed(struct server *s)
{
    s->lead->changed = 1;
    wake_thread(s);
}

static void answer(struct server *s, uint64_t call, const struct net_control_reply *r)
{
    if (call & OWN_CALLS)
        follow_own_reply(s, call, r);
    else
        sim_control_answer(s->node, call, r);
}

static void answer_later(struct server *s, uint64_t call, const char *why)
{
    struct net_control_reply *r = sim_alloc(sizeof *r);
    snprintf(r->later, sizeof r->later, "%s", why);
    answer(s, call, r);
}

/* A later word of the same process takes the place of one that is unread. */
void lead_control(struct server *s, const struct net_control *c, uint64_t call)
{
    for (struct sim_mail *m = s->lead->mail; m; m = m->next)
        if (m->kind == COORDINATOR_CONTROL && m->control->incarnation == c->incarnation &&
            m->control->serial <= c->serial) {
            uint64_t old = m->call;
            m->control = c;
            m->call = call;
            answer_later(s, old, "a later call has taken its place");
            return;
        }
    struct sim_mail *m = post_mail(s, COORDINATOR_CONTROL);
    m->control = c;
    m->call = call;
}

void lead_closed(struct server *s, uint64_t call)
{
    post_mail(s, COORDINATOR_CLOSED)->call = call;
}

void lead_command(struct server *s, enum coordinator_command_kind what, int index)
{
    char why[CONTROL_TEXT_BYTES];
    if (what != COORDINATOR_CHECKPOINT && what != COORDINATOR_FINISH &&
        !coordinator_command_text(s->lead->state, what, index, why, sizeof why))
        return;
    struct sim_mail *m = post_mail(s, COORDINATOR_COMMAND);
    m->what = what;
    m->index = index;
}

/* The slot of an address; -1. */
static int slot_of(const struct lead *l, const char *address)
{
    for (int i = 0; i < coordinator_view_n_servers(l->state); i++)
        if (!strcmp(coordinator_view_server_address(l->state, i), address))
            return i;
    return -1;
}

/* On ps 0's clock, as it was in its last step; -1: it is not known. */
static int64_t silent_ms(const struct lead *l, const char *address)
{
    struct coordinator_server_view v;
    int slot = slot_of(l, address);
    if (slot < 0)
        return -1;
    coordinator_view_server(l->state, slot, &v);
    return v.heard_ms;
}

/* Whom the command is about is in the answer to the operator. */
static void note_drain(struct lead *l, int index)
{
    char why[CONTROL_TEXT_BYTES], address[CONTROL_TEXT_BYTES];
    if (!coordinator_command_text(l->state, COORDINATOR_DRAIN_SERVER, index, why, sizeof why) ||
        sscanf(why, "ps:%*d (%255[^)])", address) != 1)
        return;
    int node = sim_server_at(address);
    uint32_t life = sim.node[node].life;
    if (silent_ms(l, address) >= GONE_MS)
        l->silent[node] = life;
    else if (l->drained[node] == life && sim.now - l->planned_ns >= GONE_MS * SIM_MS)
        l->slow[node] = life;
    l->drained[node] = life;
}

/* One that is heard of again is waited for again. */
static void note_heard(struct lead *l, const struct net_control *from)
{
    int node = sim_server_at(from->address);
    if (silent_ms(l, from->address) == 0)
        l->silent[node] = 0;
}

static int is_given_up(const struct lead *l, int node)
{
    uint32_t life = sim.node[node].life;
    return l->silent[node] == life || l->slow[node] == life || l->given_up[node] == life;
}

static void reply_to(struct server *s, const struct coordinator_action *a)
{
    struct net_control_reply *r = sim_alloc(sizeof *r);
    int with_plan = coordinator_view_fill_reply(s->lead->state, a->server, r);
    if (a->server < 0 && a->arg)
        snprintf(r->later, sizeof r->later, "%s", a->text);
    else if (a->server < 0)
        snprintf(r->refused, sizeof r->refused, "%s", a->text);
    if (with_plan)
        r->plan = s->lead->plan; /* immutable, and kept for the run */
    answer(s, a->call, r);
}

static const struct net_plan *plan_of(const struct lead *l, uint64_t generation)
{
    for (int i = 0; i < KEPT_PLANS; i++)
        if (l->kept[i] && l->kept[i]->generation == generation)
            return l->kept[i];
    return NULL;
}

static enum status make_first(struct lead *l, const struct coordinator_plan_view *v,
                              const struct hosts *servers, struct net_plan **out)
{
    const struct net_join join = {.job = l->first->job, .chunks = l->first->chunks};
    const struct sim_manifest *m = v->source == PLAN_CHECKPOINT ? l->restore : NULL;
    struct checkpoint_manifest from = {.step = 0};
    if (m) {
        from.step = m->step;
        from.job = m->plan->job;
        from.progress =
            (struct checkpoint_progress){.known = 1,
                                         .position = m->position,
                                         .n_contributed = m->n_contributed,
                                         .contributed = (struct net_contribution *)m->contributed};
    }
    const struct planner_first first = {.generation = v->generation,
                                        .ps0 = l->incarnation,
                                        .join = &join,
                                        .servers = servers,
                                        .member = v->member,
                                        .n_members = v->n_members,
                                        .from = m ? &from : NULL,
                                        .restore = m ? m->name : ""};
    return planner_make_first(&first, out);
}

static enum status make_next(struct lead *l, const struct coordinator_plan_view *v,
                             const struct hosts *servers, struct net_plan **out)
{
    const struct net_plan *base = v->base ? plan_of(l, v->base) : l->plan;
    if (!base)
        return ST_NOT_FOUND;
    struct planner_next next = {.generation = v->generation,
                                .ps0 = l->incarnation,
                                .base = base,
                                .source = v->source,
                                .step = v->step,
                                .member = v->member,
                                .n_members = v->n_members,
                                .servers = servers};
    if (v->source == PLAN_MEMORY)
        next.position = net_plan_position(base, v->step);
    if (v->source == PLAN_CHECKPOINT) {
        if (!l->found)
            return ST_NOT_FOUND;
        next.position = l->found->position;
        next.restore = l->found->name;
        next.contributed = l->found->contributed;
        next.n_contributed = l->found->n_contributed;
    }
    return planner_make_next(&next, out);
}

static void keep_plan(struct lead *l, struct net_plan *next, uint64_t base)
{
    int out = 0, n;
    while (out < KEPT_PLANS - 1 && l->kept[out] && l->kept[out]->generation == base)
        out++;
    n = KEPT_PLANS - 1 - out;
    memmove(l->kept + out, l->kept + out + 1, (size_t)n * sizeof *l->kept);
    memmove(l->life + out, l->life + out + 1, (size_t)n * sizeof *l->life);
    l->kept[KEPT_PLANS - 1] = l->plan = next;
    l->planned_ns = sim.now;
    for (int i = 0; i < SIM_SERVERS; i++)
        l->life[KEPT_PLANS - 1][i] = sim.node[i].life;
}

/* The plan in force is made again, which did not keep the generation before, and in which not all
 * servers have a step: what was lost was so when it was made. */
static int begins_again(const struct lead *l, uint64_t base)
{
    const struct net_plan *p = l->plan;
    int n = 0;
    if (!p || p->generation == base || p->source == PLAN_MEMORY)
        return 0;
    for (int i = 0; i < p->servers.n; i++) {
        struct server *s = sim_server(sim_server_at(p->servers.addr[i]));
        struct generation_state is = {.generation = 0};
        if (s)
            generation_state(s->service, &is);
        n += is.generation == p->generation && is.lowest > p->step;
    }
    return n < p->servers.n;
}

/* Work is given up only where a process that held chunks has died, or an operator said so, who was
 * told that it is gone, or did not want to wait for it. */
static void check_work(struct lead *l, const struct coordinator_plan_view *v)
{
    if (l->works_lost == v->base || begins_again(l, v->base))
        return;
    for (int k = 0; k < KEPT_PLANS; k++) {
        const struct net_plan *p = l->kept[k];
        if (!p || p->generation != v->base)
            continue;
        for (int i = 0; i < p->servers.n; i++) {
            int node = sim_server_at(p->servers.addr[i]);
            if (!sim_server(node) || sim.node[node].life != l->life[k][node])
                return;
            if (is_given_up(l, node)) {
                l->works_lost = v->base;
                return;
            }
        }
    }
    sim_fail("work", "ps 0 goes back to step %lld, though no server has lost its chunks",
             (long long)v->step);
}

static int has_values(struct server *s)
{
    struct generation_state own;
    generation_state(s->service, &own);
    return own.lowest > 0;
}

static void make_plan(struct server *s, uint32_t op)
{
    struct lead *l = s->lead;
    struct coordinator_event e = {.kind = COORDINATOR_PLANNED, .op = op};
    struct coordinator_plan_view v;
    char *addr[LEAD_SERVERS];
    struct net_plan *next = NULL;
    if (sim_chance(&sim.memory, (int)sim.schedule->option[OPT_no_memory])) {
        e.st = ST_NOMEM;
        lead_step(s, &e);
        return;
    }
    coordinator_view_next_plan(l->state, &v);
    for (int i = 0; i < v.n_servers; i++)
        addr[i] = (char *)coordinator_view_server_address(l->state, v.server[i]);
    const struct hosts servers = {v.n_servers, addr};
    if (v.base && (v.source == PLAN_CHECKPOINT || (v.source == PLAN_FIRST && has_values(s))))
        check_work(l, &v);
    e.st = v.base == 0 && l->has_job ? make_first(l, &v, &servers, &next)
                                     : make_next(l, &v, &servers, &next);
    if (e.st == ST_OK) {
        coordinator_view_next_plan(l->state, &v);
        keep_plan(l, next, v.base);
        sim_keep_plan(next);
        STORY("ps 0 plans generation " TERM_FMT " from step %lld: %d workers, %d servers",
              TERM_ARG(next->generation), (long long)next->step, next->n_members, next->servers.n);
        oracle_planned(next);
        sim_mark(MARK_plan);
    }
    lead_step(s, &e);
}

/* Who has taken part, of the run's memory. */
static void list_contributions(struct sim_manifest *m)
{
    struct net_contribution *list;
    const int most = (int)(sizeof m->contributed / sizeof *m->contributed);
    CHECK(net_plan_contributions(m->plan, m->step, &list, &m->n_contributed) == ST_OK);
    if (m->n_contributed > most)
        sim_fail("bound", "more members than a run can have");
    memcpy(m->contributed, list, (size_t)m->n_contributed * sizeof *list);
    free(list);
}

static void order_manifest(struct server *s, struct disk_order *o)
{
    struct lead *l = s->lead;
    struct coordinator_manifest_view v;
    coordinator_view_manifest(l->state, &v);
    struct sim_manifest *m = sim_alloc(sizeof *m);
    const struct net_plan *p = plan_of(l, v.generation);
    m->generation = v.generation;
    m->step = v.step;
    m->n_files = v.n_files;
    m->plan = p;
    m->position = p ? net_plan_position(p, v.step) : 0;
    if (p)
        list_contributions(m);
    snprintf(m->name, sizeof m->name, "m-%llx-%lld-%llx", (unsigned long long)v.generation,
             (long long)v.step, (unsigned long long)l->incarnation);
    for (int i = 0; i < v.n_files; i++)
        for (int k = 0; k < s->folder->n_files; k++) {
            const struct sim_file *f = s->folder->file[k];
            if (f->generation == v.generation && f->step == v.step && f->server == i &&
                f->crc32c == v.file[i].crc32c)
                m->file[i] = f;
        }
    o->manifest = m;
    o->step = v.step;
    for (int i = 0; i < v.n_files; i++)
        if (!m->file[i])
            o->manifest = NULL;
}

static void order_disk(struct server *s, const struct coordinator_action *a)
{
    struct lead *l = s->lead;
    struct disk_order *o = sim_alloc(sizeof *o);
    for (int i = 0; i < SIM_SERVERS && a->disk == DISK_FIND; i++)
        l->given_up[i] = l->silent[i] ? l->silent[i] : l->slow[i];
    o->op = a->op;
    o->epoch = a->value;
    o->what = (enum disk_what)a->disk; /* in the same order */
    if (a->disk == DISK_FIND && a->value && s->folder)
        o->before = folder_find(s->folder, l->plan->restore);
    if (a->disk == DISK_MANIFEST)
        order_manifest(s, o);
    disk_begin(s->node, o);
}

void lead_disk(struct server *s, struct disk_order *o)
{
    if (o->what == DISK_ORDER_OWNER)
        o->epoch = s->lead->lease_epoch;
    if (o->what == DISK_ORDER_MANIFEST && !o->manifest)
        o->st = ST_NOT_FOUND;
    else
        disk_end(s->folder, s->node, o);
    if (o->what == DISK_ORDER_EPOCH && o->st == ST_OK)
        s->lead->lease_epoch = o->epoch;
    if (o->what == DISK_ORDER_FIND && o->st == ST_OK)
        s->lead->found = o->manifest;
    struct sim_mail *m = post_mail(s, COORDINATOR_DISK);
    m->op = o->op;
    m->st = o->st;
    m->step = o->step;
    m->epoch = o->epoch;
}

static void hold_last(struct server *s, int on)
{
    int ended;
    struct run *run = service_run(s->service, &ended);
    if (run)
        handover_hold_last(run->store, on);
    run_unref(run);
}

/* No member of the generation is there that could go on. */
static void check_failed(const struct server *s)
{
    const struct net_plan *p = s->lead->plan;
    for (int i = SIM_SERVERS; i < SIM_NODES; i++) {
        const struct worker *w = sim.node[i].state == NODE_UP ? sim_worker(i) : NULL;
        if (w && !w->failed && w->generation == p->generation && w->ps0 == p->ps0 &&
            w->phase < PHASE_LEAVE)
            sim_fail("end", "the job is said to have failed, and %s is there", sim.node[i].name);
    }
}

static void carry_out(struct server *s, const struct coordinator_action *a)
{
    char text[640];
    switch (a->kind) {
    case ACT_REPLY:
        reply_to(s, a);
        break;
    case ACT_PLAN:
        make_plan(s, a->op);
        break;
    case ACT_DISK:
        order_disk(s, a);
        break;
    case ACT_HOLD_LAST:
        hold_last(s, a->arg);
        break;
    case ACT_LINE:
        if (sim.story) {
            coordinator_line_text(s->lead->state, &a->line, "the folder", text, sizeof text);
            sim_story("    ps 0 says: %s", text);
        }
        break;
    case ACT_FAILED:
        check_failed(s);
        sim.job_failed = sim.node[0].life;
        server_finish(s);
        break;
    case ACT_DONE:
        server_finish(s);
        break;
    case ACT_FENCED:
        server_exit(s, a->arg ? EXIT_RETRY : EXIT_PERMANENT);
        break;
    case ACT_FINISHED:
        s->lead->finished = 1;
        break;
    }
}

static void lead_step(struct server *s, struct coordinator_event *e)
{
    struct lead *l = s->lead;
    struct generation_state own;
    struct coordinator_out *out = malloc(sizeof *out);
    CHECK(out);
    generation_state(s->service, &own);
    e->lowest = own.lowest;
    e->highest = own.highest > own.lowest ? own.highest : own.lowest;
    coordinator_step(l->state, e, sim.now, out);
    sim_digest(coordinator_view_generation(l->state) ^ (uint64_t)out->n << 32);
    if (out->wake_ns != l->wake_ns && out->wake_ns != INT64_MAX)
        sim_timer(s->node, out->wake_ns - sim.now, TIMER_LEAD, out->wake_ns);
    l->wake_ns = out->wake_ns;
    for (int i = 0; i < out->n && !sim.check; i++)
        carry_out(s, &out->act[i]);
    free(out);
}

static void step_workers(struct server *s)
{
    struct roster_entry *members = NULL, *waiting = NULL;
    struct generation_state own;
    struct coordinator_worker_event list[64];
    int n = 0, n_waiting = 0;
    generation_state(s->service, &own);
    if (membership_roster(s->service, &members, &n, &waiting, &n_waiting) != ST_OK)
        return;
    for (int i = 0; i < n + n_waiting && i < 64; i++) {
        const struct roster_entry *p = i < n ? &members[i] : &waiting[i - n];
        list[i] = coordinator_shell_worker(p, i >= n);
    }
    struct coordinator_event e = {.kind = COORDINATOR_WORKERS,
                                  .workers = {own.generation, own.claim, n + n_waiting, list}};
    lead_step(s, &e);
    free(members);
    free(waiting);
}

static void step_mail(struct server *s, const struct sim_mail *m)
{
    struct coordinator_event e = {.kind = m->kind, .call = m->call, .op = m->op, .st = m->st};
    if (m->kind == COORDINATOR_CONTROL)
        e.control = m->control;
    else if (m->kind == COORDINATOR_COMMAND)
        e.command.what = m->what, e.command.index = m->index;
    else if (m->kind == COORDINATOR_DISK)
        e.disk.step = m->step, e.disk.epoch = m->epoch;
    if (m->kind == COORDINATOR_COMMAND && m->what == COORDINATOR_DRAIN_SERVER)
        note_drain(s->lead, m->index);
    lead_step(s, &e);
    if (m->kind == COORDINATOR_CONTROL)
        note_heard(s->lead, m->control);
}

static void step_all(struct server *s)
{
    struct lead *l = s->lead;
    l->mail_posted = 0;
    while (l->changed || l->mail || l->has_job) {
        int changed = l->changed, has_job = l->has_job;
        struct sim_mail *m = l->mail;
        l->changed = 0;
        if (m) {
            l->mail = m->next;
            if (!l->mail)
                l->mail_end = &l->mail;
        }
        if (changed)
            step_workers(s);
        if (m)
            step_mail(s, m);
        if (has_job) {
            struct coordinator_event e = {.kind = COORDINATOR_JOB, .job = l->job};
            lead_step(s, &e);
            l->has_job = 0;
        }
    }
}

static void look_at_end(struct server *s)
{
    struct lead *l = s->lead;
    if (!s->ending)
        return;
    if (!l->finished && sim.now < s->finish_ns)
        return;
    if (!l->finish_ns)
        l->finish_ns = sim.now + GOODBYE_MS * SIM_MS;
    if (coordinator_view_is_unheard(l->state) && sim.now < l->finish_ns)
        sim_timer(s->node, 20 * SIM_MS, TIMER_FINISH, 0);
    else
        server_exit(s, sim.job_failed ? EXIT_PERMANENT : 0);
}

void lead_timer(struct server *s, int what, int64_t number)
{
    struct coordinator_event e = {.kind = COORDINATOR_TIMER};
    if (what == TIMER_MAIL)
        step_all(s);
    else if (what == TIMER_LEAD && number == s->lead->wake_ns)
        lead_step(s, &e);
    look_at_end(s);
}

enum status lead_first_join(void *ctx, const struct net_join *join, char *why, size_t why_bytes)
{
    struct server *s = ctx;
    struct lead *l = s->lead;
    struct net_join full = *join;
    struct planner_first first = {.join = &full, .servers = &sim_ps_hosts};
    struct coordinator_line wait;
    const struct sim_manifest *m = l->restore && !l->plan ? l->restore : NULL;
    if (l->has_job || !coordinator_view_takes_job(l->state, &wait))
        return ST_OK;
    if (full.job.n_workers == 0 && !m)
        return ST_OK;
    if (full.job.n_workers == 0)
        full.job.n_workers = m->plan->job.n_workers;
    if (l->plan)
        first.servers = &l->plan->servers;
    if (planner_make_first(&first, &l->first) != ST_OK)
        return ST_OK;
    sim_keep_plan(l->first);
    int as_then = m && full.generation > 0;
    l->job.train_steps = full.job.train_steps;
    l->job.step = m ? m->step : 0;
    l->job.lockstep = job_in_lockstep(&full.job);
    l->job.from_checkpoint = m != NULL;
    l->job.lives_on = full.generation > 0;
    l->job.claim = full.ps0 && full.ps0 != l->incarnation ? full.generation : 0;
    l->job.n_members = as_then ? m->plan->n_members : full.job.n_workers;
    l->job.member = as_then ? m->plan->member : NULL;
    l->has_job = 1;
    wake_thread(s);
    return ST_OK;
}

void lead_start(struct server *s)
{
    struct lead *l = s->lead = sim_alloc(sizeof *l);
    l->mail_end = &l->mail;
    l->wake_ns = INT64_MAX;
    l->state = sim_alloc(coordinator_bytes(LEAD_SERVERS, LEAD_WORKERS) + 64);
    l->restore =
        s->folder ? folder_newest(s->folder, NULL) : NULL; /* claimed with its epoch, below */
    l->incarnation = sim.node[s->node].incarnation;
    const struct coordinator_start start = {
        .incarnation = l->incarnation,
        .address = sim_ps_hosts.addr[0],
        .servers = l->restore ? &l->restore->plan->servers : &sim_ps_hosts,
        .save_steps = opt(OPT_save_steps),
        .worker_timeout_ms = opt(OPT_worker_timeout_ms),
        .min_workers = (int)opt(OPT_min_workers),
        .has_folder = s->folder != NULL,
        .epoch = s->folder ? ++s->folder->epoch : 0,
        .is_claimed = s->folder != NULL,
        .last_step = l->restore ? l->restore->step : -1,
        .has_all_steps = l->restore && l->restore->step >= sim_job.train_steps,
        .done_ms = sim.node[s->node].life > 1 ? 60000 : 0};
    l->lease_epoch = start.epoch;
    struct coordinator_event e = {.kind = COORDINATOR_START, .start = &start};
    coordinator_init(l->state, LEAD_SERVERS, LEAD_WORKERS);
    lead_step(s, &e);
}

void lead_stop(struct server *s)
{
}
