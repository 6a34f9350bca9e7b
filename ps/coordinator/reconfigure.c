/* ps/coordinator/reconfigure.c - the change from one generation to the next (coordinator.h).
 *
 * RUNNING -> STOPPING: a server or worker joins, leaves, or is lost; a Stop is sent. Once all
 * servers of the plan have stopped (or one has lost its chunks, so that the chunks of other
 * servers do not count), the next plan is made: BEGINNING. Once all servers are in it, it is
 * settled: RUNNING. If a server is lost before, the plan is made again from the last settled
 * generation, whose stores are kept until then. Each call makes at most one of these
 * transitions. */
#include "ps/coordinator/coordinator_impl.h"
#include <stdbool.h>

enum reason { REASON_NONE, REASON_PLANNED, REASON_LATE, REASON_LOST };

static void enter_phase(struct coordinator_state *c, enum coordinator_phase phase)
{
    c->phase = phase;
    c->entered = c->awake;
    c->line = c->awake + LINE_MS * MS;
    c->failed = ST_OK;
    c->failure = LINE_NONE;
    c->not_before = 0;
    c->number++;
}

bool reconfigure_all_stopped(const struct coordinator_state *c)
{
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->number >= 0 && (s->stop != c->stop || !s->stopped || !s->incarnation))
            return false;
    }
    return true;
}

bool reconfigure_all_done(const struct coordinator_state *c)
{
    int n = 0;
    for (int i = 0; i < c->max_workers; i++) {
        if (coordinator_workers(c)[i].in_plan && !coordinator_workers(c)[i].done)
            return false;
        n += coordinator_workers(c)[i].in_plan;
    }
    return n > 0;
}

/* Returns the step that all servers have; -1: a server lacks its initial values. */
static int64_t lowest_of_all(const struct coordinator_state *c)
{
    int64_t lowest = server_registry_lowest(c);
    /* other servers have not called since they received initial values */
    return lowest < 0 ? c->own_lowest : lowest;
}

static bool has_steps_left(const struct coordinator_state *c)
{
    return lowest_of_all(c) < c->train_steps && !reconfigure_all_done(c);
}

/* Returns true if all servers have values, and steps are left. */
static bool can_plan(const struct coordinator_state *c)
{
    return lowest_of_all(c) >= 0 && has_steps_left(c);
}

/* Returns true if the epoch was raised above that of this generation: a worker or server was in a
 * generation of another ps 0 whose number is not below this one's, and cannot enter this
 * generation. */
static bool is_outranked(const struct coordinator_state *c)
{
    return c->generation && term_epoch(c->generation) < c->recorded;
}

static enum reason find_reason(const struct coordinator_state *c,
                               const struct failure_detector_census *census)
{
    int planned = census->n_by[LOT_LEAVES] + census->n_by[LOT_REMOVED] + census->n_by[LOT_JOINS];
    if (server_registry_find_lost(c) >= 0)
        return REASON_LOST;
    if (census->n_by[LOT_LATE] + census->n_gone > 0)
        return REASON_LATE;
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        planned += server_registry_is_joining(c, s) || server_registry_is_leaving(s);
    }
    if (is_outranked(c) && !reconfigure_all_done(c))
        return REASON_PLANNED;
    return planned && can_plan(c) ? REASON_PLANNED : REASON_NONE;
}

static void stop_all(struct coordinator_state *c)
{
    c->stop++;
    c->stopped = c->awake;
    checkpoint_schedule_cancel(c);
    enter_phase(c, PHASE_STOPPING);
}

/* Makes the next plan end the job at the evaluated step, at which training stands. Checkpoints that
 * exist, or that are being written, do not record this end. */
static void end_early(struct coordinator_state *c, struct coordinator_out *out)
{
    c->train_steps = c->eval.end_step;
    c->eval.ended = 1;
    c->eval.ended_in = c->generation;
    c->ckpt.last_step = checkpoint_schedule_counts(c, c->generation, c->ckpt.last_step);
    coordinator_add_line(out, &(struct coordinator_line){
                                  LINE_EARLY_STOP, -1, -1, {c->train_steps, c->eval.n_since, 0}});
}

/* Makes the next plan end the job at the step that is complete on all servers or, if chunks advance
 * independently, at the step of the furthest chunk. A job makes at least one step. */
static void end_as_asked(struct coordinator_state *c, struct coordinator_out *out)
{
    int64_t step = c->lockstep ? server_registry_lowest(c) : server_registry_highest(c),
            asked = c->train_steps;
    c->stop_asked = 0;
    if (step < 1)
        step = 1;
    if (step >= asked)
        return;
    c->train_steps = step;
    c->eval.ended = 1;
    c->eval.ended_in = c->generation;
    c->ckpt.last_step = checkpoint_schedule_counts(c, c->generation, c->ckpt.last_step);
    coordinator_add_line(out,
                         &(struct coordinator_line){LINE_JOB_STOPPED, -1, -1, {step, asked, 0}});
}

/* Ends a job that an operator stops if no worker is left to end it, or no worker has begun it. */
static void end_without_workers(struct coordinator_state *c, struct coordinator_out *out)
{
    const struct coordinator_action a = {.kind = ACT_DONE};
    if (c->job_done || c->job_failed || c->finishing || !coordinator_add_action(out, &a))
        return;
    c->job_done = 1;
    coordinator_add_line(out, &(struct coordinator_line){LINE_JOB_STOPPED, -1, -1, {-1, 0, 0}});
}

/* Returns true if the generation has too few workers. This is possible if it began while no worker
 * could join. */
static bool is_too_few(const struct coordinator_state *c,
                       const struct failure_detector_census *census)
{
    return census->n_next + census->n_by[LOT_DONE] < c->min_workers && can_plan(c) &&
           !c->stop_asked && !c->eval.ended;
}

static void step_running(struct coordinator_state *c, struct coordinator_out *out)
{
    struct failure_detector_census census;
    failure_detector_judge(c, out, &census);
    if (evaluation_ends_job(c) && !reconfigure_all_done(c)) {
        end_early(c, out);
        stop_all(c);
    } else if ((c->finishing && !reconfigure_all_done(c)) || (c->stop_asked && has_steps_left(c)) ||
               find_reason(c, &census) != REASON_NONE || is_too_few(c, &census))
        stop_all(c);
}

/* Writes the members of the next plan in ascending order. Returns their number. */
static int next_members(const struct coordinator_state *c, int *member)
{
    int n = 0;
    for (int i = 0; i < c->max_workers; i++) {
        enum worker_lot lot = coordinator_workers(c)[i].lot;
        if (lot == LOT_STAYS || lot == LOT_JOINS)
            member[n++] = i;
    }
    return n;
}

/* Returns true if there are enough workers to continue. Ends a job whose workers have all
 * made all steps. */
static bool has_enough_workers(struct coordinator_state *c,
                               const struct failure_detector_census *census,
                               struct coordinator_out *out)
{
    int least = c->min_workers > 0 ? c->min_workers : 1;
    if (census->n_next == 0 && census->n_by[LOT_DONE] > 0 &&
        server_registry_lowest(c) >= c->train_steps) {
        if (!c->job_done) {
            const struct coordinator_action a = {.kind = ACT_DONE};
            coordinator_add_action(out, &a);
            coordinator_add_line(out, &(struct coordinator_line){LINE_JOB_DONE, -1, -1, {0, 0, 0}});
        }
        c->job_done = 1;
        return false;
    }
    if (server_registry_lowest(c) >= c->train_steps || c->stop_asked || c->eval.ended)
        least = 1; /* no step is left, or only a step that ends the job */
    if (c->phase == PHASE_BEGINNING && !c->workers_generation)
        least = 1; /* no worker can join before ps 0 has begun its first generation */
    return census->n_next > 0 && census->n_next + census->n_by[LOT_DONE] >= least;
}

/* Returns true if the worker ended with an error, and not because an operator ordered it to
 * leave. */
static bool has_failed(const struct coordinator_worker *w)
{
    return w->lot == LOT_LEAVES && w->failed;
}

/* Returns true if no worker is left or waits to join, and all ended with an error. A worker that
 * left in another way may still return and continue if no step was made since. */
static bool all_failed(const struct coordinator_state *c)
{
    int64_t lowest = server_registry_lowest(c);
    int n = 0;
    for (int i = 0; i < c->max_workers; i++) {
        const struct coordinator_worker *w = &coordinator_workers(c)[i];
        if (w->in_plan && !has_failed(w))
            return false;
        if (!w->in_plan && ((w->waits && w->removed != w->incarnation) ||
                            (w->left_step >= 0 && w->left_step >= lowest)))
            return false;
        n += w->in_plan;
    }
    return n > 0;
}

/* Ends a failed job: all servers are informed, then this process ends. No checkpoint is made.
 * One that is being written may still be completed. */
static void end_if_failed(struct coordinator_state *c, struct coordinator_out *out)
{
    const struct coordinator_action a = {.kind = ACT_FAILED};
    if (c->job_failed || c->ckpt.phase != SCHEDULE_IDLE || !all_failed(c) ||
        !coordinator_add_action(out, &a))
        return;
    c->job_failed = 1;
    coordinator_add_line(
        out, &(struct coordinator_line){
                 LINE_JOB_FAILED, -1, -1, {server_registry_lowest(c), c->ckpt.last_step, 0}});
}

static void order_plan(struct coordinator_state *c, enum plan_source source, int64_t step,
                       struct coordinator_out *out)
{
    if (c->n == TERM_MAX_N) { /* the next epoch is recorded first */
        coordinator_note_claim(c, term_of(c->recorded, 0));
        return;
    }
    c->next_source = source;
    c->next_step = source == PLAN_FIRST ? 0 : step;
    c->next_generation = term_of(c->recorded, ++c->n);
    c->n_next_members = next_members(c, coordinator_ints(c, c->members_at));
    c->n_next_numbers = server_registry_next(c, coordinator_ints(c, c->numbers_at));
    c->pending = PENDING_PLAN;
    c->pending_since = c->awake;
    c->op = ++c->ops;
    const struct coordinator_action a = {.kind = ACT_PLAN, .op = c->op};
    coordinator_add_action(out, &a);
}

/* Orders a search for the newest checkpoint or, if a server reports the plan's checkpoint as
 * damaged, for the newest one before that. */
static void order_find(struct coordinator_state *c, struct coordinator_out *out)
{
    int slot = server_registry_find_unreadable(c);
    uint64_t passed = slot >= 0 ? c->generation : 0;
    if (passed && passed != c->passed)
        coordinator_add_line(out, &(struct coordinator_line){
                                      LINE_CHECKPOINT_UNREAD, slot, -1, {c->plan_step, 0, 0}});
    c->passed = passed;
    c->pending = PENDING_FIND;
    c->pending_since = c->awake;
    coordinator_order_disk(c, out, DISK_FIND, &c->op);
}

/* Decides from which step or checkpoint the next generation resumes. `lost`: slot of a server whose
 * chunks are lost; -1: none. */
static void decide_source(struct coordinator_state *c, int lost, struct coordinator_out *out)
{
    struct failure_detector_census census;
    int again = c->phase == PHASE_BEGINNING;
    if (c->awake < c->not_before) {
        coordinator_wake_at(c, out, c->not_before);
        return;
    }
    failure_detector_judge(c, out, &census);
    int goes_on = !c->finishing && !c->job_failed && has_enough_workers(c, &census, out);
    /* no worker can join yet, so all workers count as present */
    int cannot_begin = again && !c->workers_generation && c->failed != ST_OK;
    if (c->stop_asked && (census.n_next == 0 || cannot_begin) &&
        !c->serves) /* if --serve is set, the next worker ends the job */
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
    int64_t step = again ? c->plan_step : server_registry_lowest(c);
    if (c->stop_asked && !again)
        end_as_asked(c, out);
    if (c->eval.ended && step > c->train_steps)
        c->train_steps = step;
    order_plan(c, step < 0 || !c->base ? PLAN_FIRST : PLAN_MEMORY, step, out);
}

void reconfigure_on_found(struct coordinator_state *c, const struct coordinator_event *e)
{
    c->pending = PENDING_NONE;
    c->failed = ST_OK;
    if (e->st == ST_OK || e->st == ST_NOT_FOUND) {
        c->next_step = e->st == ST_OK ? e->disk.step : -1;
        /* the next coordinator_step() orders the plan, with the workers that are present then */
        c->pending = PENDING_PLAN;
        c->op = 0;
        return;
    }
    c->failed = e->st;
    c->not_before = c->awake + RETRY_MS * MS;
}

static bool is_outside(const struct coordinator_state *c, const struct coordinator_server *s)
{
    return s->number >= 0 && s->generation != c->generation;
}

static bool all_inside(const struct coordinator_state *c)
{
    for (int i = 0; i < c->n_slots; i++)
        if (is_outside(c, &coordinator_servers(c)[i]))
            return false;
    return true;
}

/* Plans a generation from the checkpoint that the order FIND returned. */
static void plan_found(struct coordinator_state *c, struct coordinator_out *out)
{
    struct failure_detector_census census;
    int again = c->phase == PHASE_BEGINNING && c->plan_source != PLAN_MEMORY;
    c->pending = PENDING_NONE;
    c->lost = server_registry_find_lost(c);
    if (c->lost < 0 && (!again || (all_inside(c) && !c->redo))) /* the silent server has returned */
        return;
    failure_detector_judge(c, out, &census);
    if (c->finishing || !has_enough_workers(c, &census, out))
        return;
    order_plan(c, c->next_step < 0 ? PLAN_FIRST : PLAN_CHECKPOINT, c->next_step, out);
}

static void step_stopping(struct coordinator_state *c, struct coordinator_out *out)
{
    int lost = server_registry_find_lost(c);
    if (lost >= 0 || reconfigure_all_stopped(c))
        decide_source(c, lost, out);
}

static void settle_generation(struct coordinator_state *c)
{
    c->settled = c->base = c->generation;
    c->begun = c->awake;
    for (int i = 0; i < c->n_slots; i++) {
        struct coordinator_server *s = &coordinator_servers(c)[i];
        s->held = s->number >= 0 ? s->incarnation : 0;
        s->held_number = s->number;
    }
    enter_phase(c, PHASE_RUNNING);
    failure_detector_settle(c);
}

/* Returns true if a server that has not entered this generation was in a generation of another ps 0
 * whose number is not below this one's. Such a server cannot begin this generation. */
static bool has_outside_claim(const struct coordinator_state *c)
{
    for (int i = 0; i < c->n_slots; i++)
        if (is_outside(c, &coordinator_servers(c)[i]) &&
            coordinator_servers(c)[i].claim >= c->generation)
            return true;
    return false;
}

bool reconfigure_plan_is_void(const struct coordinator_state *c)
{
    return c->phase == PHASE_BEGINNING &&
           (c->redo || (is_outranked(c) && has_outside_claim(c)) ||
            server_registry_find_unreadable(c) >= 0 ||
            (c->base && c->plan_source == PLAN_MEMORY && server_registry_find_lost(c) >= 0));
}

static void step_beginning(struct coordinator_state *c, struct coordinator_out *out)
{
    int gone = 0, n_outside = 0;
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        n_outside += is_outside(c, s);
        gone |= is_outside(c, s) && server_registry_is_gone(c, s);
    }
    if (reconfigure_plan_is_void(c) && !(n_outside == 0 && !c->redo))
        decide_source(
            c, c->base && c->plan_source == PLAN_MEMORY ? server_registry_find_lost(c) : -1, out);
    else if (n_outside == 0)
        settle_generation(c);
    else if (gone)
        decide_source(c, -1, out);
}

/* Logs the workers that join or leave, then makes the members of the next plan those in force. */
static void take_workers(struct coordinator_state *c, struct coordinator_out *out)
{
    static const enum coordinator_line_id lines[] = {[LOT_LATE] = LINE_WORKER_LATE,
                                                     [LOT_LEAVES] = LINE_WORKER_LEAVES,
                                                     [LOT_REMOVED] = LINE_WORKER_REMOVED,
                                                     [LOT_JOINS] = LINE_WORKER_JOINS};
    const int *member = coordinator_ints(c, c->members_at);
    int k = 0;
    for (int i = 0; i < c->max_workers; i++) {
        struct coordinator_worker *w = &coordinator_workers(c)[i];
        int in = k < c->n_next_members && member[k] == i;
        int unreached =
            w->in_plan && !in && w->lot == LOT_LATE && failure_detector_is_unreached(c, i);
        k += in;
        if (c->generation && unreached) {
            w->refuse_ms =
                w->refused == w->incarnation && w->refuse_ms ? w->refuse_ms * 2 : REFUSE_MS;
            if (w->refuse_ms > REFUSE_MAX_MS)
                w->refuse_ms = REFUSE_MAX_MS;
            w->refused = w->incarnation;
            w->refused_until = c->awake + w->refuse_ms * MS;
            coordinator_add_line(
                out, &(struct coordinator_line){
                         LINE_WORKER_UNREACHED, w->missed_by, i, {c->next_step, w->refuse_ms, 0}});
        } else if (c->generation && w->lot >= LOT_LATE) {
            coordinator_add_line(
                out, &(struct coordinator_line){
                         lines[w->lot],
                         -1,
                         i,
                         {c->next_step, (int64_t)c->next_generation, c->n_next_members}});
        }
        if (in || w->in_plan)
            w->left_step = in || has_failed(w) ? -1 : c->next_step > 0 ? c->next_step : 0;
        if (!in && w->remove && !w->incarnation)
            /* the order to remove the worker does not apply to a process that is started later
             * under this index */
            w->remove = 0;
        w->wanted = (int8_t)(in && (w->wanted || w->lot == LOT_JOINS));
        w->in_plan = (int8_t)in;
        w->waits = w->waits && !in;
    }
}

/* Puts into force the plan that was made. */
static void publish_plan(struct coordinator_state *c, struct coordinator_out *out)
{
    const int *slot = coordinator_ints(c, c->numbers_at);
    checkpoint_schedule_cancel(c);
    take_workers(c, out);
    const struct coordinator_server *lost = c->lost >= 0 ? &coordinator_servers(c)[c->lost] : NULL;
    /* the epoch was raised for a worker or server that could not enter before */
    bool is_raised = c->generation && term_epoch(c->next_generation) != term_epoch(c->generation);
    if (lost)
        coordinator_add_line(
            out, &(struct coordinator_line){LINE_SERVER_LOST,
                                            c->lost,
                                            lost->held != lost->incarnation ? 1
                                            : lost->given_up                ? 2
                                                                            : 0,
                                            {c->next_source == PLAN_CHECKPOINT, c->next_step,
                                             (int64_t)c->next_generation}});
    if (is_raised && c->from_start && !c->lives_on && c->next_step <= 0) /* not logged yet */
        coordinator_add_line(out, &(struct coordinator_line){LINE_JOB_ANEW, -1, -1, {0, 0, 0}});
    if (c->next_source != PLAN_MEMORY) {
        evaluation_rewind(c, c->next_source == PLAN_CHECKPOINT ? c->next_step : 0);
        /* The order FIND does not return the checkpoint's generation, so a checkpoint of the last
         * step is made again. */
        c->ckpt.last_step = c->next_source == PLAN_CHECKPOINT
                                ? checkpoint_schedule_counts(c, c->eval.ended_in, c->next_step)
                                : -1;
    }
    for (int i = 0; i < c->n_slots; i++)
        coordinator_servers(c)[i].number = -1;
    for (int k = 0; k < c->n_next_numbers; k++)
        coordinator_servers(c)[slot[k]].number = k;
    c->n_members = c->n_next_members;
    c->n_numbers = c->n_next_numbers;
    c->generation = c->next_generation;
    c->plan_source = c->next_source;
    c->plan_step = c->next_step;
    failure_detector_begin(c, is_raised);
    c->ckpt.hold_last = c->has_folder; /* each new store begins with this setting */
    c->redo = 0;
    enter_phase(c, PHASE_BEGINNING);
}

void reconfigure_on_planned(struct coordinator_state *c, const struct coordinator_event *e,
                            struct coordinator_out *out)
{
    if (c->pending != PENDING_PLAN || e->op != c->op)
        return;
    c->pending = PENDING_NONE;
    c->failed = e->st;
    c->not_before = c->awake + RETRY_MS * MS;
    if (e->st == ST_OK)
        publish_plan(c, out);
}

void reconfigure_on_job(struct coordinator_state *c, const struct coordinator_event *e,
                        struct coordinator_out *out)
{
    struct coordinator_line why;
    if (!coordinator_view_takes_job(c, &why) || c->awake < c->not_before)
        return;
    c->train_steps = e->job.train_steps;
    c->lockstep = e->job.lockstep;
    c->stop_asked = c->job_done = 0;
    c->eval.ended = 0;
    c->eval.from = e->job.step;
    evaluation_rewind(c, e->job.step);
    c->lives_on = e->job.lives_on;
    c->from_start = !e->job.from_checkpoint;
    c->base = 0;
    c->lost = -1;
    c->stopped = c->awake;
    for (int i = 0; i < c->max_workers; i++) {
        struct coordinator_worker *w = &coordinator_workers(c)[i];
        *w = (struct coordinator_worker){.since = INT64_MAX, .missed_by = -1, .left_step = -1};
    }
    for (int i = 0; i < e->job.n_members; i++) {
        int member = e->job.member ? e->job.member[i] : i;
        if (member >= 0 && member < c->max_workers)
            coordinator_workers(c)[member].lot = LOT_STAYS;
    }
    if (c->lives_on && !e->job.from_checkpoint)
        coordinator_add_line(out, &(struct coordinator_line){LINE_JOB_ANEW, -1, -1, {0, 0, 0}});
    order_plan(c, e->job.from_checkpoint ? PLAN_CHECKPOINT : PLAN_FIRST, e->job.step, out);
}

/* Returns true if this failure was logged. A failed order FIND or a failed plan is retried often:
 * it is logged one time, and again if the failure differs. */
static bool was_logged(struct coordinator_state *c, const struct coordinator_line *l)
{
    if (l->id != WAIT_FIND_FAILED && l->id != WAIT_PLAN_FAILED)
        return false;
    int was = c->failure == l->id && c->failure_st == (enum status)l->arg[0];
    c->failure = l->id;
    c->failure_st = (enum status)l->arg[0];
    return was;
}

/* Logs from time to time what a change waits for. */
static void log_wait(struct coordinator_state *c, struct coordinator_out *out)
{
    struct coordinator_line l;
    if ((c->phase == PHASE_EMPTY && !c->failed && !c->epoch_failed) ||
        c->pending == PENDING_PLAN) /* a plan is made so fast that no line is due */
        return;
    if (!coordinator_view_waits_for(c, &l)) {
        c->line = c->awake + LINE_MS * MS;
        return;
    }
    if (c->awake >= c->line && !was_logged(c, &l))
        coordinator_add_line(out, &(struct coordinator_line){
                                      l.id, l.server, l.worker, {l.arg[0], l.arg[1], l.arg[2]}});
    if (c->awake >= c->line)
        c->line = c->awake + LINE_MS * MS;
    coordinator_wake_at(c, out, c->line);
}

void reconfigure_step(struct coordinator_state *c, struct coordinator_out *out)
{
    if (c->pending == PENDING_PLAN && c->op == 0)
        plan_found(c, out);
    else if (c->pending != PENDING_NONE || c->finished || c->fenced)
        ;
    else if (c->phase == PHASE_EMPTY && c->stop_asked)
        end_without_workers(c, out);
    else if (c->phase == PHASE_RUNNING)
        step_running(c, out);
    else if (c->phase == PHASE_STOPPING)
        step_stopping(c, out);
    else if (c->phase == PHASE_BEGINNING)
        step_beginning(c, out);
    log_wait(c, out);
}
