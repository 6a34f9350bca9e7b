/* ps/coordinator/reconfigure.c - see coordinator.h: from one generation to the next.
 *
 * RUNNING -> STOPPING: a server or worker comes, goes, or is lost; a Stop is out. When all servers
 * of the plan have stopped (or one has lost its chunks, so that nobody's count), the next plan is
 * made: BEGINNING. When all servers are in it, it is settled: RUNNING. If a server is lost before,
 * the plan is made again from the generation that was settled last, whose stores are kept so far.
 * Each call takes at most one step. */
#include "ps/coordinator/coordinator_impl.h"
#include <stdbool.h>

enum reason { REASON_NONE, REASON_PLANNED, REASON_LATE, REASON_LOST };

static void enter(struct coord *c, enum coord_phase phase)
{
    c->phase = phase;
    c->entered = c->awake;
    c->line = c->awake + LINE_MS * MS;
    c->failed = ST_OK;
    c->failure = LINE_NONE;
    c->not_before = 0;
    c->number++;
}

int coord_all_stopped(const struct coord *c)
{
    for (int i = 0; i < c->n_slots; i++) {
        const struct coord_server_state *s = &coord_servers(c)[i];
        if (s->number >= 0 && (s->stop != c->stop || !s->stopped || !s->incarnation))
            return 0;
    }
    return 1;
}

int coord_all_done(const struct coord *c)
{
    int n = 0;
    for (int i = 0; i < c->max_workers; i++) {
        if (coord_workers(c)[i].in_plan && !coord_workers(c)[i].done)
            return 0;
        n += coord_workers(c)[i].in_plan;
    }
    return n > 0;
}

/* Returns the step that all servers have; -1: a server lacks its first values. */
static int64_t lowest_of_all(const struct coord *c)
{
    int64_t lowest = coord_lowest(c);
    return lowest < 0 ? c->own_lowest /* servers have not called since they got values */ : lowest;
}

static bool has_steps_left(const struct coord *c)
{
    return lowest_of_all(c) < c->train_steps && !coord_all_done(c);
}

/* First values are there, and steps are left. */
static int can_plan(const struct coord *c)
{
    return lowest_of_all(c) >= 0 && has_steps_left(c);
}

/* Somebody was in a generation of another ps 0 that is not below this one, and cannot come here. */
static int is_outranked(const struct coord *c)
{
    return c->generation && term_epoch(c->generation) < c->recorded;
}

static enum reason find_reason(const struct coord *c, const struct coord_census *census)
{
    int planned = census->n_by[LOT_LEAVES] + census->n_by[LOT_REMOVED] + census->n_by[LOT_JOINS];
    if (coord_server_lost(c) >= 0)
        return REASON_LOST;
    if (census->n_by[LOT_LATE] + census->n_gone > 0)
        return REASON_LATE;
    for (int i = 0; i < c->n_slots; i++) {
        const struct coord_server_state *s = &coord_servers(c)[i];
        planned += coord_server_joins(c, s) || coord_server_leaves(s);
    }
    if (is_outranked(c) && !coord_all_done(c))
        return REASON_PLANNED;
    return planned && can_plan(c) ? REASON_PLANNED : REASON_NONE;
}

static void stop_all(struct coord *c)
{
    c->stop++;
    c->stopped = c->awake;
    coord_checkpoint_cancel(c);
    enter(c, PHASE_STOPPING);
}

/* Has the next plan end the job at the step where training is. Checkpoints that exist, or that are
 * being written, do not record this end. */
static void end_early(struct coord *c, struct coord_out *out)
{
    c->train_steps = c->eval.end_step;
    c->eval.ended = 1;
    c->eval.ended_in = c->generation;
    c->ckpt.last_step = coord_checkpoint_counts(c, c->generation, c->ckpt.last_step);
    coord_say(out,
              &(struct coord_line){LINE_EARLY_STOP, -1, -1, {c->train_steps, c->eval.n_since, 0}});
}

/* Has the next plan end the job with the step that is complete on all servers, or, where each chunk
 * makes steps at its own pace, with the furthest chunk's step. A job makes at least one step. */
static void end_as_asked(struct coord *c, struct coord_out *out)
{
    int64_t step = c->lockstep ? coord_lowest(c) : coord_highest(c), asked = c->train_steps;
    c->stop_asked = 0;
    if (step < 1)
        step = 1;
    if (step >= asked)
        return;
    c->train_steps = step;
    c->eval.ended = 1;
    c->eval.ended_in = c->generation;
    c->ckpt.last_step = coord_checkpoint_counts(c, c->generation, c->ckpt.last_step);
    coord_say(out, &(struct coord_line){LINE_JOB_STOPPED, -1, -1, {step, asked, 0}});
}

/* Ends a job that an operator stops, where no worker is left to end it, or none has begun it. */
static void end_without_workers(struct coord *c, struct coord_out *out)
{
    const struct coord_action a = {.kind = ACT_DONE};
    if (c->job_done || c->job_failed || c->finishing || !coord_act(out, &a))
        return;
    c->job_done = 1;
    coord_say(out, &(struct coord_line){LINE_JOB_STOPPED, -1, -1, {-1, 0, 0}});
}

static void run(struct coord *c, struct coord_out *out)
{
    struct coord_census census;
    coord_workers_judge(c, out, &census);
    if (coord_evaluation_ends(c) && !coord_all_done(c)) {
        end_early(c, out);
        stop_all(c);
    } else if ((c->finishing && !coord_all_done(c)) || (c->stop_asked && has_steps_left(c)) ||
               find_reason(c, &census) != REASON_NONE)
        stop_all(c);
}

/* Everybody that the next plan is for, ascending. */
static int next_members(const struct coord *c, int *member)
{
    int n = 0;
    for (int i = 0; i < c->max_workers; i++) {
        enum worker_lot lot = coord_workers(c)[i].lot;
        if (lot == LOT_STAYS || lot == LOT_JOINS)
            member[n++] = i;
    }
    return n;
}

/* 1: there are workers enough to go on. */
static int enough(struct coord *c, const struct coord_census *census, struct coord_out *out)
{
    int least = c->min_workers > 0 ? c->min_workers : 1;
    if (census->n_next == 0 && census->n_by[LOT_DONE] > 0 && coord_lowest(c) >= c->train_steps) {
        if (!c->job_done) {
            const struct coord_action a = {.kind = ACT_DONE};
            coord_act(out, &a);
            coord_say(out, &(struct coord_line){LINE_JOB_DONE, -1, -1, {0, 0, 0}});
        }
        c->job_done = 1;
        return 0;
    }
    if (coord_lowest(c) >= c->train_steps || c->stop_asked || c->eval.ended)
        least = 1; /* nothing is left to train, or a step that ends the job */
    if (c->phase == PHASE_BEGINNING && !c->workers_generation)
        least = 1; /* no worker can join before ps 0 has begun its first generation */
    return census->n_next > 0 && census->n_next + census->n_by[LOT_DONE] >= least;
}

/* It has left for good, with an error; not, that it was told to leave. */
static int has_failed(const struct coord_worker *w)
{
    return w->lot == LOT_LEAVES && w->failed;
}

/* Nobody is left, nor wants to come, and all ended with an error for good; whoever left in another
 * way, and no step was made since, may come back, and go on. */
static int all_failed(const struct coord *c)
{
    int64_t lowest = coord_lowest(c);
    int n = 0;
    for (int i = 0; i < c->max_workers; i++) {
        const struct coord_worker *w = &coord_workers(c)[i];
        if (w->in_plan && !has_failed(w))
            return 0;
        if (!w->in_plan && ((w->waits && w->removed != w->incarnation) ||
                            (w->left_step >= 0 && w->left_step >= lowest)))
            return 0;
        n += w->in_plan;
    }
    return n > 0;
}

/* All servers are told, then this process ends; no checkpoint is made of it. One that is being
 * written may become whole. */
static void end_if_failed(struct coord *c, struct coord_out *out)
{
    const struct coord_action a = {.kind = ACT_FAILED};
    if (c->job_failed || c->ckpt.phase != CKPT_IDLE || !all_failed(c) || !coord_act(out, &a))
        return;
    c->job_failed = 1;
    coord_say(out, &(struct coord_line){
                       LINE_JOB_FAILED, -1, -1, {coord_lowest(c), c->ckpt.last_step, 0}});
}

static void order_plan(struct coord *c, enum plan_source source, int64_t step,
                       struct coord_out *out)
{
    if (c->n == TERM_MAX_N) { /* the next epoch is recorded first */
        coord_claim(c, term_of(c->recorded, 0));
        return;
    }
    c->next_source = source;
    c->next_step = source == PLAN_FIRST ? 0 : step;
    c->next_generation = term_of(c->recorded, ++c->n);
    c->n_next_members = next_members(c, coord_ints(c, c->members_at));
    c->n_next_numbers = coord_servers_next(c, coord_ints(c, c->numbers_at));
    c->pending = PENDING_PLAN;
    c->pending_since = c->awake;
    c->op = ++c->ops;
    const struct coord_action a = {.kind = ACT_PLAN, .op = c->op};
    coord_act(out, &a);
}

/* Orders a look for the newest checkpoint, or, if a server reports the plan's checkpoint as
 * damaged, for the newest one before that. */
static void order_find(struct coord *c, struct coord_out *out)
{
    int slot = coord_server_cannot_read(c);
    uint64_t passed = slot >= 0 ? c->generation : 0;
    if (passed && passed != c->passed)
        coord_say(out,
                  &(struct coord_line){LINE_CHECKPOINT_UNREAD, slot, -1, {c->plan_step, 0, 0}});
    c->passed = passed;
    c->pending = PENDING_FIND;
    c->pending_since = c->awake;
    coord_order_disk(c, out, DISK_FIND, &c->op);
}

/* What the next generation resumes from. `lost`: a slot whose chunks are gone; -1. */
static void decide(struct coord *c, int lost, struct coord_out *out)
{
    struct coord_census census;
    int again = c->phase == PHASE_BEGINNING;
    if (c->awake < c->not_before) {
        coord_due(c, out, c->not_before);
        return;
    }
    coord_workers_judge(c, out, &census);
    int goes_on = !c->finishing && !c->job_failed && enough(c, &census, out);
    if (c->stop_asked && census.n_next == 0 && !c->serves) /* else the next worker ends it */
        end_without_workers(c, out);
    else if (!goes_on && !c->finishing)
        end_if_failed(c, out);
    if (!goes_on)
        return;
    c->lost = lost;
    if (lost >= 0 || (again && c->plan_source != PLAN_MEMORY)) {
        if (!c->has_folder) {
            order_plan(c, PLAN_FIRST, 0, out);
            return;
        }
        order_find(c, out);
        return;
    }
    int64_t step = again ? c->plan_step : coord_lowest(c);
    if (c->stop_asked && !again)
        end_as_asked(c, out);
    if (c->eval.ended && step > c->train_steps)
        c->train_steps = step;
    order_plan(c, step < 0 || !c->base ? PLAN_FIRST : PLAN_MEMORY, step, out);
}

void coord_found(struct coord *c, const struct coord_event *e)
{
    c->pending = PENDING_NONE;
    c->failed = ST_OK;
    if (e->st == ST_OK || e->st == ST_NOT_FOUND) {
        c->next_step = e->st == ST_OK ? e->disk.step : -1;
        c->pending = PENDING_PLAN; /* made by the next step, of who is there then */
        c->op = 0;
        return;
    }
    c->failed = e->st;
    c->not_before = c->awake + RETRY_MS * MS;
}

static int is_outside(const struct coord *c, const struct coord_server_state *s)
{
    return s->number >= 0 && s->generation != c->generation;
}

static int all_inside(const struct coord *c)
{
    for (int i = 0; i < c->n_slots; i++)
        if (is_outside(c, &coord_servers(c)[i]))
            return 0;
    return 1;
}

/* The checkpoint that a find has brought is what the plan is of. */
static void plan_found(struct coord *c, struct coord_out *out)
{
    struct coord_census census;
    int again = c->phase == PHASE_BEGINNING && c->plan_source != PLAN_MEMORY;
    c->pending = PENDING_NONE;
    c->lost = coord_server_lost(c);
    if (c->lost < 0 && (!again || (all_inside(c) && !c->redo))) /* who was silent has come */
        return;
    coord_workers_judge(c, out, &census);
    if (c->finishing || !enough(c, &census, out))
        return;
    order_plan(c, c->next_step < 0 ? PLAN_FIRST : PLAN_CHECKPOINT, c->next_step, out);
}

static void stopping(struct coord *c, struct coord_out *out)
{
    int lost = coord_server_lost(c);
    if (lost >= 0 || coord_all_stopped(c))
        decide(c, lost, out);
}

static void settle(struct coord *c)
{
    c->settled = c->base = c->generation;
    c->begun = c->awake;
    for (int i = 0; i < c->n_slots; i++) {
        struct coord_server_state *s = &coord_servers(c)[i];
        s->held = s->number >= 0 ? s->incarnation : 0;
        s->held_number = s->number;
    }
    enter(c, PHASE_RUNNING);
    coord_workers_settle(c);
}

/* A server that is in a generation of another ps 0, not below this one, cannot begin it. */
static int has_outside_claim(const struct coord *c)
{
    for (int i = 0; i < c->n_slots; i++)
        if (is_outside(c, &coord_servers(c)[i]) && coord_servers(c)[i].claim >= c->generation)
            return 1;
    return 0;
}

int coord_plan_is_void(const struct coord *c)
{
    return c->phase == PHASE_BEGINNING &&
           (c->redo || (is_outranked(c) && has_outside_claim(c)) ||
            coord_server_cannot_read(c) >= 0 ||
            (c->base && c->plan_source == PLAN_MEMORY && coord_server_lost(c) >= 0));
}

static void beginning(struct coord *c, struct coord_out *out)
{
    int gone = 0, n_outside = 0;
    for (int i = 0; i < c->n_slots; i++) {
        const struct coord_server_state *s = &coord_servers(c)[i];
        n_outside += is_outside(c, s);
        gone |= is_outside(c, s) && coord_server_is_gone(c, s);
    }
    if (coord_plan_is_void(c) && !(n_outside == 0 && !c->redo))
        decide(c, c->base && c->plan_source == PLAN_MEMORY ? coord_server_lost(c) : -1, out);
    else if (n_outside == 0)
        settle(c);
    else if (gone)
        decide(c, -1, out);
}

/* Lines about those who come and go; then they are what the plan says. */
static void take_workers(struct coord *c, struct coord_out *out)
{
    static const enum coord_line_id lines[] = {[LOT_LATE] = LINE_WORKER_LATE,
                                               [LOT_LEAVES] = LINE_WORKER_LEAVES,
                                               [LOT_REMOVED] = LINE_WORKER_REMOVED,
                                               [LOT_JOINS] = LINE_WORKER_JOINS};
    const int *member = coord_ints(c, c->members_at);
    int k = 0;
    for (int i = 0; i < c->max_workers; i++) {
        struct coord_worker *w = &coord_workers(c)[i];
        int in = k < c->n_next_members && member[k] == i;
        int unreached = w->in_plan && !in && w->lot == LOT_LATE && coord_worker_is_unreached(c, i);
        k += in;
        if (c->generation && unreached) {
            w->refuse_ms =
                w->refused == w->incarnation && w->refuse_ms ? w->refuse_ms * 2 : REFUSE_MS;
            if (w->refuse_ms > REFUSE_MAX_MS)
                w->refuse_ms = REFUSE_MAX_MS;
            w->refused = w->incarnation;
            w->refused_until = c->awake + w->refuse_ms * MS;
            coord_say(out,
                      &(struct coord_line){
                          LINE_WORKER_UNREACHED, w->missed_by, i, {c->next_step, w->refuse_ms, 0}});
        } else if (c->generation && w->lot >= LOT_LATE) {
            coord_say(out, &(struct coord_line){
                               lines[w->lot],
                               -1,
                               i,
                               {c->next_step, (int64_t)c->next_generation, c->n_next_members}});
        }
        if (in || w->in_plan)
            w->left_step = in || has_failed(w) ? -1 : c->next_step > 0 ? c->next_step : 0;
        if (!in && w->remove && !w->incarnation)
            w->remove = 0; /* whoever comes as this worker later was not meant */
        w->wanted = (int8_t)(in && (w->wanted || w->lot == LOT_JOINS));
        w->in_plan = (int8_t)in;
        w->waits = w->waits && !in;
    }
}

/* The plan is made: it is in force. */
static void publish(struct coord *c, struct coord_out *out)
{
    const int *slot = coord_ints(c, c->numbers_at);
    coord_checkpoint_cancel(c);
    take_workers(c, out);
    const struct coord_server_state *lost = c->lost >= 0 ? &coord_servers(c)[c->lost] : NULL;
    /* for somebody who could not come before */
    int is_raised = c->generation && term_epoch(c->next_generation) != term_epoch(c->generation);
    if (lost)
        coord_say(out, &(struct coord_line){LINE_SERVER_LOST,
                                            c->lost,
                                            lost->held != lost->incarnation ? 1
                                            : lost->given_up                ? 2
                                                                            : 0,
                                            {c->next_source == PLAN_CHECKPOINT, c->next_step,
                                             (int64_t)c->next_generation}});
    if (is_raised && c->from_start && !c->lives_on && c->next_step <= 0) /* else it was said */
        coord_say(out, &(struct coord_line){LINE_JOB_ANEW, -1, -1, {0, 0, 0}});
    if (c->next_source != PLAN_MEMORY) {
        coord_evaluations_back(c, c->next_source == PLAN_CHECKPOINT ? c->next_step : 0);
        /* whose it is the find does not say: the last step's is made again */
        c->ckpt.last_step = c->next_source == PLAN_CHECKPOINT
                                ? coord_checkpoint_counts(c, c->eval.ended_in, c->next_step)
                                : -1;
    }
    for (int i = 0; i < c->n_slots; i++)
        coord_servers(c)[i].number = -1;
    for (int k = 0; k < c->n_next_numbers; k++)
        coord_servers(c)[slot[k]].number = k;
    c->n_members = c->n_next_members;
    c->n_numbers = c->n_next_numbers;
    c->generation = c->next_generation;
    c->plan_source = c->next_source;
    c->plan_step = c->next_step;
    coord_workers_begin(c, is_raised);
    c->ckpt.hold_last = c->has_folder; /* a new store begins so */
    c->redo = 0;
    enter(c, PHASE_BEGINNING);
}

void coord_planned(struct coord *c, const struct coord_event *e, struct coord_out *out)
{
    if (c->pending != PENDING_PLAN || e->op != c->op)
        return;
    c->pending = PENDING_NONE;
    c->failed = e->st;
    c->not_before = c->awake + RETRY_MS * MS;
    if (e->st == ST_OK)
        publish(c, out);
}

void coord_job(struct coord *c, const struct coord_event *e, struct coord_out *out)
{
    struct coord_line why;
    if (!coord_takes_job(c, &why) || c->awake < c->not_before)
        return;
    c->train_steps = e->job.train_steps;
    c->lockstep = e->job.lockstep;
    c->stop_asked = c->job_done = 0;
    c->eval.ended = 0;
    c->eval.from = e->job.step;
    coord_evaluations_back(c, e->job.step);
    c->lives_on = e->job.lives_on;
    c->from_start = !e->job.from_checkpoint;
    c->base = 0;
    c->lost = -1;
    c->stopped = c->awake;
    for (int i = 0; i < c->max_workers; i++) {
        struct coord_worker *w = &coord_workers(c)[i];
        *w = (struct coord_worker){.since = INT64_MAX, .missed_by = -1, .left_step = -1};
    }
    for (int i = 0; i < e->job.n_members; i++) {
        int member = e->job.member ? e->job.member[i] : i;
        if (member >= 0 && member < c->max_workers)
            coord_workers(c)[member].lot = LOT_STAYS;
    }
    if (c->lives_on && !e->job.from_checkpoint)
        coord_say(out, &(struct coord_line){LINE_JOB_ANEW, -1, -1, {0, 0, 0}});
    order_plan(c, e->job.from_checkpoint ? PLAN_CHECKPOINT : PLAN_FIRST, e->job.step, out);
}

/* A find or a plan that comes to nothing is tried again and again: it is said once, and again when
 * it does so in another way. */
static int was_said(struct coord *c, const struct coord_line *l)
{
    if (l->id != WAIT_FIND_FAILED && l->id != WAIT_PLAN_FAILED)
        return 0;
    int was = c->failure == l->id && c->failure_st == (enum status)l->arg[0];
    c->failure = l->id;
    c->failure_st = (enum status)l->arg[0];
    return was;
}

/* What a change waits for is said now and then. */
static void tell_wait(struct coord *c, struct coord_out *out)
{
    struct coord_line l;
    if ((c->phase == PHASE_EMPTY && !c->failed && !c->epoch_failed) ||
        c->pending == PENDING_PLAN) /* that takes no time */
        return;
    if (!coord_waits_for(c, &l)) {
        c->line = c->awake + LINE_MS * MS;
        return;
    }
    if (c->awake >= c->line && !was_said(c, &l))
        coord_say(out,
                  &(struct coord_line){l.id, l.server, l.worker, {l.arg[0], l.arg[1], l.arg[2]}});
    if (c->awake >= c->line)
        c->line = c->awake + LINE_MS * MS;
    coord_due(c, out, c->line);
}

void coord_reconfigure(struct coord *c, struct coord_out *out)
{
    if (c->pending == PENDING_PLAN && c->op == 0)
        plan_found(c, out);
    else if (c->pending != PENDING_NONE || c->finished || c->fenced)
        ;
    else if (c->phase == PHASE_EMPTY && c->stop_asked)
        end_without_workers(c, out);
    else if (c->phase == PHASE_RUNNING)
        run(c, out);
    else if (c->phase == PHASE_STOPPING)
        stopping(c, out);
    else if (c->phase == PHASE_BEGINNING)
        beginning(c, out);
    tell_wait(c, out);
}
