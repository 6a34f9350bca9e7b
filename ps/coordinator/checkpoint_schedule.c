/* ps/coordinator/checkpoint_schedule.c - the schedule of checkpoints (coordinator.h). They are made
 * one after the other, and may overlap with changes of the generation, which they never delay.
 *
 * An order names a step that the chunks have or reach soon. Each server reports when it waits for
 * that step, when it holds its chunks, and when it has written its file; then the manifest is
 * written. A Stop cancels the order if a server does not hold its chunks yet; after that the order
 * depends on no generation. A checkpoint that falls due before the last one has ended follows it at
 * once. ps 0 does not wait for a disk without limit: it abandons a late file or manifest, and logs
 * that. No worker receives a job's last version before its checkpoint is on the disk or has failed:
 * members that have left could not redo the steps that a server loses when it dies. */
#include "ps/coordinator/coordinator_impl.h"
#include <stdbool.h>

static struct coordinator_server *ordered_server(const struct coordinator_state *c, int i)
{
    struct coordinator_server *s = &coordinator_servers(c)[i];
    return s->ordered >= 0 ? s : NULL;
}

/* Ends the work on the checkpoint. made: the checkpoint is complete. */
static void end_checkpoint(struct coordinator_state *c, int made)
{
    struct checkpoint_schedule *k = &c->ckpt;
    k->phase = SCHEDULE_IDLE;
    k->unmade = !made;
    k->n_swept = -1;
    for (int i = 0; i < c->n_slots; i++)
        coordinator_servers(c)[i].ordered = -1;
    c->number++;
}

/* Answers all accepted requests: their checkpoint was made or given up. */
static void answer_requests(struct coordinator_state *c)
{
    struct checkpoint_schedule *k = &c->ckpt;
    k->given = k->accepted;
    for (int i = 0; i < c->n_slots; i++)
        coordinator_servers(c)[i].given = coordinator_servers(c)[i].accepted;
    k->save_at = c->awake + c->save_ms * MS;
}

static void accept_requests(struct coordinator_state *c)
{
    c->ckpt.accepted = c->ckpt.wanted;
    for (int i = 0; i < c->n_slots; i++)
        coordinator_servers(c)[i].accepted = coordinator_servers(c)[i].wanted;
}

bool checkpoint_schedule_is_asked(const struct coordinator_state *c)
{
    int asked = c->ckpt.wanted > c->ckpt.given;
    for (int i = 0; i < c->n_slots; i++)
        asked |= coordinator_servers(c)[i].wanted > coordinator_servers(c)[i].given;
    return asked;
}

/* Marks a generation whose last step cannot be saved. Workers do not receive the last step of a job
 * before its checkpoint is on the disk. look_at_owner() releases the last step of a marked
 * generation without a checkpoint, after it has checked that no other ps 0 has claimed the
 * folder. */
static void release_last_step(struct coordinator_state *c, uint64_t generation)
{
    struct checkpoint_schedule *k = &c->ckpt;
    if (k->to_release != generation)
        k->release_since = k->look_at = c->awake;
    k->to_release = generation;
}

static void give_up(struct coordinator_state *c, enum coordinator_line_id line, int server,
                    struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    int n_written = 0, ends = c->finishing || k->step >= c->train_steps;
    for (int i = 0; i < c->n_slots; i++)
        n_written += ordered_server(c, i) && ordered_server(c, i)->order == k->order &&
                     ordered_server(c, i)->phase == PART_WRITTEN;
    coordinator_add_line(
        out, &(struct coordinator_line){
                 line, server, ends ? LINE_ENDS : -1, {k->step, n_written, k->n_files}});
    if (k->why == WHY_ASKED || k->why == WHY_TIME)
        answer_requests(c);
    k->not_before = c->awake + RETRY_MS * MS;
    if (k->step >= c->train_steps || k->why == WHY_LAST)
        release_last_step(c, k->generation);
    end_checkpoint(c, 0);
    k->failed = 1;
}

void checkpoint_schedule_cancel(struct coordinator_state *c)
{
    if (c->ckpt.phase == SCHEDULE_ORDERED && !c->ckpt.taken)
        end_checkpoint(c, 0);
}

void checkpoint_schedule_lost(struct coordinator_state *c, int slot, struct coordinator_out *out)
{
    if (c->ckpt.phase == SCHEDULE_ORDERED && coordinator_servers(c)[slot].ordered >= 0)
        give_up(c, LINE_CHECKPOINT_LOST, slot, out);
}

/* Returns the slot of a server of the plan that does not call ps 0 at present, so that no order
 * would reach it; -1: there is no such server. */
static int absent_server(const struct coordinator_state *c)
{
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->number >= 0 && (s->life != LIFE_KNOWN || server_registry_is_silent(c, s, SILENT_MS)))
            return i;
    }
    return -1;
}

static int64_t lower_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Updates the estimate of how many steps training makes while an order travels to all servers. */
static void note_pace(struct coordinator_state *c)
{
    struct checkpoint_schedule *k = &c->ckpt;
    int64_t ns = c->awake - k->pace_at;
    if (c->own_highest < k->pace_step) {
        k->pace_at = c->awake;
        k->pace_step = c->own_highest;
    }
    if (ns < PACE_MS * MS)
        return;
    k->ahead = (c->own_highest - k->pace_step) * AHEAD_MS * MS / ns;
    k->pace_at = c->awake;
    k->pace_step = c->own_highest;
}

/* Returns true if training makes no steps: all servers have stopped, or no version has
 * changed for a while. */
static bool is_still(const struct coordinator_state *c)
{
    if (c->phase == PHASE_STOPPING)
        return reconfigure_all_stopped(c);
    return c->awake - c->moved >= STILL_MS * MS || reconfigure_all_done(c);
}

/* Returns the step of the next checkpoint; -1: no checkpoint is possible. */
static int64_t choose_step(const struct coordinator_state *c, enum checkpoint_schedule_why why)
{
    const struct checkpoint_schedule *k = &c->ckpt;
    int64_t highest = server_registry_highest(c), lowest = server_registry_lowest(c),
            last = c->train_steps;
    if (why != WHY_STEPS && c->own_lowest < 0)
        return -1;
    if (lowest < 0) /* other servers have not called since they received their initial values */
        lowest = c->own_lowest;
    if (why != WHY_STEPS && (!c->lockstep || is_still(c)))
        return lowest;
    if (highest < 0)
        highest = 0;
    int64_t next = highest + 1 + (c->n_numbers > 1) + k->ahead * k->factor + k->factor - 1;
    if (highest >= last || (why == WHY_STEPS && !c->save_by_steps))
        return last;
    if (why == WHY_STEPS && !k->overdue)
        next = (next + c->save_steps - 1) / c->save_steps * c->save_steps;
    return lower_of(next, last);
}

static void order_checkpoint(struct coordinator_state *c, enum checkpoint_schedule_why why,
                             int64_t step)
{
    struct checkpoint_schedule *k = &c->ckpt;
    k->phase = SCHEDULE_ORDERED;
    k->overdue = 0;
    k->why = why;
    k->taken = k->failed = k->diverged = 0;
    k->order++;
    k->generation = c->generation;
    k->step = step;
    k->n_files = c->n_numbers;
    k->ordered = c->awake;
    k->taken_at = k->first_file = 0;
    for (int i = 0; i < c->n_slots; i++)
        coordinator_servers(c)[i].ordered = coordinator_servers(c)[i].number;
    c->number++;
}

/* Returns true, with the reason in *why, if a checkpoint is due. Otherwise requests the call of
 * coordinator_step() in which this is checked again. */
static bool is_due(struct coordinator_state *c, enum checkpoint_schedule_why *why,
                   struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    int64_t best;
    int by_steps = k->hold_last || (c->save_by_steps && k->last_step < c->train_steps);
    if (k->save_at == 0)
        k->save_at = c->awake + c->save_ms * MS;
    *why = c->finishing                               ? WHY_LAST
           : evaluation_wants_checkpoint(c, &best)    ? WHY_BEST
           : checkpoint_schedule_is_asked(c)          ? WHY_ASKED
           : c->save_ms > 0 && c->awake >= k->save_at ? WHY_TIME
                                                      : WHY_STEPS;
    if (*why == WHY_STEPS && c->save_ms > 0)
        coordinator_wake_at(c, out, k->save_at);
    if (*why == WHY_STEPS && !by_steps)
        return false;
    if (c->awake < k->not_before) {
        coordinator_wake_at(c, out, k->not_before);
        return false;
    }
    return true;
}

static void log_absent(struct coordinator_state *c, int slot, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    k->not_before = c->awake + RETRY_MS * MS;
    if (coordinator_servers(c)[slot].life != LIFE_KNOWN &&
        server_registry_highest(c) >= c->train_steps)
        /* the last step cannot be saved: a server never connected */
        release_last_step(c, c->generation);
    if (c->awake < k->line)
        return;
    k->line = c->awake + SILENT_MS * MS;
    coordinator_add_line(out,
                         &(struct coordinator_line){LINE_CHECKPOINT_ABSENT, slot, -1, {0, 0, 0}});
}

static void begin_checkpoint(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    enum checkpoint_schedule_why why;
    int absent;
    if (k->op != 0 || c->eval.op != 0 || !is_due(c, &why, out))
        return;
    if (why == WHY_ASKED || why == WHY_LAST)
        accept_requests(c);
    if ((absent = absent_server(c)) >= 0) {
        if (why == WHY_ASKED)
            answer_requests(c);
        log_absent(c, absent, out);
        return;
    }
    int64_t step;
    if (why == WHY_BEST && evaluation_wants_checkpoint(c, &step)) {
        order_checkpoint(c, why, step);
        return;
    }
    step = choose_step(c, why);
    if (step >= 0 && step == k->last_step && (why != WHY_STEPS || step >= c->train_steps)) {
        answer_requests(c); /* a checkpoint of this step exists already */
        k->not_before = c->awake + RETRY_MS * MS;
        return;
    }
    if (step >= 0) {
        order_checkpoint(c, why, step);
        return;
    }
    if (why == WHY_ASKED)
        coordinator_add_line(
            out, &(struct coordinator_line){LINE_CHECKPOINT_NO_VALUES, -1, -1, {0, 0, 0}});
    answer_requests(c);
    k->not_before = c->awake + RETRY_MS * MS;
}

/* Progress of the servers with the order. */
struct outlook {
    int n_taken,    /* number of servers that hold their chunks */
        n_written,  /* number of servers that have written their file */
        failed,     /* slot of a server that could not write its file; -1: none, here and below */
        past,       /* slot of a server whose chunks were already beyond the step */
        silent,     /* slot of a server that does not call */
        unanswered; /* slot of a server that has not accepted the order yet */
    int diverged;   /* the order failed because a parameter is not finite */
};

static struct outlook look_at_servers(struct coordinator_state *c)
{
    struct outlook o = {.failed = -1, .past = -1, .silent = -1, .unanswered = -1};
    struct checkpoint_schedule *k = &c->ckpt;
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = ordered_server(c, i);
        if (!s)
            continue;
        if (server_registry_is_silent(c, s, SILENT_MS))
            o.silent = i;
        if (s->order != k->order) {
            o.unanswered = i;
            continue;
        }
        o.n_taken += s->phase == PART_WRITING || s->phase == PART_WRITTEN;
        o.n_written += s->phase == PART_WRITTEN;
        if (s->phase == PART_FAILED || s->phase == PART_DIVERGED)
            o.failed = i;
        o.diverged |= s->phase == PART_DIVERGED;
        if (s->phase == PART_PAST)
            o.past = i;
        if (s->phase == PART_WRITTEN)
            coordinator_files(c)[s->ordered] = s->file;
    }
    return o;
}

static void order_manifest(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    k->phase = SCHEDULE_MANIFEST;
    k->op_since = c->awake;
    coordinator_order_disk(c, out, DISK_MANIFEST, &k->op);
}

/* Returns true if the order must be replaced. An order for a step far ahead yields to a requested
 * checkpoint. While training stands at the step of the best evaluation, any order except that of
 * the job's last checkpoint yields to a checkpoint of that step. If a checkpoint is requested, an
 * order whose step training does not reach yields: the next order is for the present step. */
static bool must_yield(const struct coordinator_state *c)
{
    const struct checkpoint_schedule *k = &c->ckpt;
    int64_t best;
    if (k->taken)
        return false;
    if (k->why != WHY_LAST && evaluation_wants_checkpoint(c, &best) && k->step != best)
        return true;
    if (k->why == WHY_STEPS && k->step > server_registry_highest(c) + 2 + k->ahead * 2)
        return checkpoint_schedule_is_asked(c) || (c->save_ms > 0 && c->awake >= k->save_at);
    bool may = k->why == WHY_STEPS ? checkpoint_schedule_is_asked(c) : c->lockstep;
    return may && k->step > c->own_highest && is_still(c) && c->awake - k->ordered >= STILL_MS * MS;
}

static void follow_order(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    struct outlook o = look_at_servers(c);
    if (o.n_taken == k->n_files && !k->taken) {
        k->taken = 1;
        k->taken_at = c->awake;
        k->factor = 1;
        k->past_since = 0;
    }
    if (o.n_written > 0 && !k->first_file)
        k->first_file = c->awake;
    int64_t since = k->first_file ? k->first_file : k->taken ? k->taken_at : INT64_MAX;
    int64_t allowed = k->why == WHY_LAST && !k->taken ? LAST_MS : WRITE_MS;
    if (k->why == WHY_LAST && since == INT64_MAX)
        since = k->ordered;
    if (o.n_written == k->n_files) {
        order_manifest(c, out);
    } else if (o.failed >= 0) {
        k->diverged = o.diverged;
        give_up(c, LINE_CHECKPOINT_FAILED, o.failed, out);
    } else if (o.past >= 0) {
        /* an order for the best evaluation names the present step, so it arrives late only
         * because the disk is busy: a larger distance would not help */
        if (k->why != WHY_BEST)
            k->factor = k->factor < 1024 ? k->factor * 2 : k->factor;
        if (!k->past_since)
            k->past_since = c->awake;
        if (k->step >= c->train_steps && c->awake - k->past_since >= WRITE_MS * MS)
            release_last_step(c, k->generation); /* the disk hangs */
        k->not_before = c->awake + (k->past_since == c->awake ? PACE_MS : RETRY_MS) * MS;
        end_checkpoint(c, 0);
    } else if (o.silent >= 0) {
        give_up(c, LINE_CHECKPOINT_SILENT, o.silent, out);
    } else if (o.unanswered >= 0 && c->awake - k->ordered >= ANSWER_MS * MS) {
        give_up(c, LINE_CHECKPOINT_UNANSWERED, o.unanswered, out);
    } else if (must_yield(c)) {
        end_checkpoint(c, 0);
    } else if (since != INT64_MAX && c->awake - since >= allowed * MS) {
        give_up(c, LINE_CHECKPOINT_SLOW, -1, out);
    } else {
        if (o.unanswered >= 0)
            coordinator_wake_at(c, out, k->ordered + ANSWER_MS * MS);
        if (since != INT64_MAX)
            coordinator_wake_at(c, out, since + allowed * MS);
    }
}

int64_t checkpoint_schedule_counts(const struct coordinator_state *c, uint64_t generation,
                                   int64_t step)
{
    int knew = !c->eval.ended || generation > c->eval.ended_in;
    return knew ? step : lower_of(step, c->train_steps - 1);
}

void checkpoint_schedule_written(struct coordinator_state *c, const struct coordinator_event *e,
                                 struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    int waited = k->phase == SCHEDULE_MANIFEST, looked = k->looks;
    k->op = k->looks = 0;
    c->number++; /* the servers need a new reply: the list of kept checkpoints may have changed */
    if (e->st == ST_REFUSED)
        coordinator_fence(c, 0, out);
    if (looked && e->st == ST_OK)
        k->unsaved = k->to_release;
    if (looked)
        return;
    int64_t step = checkpoint_schedule_counts(c, k->generation, e->disk.step);
    if (e->st == ST_OK && step > k->last_step && e->disk.step >= 0)
        k->last_step = step;
    if (!waited || c->fenced)
        return; /* the order was given up and the disk is free again, or this process ends */
    if (e->st != ST_OK) {
        give_up(c, LINE_CHECKPOINT_MANIFEST, -1, out);
        return;
    }
    answer_requests(c);
    k->save_at = k->ordered + c->save_ms * MS;
    k->overdue =
        c->save_by_steps && server_registry_highest(c) / c->save_steps > k->step / c->save_steps;
    end_checkpoint(c, 1);
}

/* Deletes the files of failed orders, of this process or an earlier one, before the next order, so
 * that they do not fill the disk. Files of the last failed order may still arrive. */
static void sweep_folder(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    int n = 0;
    for (int i = 0; i < c->n_slots; i++)
        n += coordinator_servers(c)[i].order == k->order &&
             coordinator_servers(c)[i].phase == PART_WRITTEN;
    if (!k->unmade || k->op || n <= k->n_swept || !c->recorded || c->fenced)
        return;
    k->n_swept = n;
    k->op_since = c->awake;
    coordinator_order_disk(c, out, DISK_SWEEP, &k->op);
}

static void order_look(struct coordinator_state *c, int64_t again_ms, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    k->looks = 1;
    k->look_at = c->awake + again_ms * MS;
    k->op_since = c->awake;
    coordinator_order_disk(c, out, DISK_OWNER, &k->op);
}

/* Checks the folder's owner while this ps 0 waits for its first worker. This ps 0 writes no
 * checkpoint during this time, and so would not notice that another ps 0 has claimed the folder. */
static void look_while_empty(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    if (k->op || !c->recorded || c->fenced || c->finishing)
        return;
    if (c->awake < k->look_at)
        coordinator_wake_at(c, out, k->look_at);
    else
        order_look(c, RECORD_MS, out);
}

/* Checks the folder's owner before the workers receive a last step that is not saved: another ps
 * 0 may have claimed the folder and resumed an older step, and the job would have two results. */
static void look_at_owner(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    if (k->to_release != c->generation || k->unsaved == k->to_release ||
        k->last_step >= c->train_steps || k->op || c->fenced)
        return;
    if (c->awake - k->release_since >= WRITE_MS * MS) {
        coordinator_fence(c, 1, out);
        return;
    }
    if (c->awake < k->look_at) {
        coordinator_wake_at(c, out, k->look_at);
        return;
    }
    order_look(c, RETRY_MS, out);
}

/* Handles a disk that hangs: answers requests for a checkpoint, and, after the last step, ends this
 * process, which cannot verify that it still owns the folder. */
static void look_at_disk(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    if ((!k->op && !c->eval.op) || k->phase != SCHEDULE_IDLE)
        return;
    coordinator_wake_at(c, out, k->op_since + WRITE_MS * MS);
    if (c->awake - k->op_since < WRITE_MS * MS)
        return;
    if (checkpoint_schedule_is_asked(c)) {
        accept_requests(c);
        answer_requests(c);
        c->number++;
    }
    if (server_registry_highest(c) >= c->train_steps && k->last_step < c->train_steps &&
        k->unsaved != c->generation)
        coordinator_fence(c, 1, out);
    if (c->awake < k->line)
        return;
    k->line = c->awake + WRITE_MS * MS;
    coordinator_add_line(
        out, &(struct coordinator_line){LINE_CHECKPOINT_DISK, -1, -1, {k->last_step, 0, 0}});
}

static void set_hold_last(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    int on = k->last_step < c->train_steps && k->unsaved != c->generation;
    const struct coordinator_action a = {.kind = ACT_HOLD_LAST, .arg = on};
    if (on != k->hold_last && coordinator_add_action(out, &a))
        k->hold_last = on;
}

/* Returns true once this process need not wait any more before it exits. The last checkpoint
 * that this process makes has the step at which all servers have stopped. */
static bool is_finished(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    int done = reconfigure_all_done(c),
        could = c->phase == PHASE_RUNNING ? done : reconfigure_all_stopped(c);
    int64_t lowest = server_registry_lowest(c);
    if (k->phase != SCHEDULE_IDLE)
        return false;
    if (c->eval.op && c->awake < c->finish_at + LAST_MS * MS) { /* `best` is still being written */
        coordinator_wake_at(c, out, c->finish_at + LAST_MS * MS);
        return false;
    }
    if (c->job_failed)
        return !server_registry_has_unaware(c);
    bool is_saved = k->last_step >= c->train_steps; /* a checkpoint has all steps */
    if (!c->generation || (is_saved && (done || c->phase != PHASE_RUNNING)))
        return true;
    if (!c->has_folder)
        return c->phase == PHASE_STOPPING || done || c->awake >= c->finish_at;
    if (could && (lowest < 0 || lowest == k->last_step))
        return true;
    int64_t more = could && absent_server(c) < 0 ? LAST_MS * MS : 0;
    int late = c->awake >= c->finish_at + more;
    if (late && is_saved)
        return true;
    if (late || (could && k->unsaved == c->generation && k->why == WHY_LAST)) {
        coordinator_add_line(
            out, &(struct coordinator_line){
                     LINE_CHECKPOINT_NO_LAST, absent_server(c), -1, {k->last_step, 0, 0}});
        /* after divergence a restart would not help, because its last checkpoint would fail, too */
        k->no_last = !k->diverged;
        return true;
    }
    coordinator_wake_at(c, out, c->finish_at + more);
    return false;
}

/* Makes all later replies report that this ps 0 ends. */
static void close_calls(struct coordinator_state *c)
{
    if (!c->closing)
        c->end_number = ++c->number;
    c->closing = 1;
}

/* Finishes this process. After a failed job it stays until all servers have received the
 * failure, which no other program can report. */
static void finish_process(struct coordinator_state *c, struct coordinator_out *out)
{
    const struct coordinator_action a = {.kind = ACT_FINISHED};
    if (c->job_failed)
        close_calls(c);
    if (c->finished || !is_finished(c, out) || !coordinator_add_action(out, &a))
        return;
    c->finished = 1;
    close_calls(c);
    accept_requests(c);
    answer_requests(c);
}

void checkpoint_schedule_step(struct coordinator_state *c, struct coordinator_out *out)
{
    struct checkpoint_schedule *k = &c->ckpt;
    int ready = c->phase == PHASE_RUNNING && c->workers_generation == c->generation;
    int stands = c->phase == PHASE_STOPPING && reconfigure_all_stopped(c);
    if (c->finishing)
        ready = stands || (ready && reconfigure_all_done(c));
    else /* there may be no step for a long time, until enough workers have joined */
        ready |= stands && checkpoint_schedule_is_asked(c);
    note_pace(c);
    if (c->has_folder && c->phase == PHASE_RUNNING)
        set_hold_last(c, out);
    if (k->phase == SCHEDULE_MANIFEST && c->awake - k->op_since >= WRITE_MS * MS)
        give_up(c, LINE_CHECKPOINT_SLOW, -1, out);
    if (k->phase == SCHEDULE_ORDERED)
        follow_order(c, out);
    if (k->phase == SCHEDULE_IDLE && c->has_folder && c->generation) {
        sweep_folder(c, out);
        look_at_owner(c, out);
        look_at_disk(c, out);
    }
    if (c->has_folder && !c->generation)
        look_while_empty(c, out);
    if (k->phase == SCHEDULE_IDLE && ready && c->has_folder && !c->finished && !c->job_failed)
        begin_checkpoint(c, out);
    else if (!c->has_folder || c->phase == PHASE_EMPTY) {
        if (checkpoint_schedule_is_asked(c)) { /* there is nothing to save */
            accept_requests(c);
            answer_requests(c);
            c->number++;
        }
    }
    if (c->finishing)
        finish_process(c, out);
    else if (k->phase == SCHEDULE_MANIFEST)
        coordinator_wake_at(c, out, k->op_since + WRITE_MS * MS);
}
