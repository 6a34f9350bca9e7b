/* ps/coordinator/checkpoint_schedule.c - see coordinator.h: one checkpoint after the other, beside
 * changes and never in their way.
 *
 * An order names a step that the chunks are about to come to, or are at. Servers say that they wait
 * for it, have taken their chunks, have written their file; then the manifest is written. A Stop
 * before all have taken their chunks cancels it; afterwards it depends on no generation any more.
 * One that was due meanwhile, by steps or by time, follows as soon as that has ended.
 * Nothing here waits for a disk: a file or a manifest that does not come is given up, with a line.
 * Nobody is told of a job's last version before its checkpoint is on the disk, or could not be
 * made: members that have left could not do again what a server that dies takes with it. */
#include "ps/coordinator/coordinator_impl.h"

static struct coord_server_state *ordered(const struct coord *c, int i)
{
    struct coord_server_state *s = &coord_servers(c)[i];
    return s->ordered >= 0 ? s : NULL;
}

/* It is done with, made or not. */
static void end(struct coord *c, int made)
{
    struct coord_checkpoint *k = &c->ckpt;
    k->phase = CKPT_IDLE;
    k->unmade = !made;
    k->n_swept = -1;
    for (int i = 0; i < c->n_slots; i++)
        coord_servers(c)[i].ordered = -1;
    c->number++;
}

/* Whoever asked for it is told that it was made, or given up. */
static void give(struct coord *c)
{
    struct coord_checkpoint *k = &c->ckpt;
    k->given = k->accepted;
    for (int i = 0; i < c->n_slots; i++)
        coord_servers(c)[i].given = coord_servers(c)[i].accepted;
    k->save_at = c->awake + c->save_ms * MS;
}

static void accept(struct coord *c)
{
    c->ckpt.accepted = c->ckpt.wanted;
    for (int i = 0; i < c->n_slots; i++)
        coord_servers(c)[i].accepted = coord_servers(c)[i].wanted;
}

int coord_checkpoint_is_asked(const struct coord *c)
{
    int asked = c->ckpt.wanted > c->ckpt.given;
    for (int i = 0; i < c->n_slots; i++)
        asked |= coord_servers(c)[i].wanted > coord_servers(c)[i].given;
    return asked;
}

/* Marks a generation whose last step cannot be saved. look_at_owner() releases that step to the
 * workers, once it knows that no other ps 0 has claimed the folder. */
static void release(struct coord *c, uint64_t generation)
{
    struct coord_checkpoint *k = &c->ckpt;
    if (k->to_release != generation)
        k->release_since = k->look_at = c->awake;
    k->to_release = generation;
}

static void give_up(struct coord *c, enum coord_line_id line, int server, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    int n_written = 0;
    for (int i = 0; i < c->n_slots; i++)
        n_written += ordered(c, i) && ordered(c, i)->order == k->order &&
                     ordered(c, i)->phase == CONTROL_WRITTEN;
    coord_say(out, &(struct coord_line){line, server, -1, {k->step, n_written, k->n_files}});
    if (k->why == WHY_ASKED || k->why == WHY_TIME)
        give(c);
    k->not_before = c->awake + RETRY_MS * MS;
    if (k->step >= c->train_steps || k->why == WHY_LAST)
        release(c, k->generation);
    end(c, 0);
    k->failed = 1;
}

void coord_checkpoint_cancel(struct coord *c)
{
    if (c->ckpt.phase == CKPT_ORDERED && !c->ckpt.taken)
        end(c, 0);
}

void coord_checkpoint_lost(struct coord *c, int slot, struct coord_out *out)
{
    if (c->ckpt.phase == CKPT_ORDERED && coord_servers(c)[slot].ordered >= 0)
        give_up(c, LINE_CHECKPOINT_FAILED, slot, out);
}

/* -1, or a server of the plan that does not call: no order would come to it. */
static int absent_server(const struct coord *c)
{
    for (int i = 0; i < c->n_slots; i++) {
        const struct coord_server_state *s = &coord_servers(c)[i];
        if (s->number >= 0 && (s->life != LIFE_KNOWN || coord_server_is_silent(c, s, SILENT_MS)))
            return i;
    }
    return -1;
}

static int64_t lower(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Steps that training makes while an order goes round, from those that it has made lately. */
static void note_pace(struct coord *c)
{
    struct coord_checkpoint *k = &c->ckpt;
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

/* Where all chunks are, or can be had of: all have stopped, or training stands. */
static int is_still(const struct coord *c)
{
    if (c->phase == PHASE_STOPPING)
        return coord_all_stopped(c);
    return c->awake - c->moved >= STILL_MS * MS || coord_all_done(c);
}

/* The step of the next checkpoint; -1: none can be. */
static int64_t choose_step(const struct coord *c, enum checkpoint_why why)
{
    const struct coord_checkpoint *k = &c->ckpt;
    int64_t highest = coord_highest(c), lowest = coord_lowest(c), last = c->train_steps;
    if (why != WHY_STEPS && c->own_lowest < 0)
        return -1;
    if (lowest < 0) /* others have not called since they have their first values */
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
    return lower(next, last);
}

static void order(struct coord *c, enum checkpoint_why why, int64_t step)
{
    struct coord_checkpoint *k = &c->ckpt;
    k->phase = CKPT_ORDERED;
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
        coord_servers(c)[i].ordered = coord_servers(c)[i].number;
    c->number++;
}

/* Why one is due; the rest says when to look again. 0: none is. */
static int is_due(struct coord *c, enum checkpoint_why *why, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    int64_t best;
    int by_steps = k->hold_last || (c->save_by_steps && k->last_step < c->train_steps);
    if (k->save_at == 0)
        k->save_at = c->awake + c->save_ms * MS;
    *why = c->finishing                               ? WHY_LAST
           : coord_evaluation_wants(c, &best)         ? WHY_BEST
           : coord_checkpoint_is_asked(c)             ? WHY_ASKED
           : c->save_ms > 0 && c->awake >= k->save_at ? WHY_TIME
                                                      : WHY_STEPS;
    if (*why == WHY_STEPS && c->save_ms > 0)
        coord_due(c, out, k->save_at);
    if (*why == WHY_STEPS && !by_steps)
        return 0;
    if (c->awake < k->not_before) {
        coord_due(c, out, k->not_before);
        return 0;
    }
    return 1;
}

static void tell_absent(struct coord *c, int slot, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    k->not_before = c->awake + RETRY_MS * MS;
    if (coord_servers(c)[slot].life != LIFE_KNOWN && coord_highest(c) >= c->train_steps)
        release(c, c->generation); /* the server never connected */
    if (c->awake < k->line)
        return;
    k->line = c->awake + SILENT_MS * MS;
    coord_say(out, &(struct coord_line){LINE_CHECKPOINT_ABSENT, slot, -1, {0, 0, 0}});
}

static void begin(struct coord *c, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    enum checkpoint_why why;
    int absent;
    if (k->op != 0 || c->eval.op != 0 || !is_due(c, &why, out))
        return;
    if (why == WHY_ASKED || why == WHY_LAST)
        accept(c);
    if ((absent = absent_server(c)) >= 0) {
        if (why == WHY_ASKED)
            give(c);
        tell_absent(c, absent, out);
        return;
    }
    int64_t step;
    if (why == WHY_BEST && coord_evaluation_wants(c, &step)) {
        order(c, why, step);
        return;
    }
    step = choose_step(c, why);
    if (step >= 0 && step == k->last_step && (why != WHY_STEPS || step >= c->train_steps)) {
        give(c); /* there is one */
        k->not_before = c->awake + RETRY_MS * MS;
        return;
    }
    if (step >= 0) {
        order(c, why, step);
        return;
    }
    if (why == WHY_ASKED)
        coord_say(out, &(struct coord_line){LINE_CHECKPOINT_NO_VALUES, -1, -1, {0, 0, 0}});
    give(c);
    k->not_before = c->awake + RETRY_MS * MS;
}

/* What the servers of the order have come to. */
struct outlook {
    int n_taken, n_written, failed, past, silent, unanswered; /* slots; -1: none */
    int diverged;                                             /* why it failed */
};

static struct outlook look(struct coord *c)
{
    struct outlook o = {.failed = -1, .past = -1, .silent = -1, .unanswered = -1};
    struct coord_checkpoint *k = &c->ckpt;
    for (int i = 0; i < c->n_slots; i++) {
        const struct coord_server_state *s = ordered(c, i);
        if (!s)
            continue;
        if (coord_server_is_silent(c, s, SILENT_MS))
            o.silent = i;
        if (s->order != k->order) {
            o.unanswered = i;
            continue;
        }
        o.n_taken += s->phase == CONTROL_WRITING || s->phase == CONTROL_WRITTEN;
        o.n_written += s->phase == CONTROL_WRITTEN;
        if (s->phase == CONTROL_FAILED || s->phase == CONTROL_DIVERGED)
            o.failed = i;
        o.diverged |= s->phase == CONTROL_DIVERGED;
        if (s->phase == CONTROL_PAST)
            o.past = i;
        if (s->phase == CONTROL_WRITTEN)
            coord_files(c)[s->ordered] = s->file;
    }
    return o;
}

static void order_manifest(struct coord *c, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    k->phase = CKPT_MANIFEST;
    k->op_since = c->awake;
    coord_order_disk(c, out, DISK_MANIFEST, &k->op);
}

/* An order whose step is far away gives way to one that is wanted now, and any other to that of the
 * best evaluation, where training stands; and one that was asked for while training stands is not
 * of a step ahead, but of where it is. */
static int gives_way(const struct coord *c)
{
    const struct coord_checkpoint *k = &c->ckpt;
    int64_t best;
    if (k->taken)
        return 0;
    if (k->why != WHY_LAST && coord_evaluation_wants(c, &best) && k->step != best)
        return 1;
    if (k->why == WHY_STEPS && k->step > coord_highest(c) + 2 + k->ahead * 2)
        return coord_checkpoint_is_asked(c) || (c->save_ms > 0 && c->awake >= k->save_at);
    return k->why != WHY_STEPS && c->lockstep && k->step > c->own_highest && is_still(c) &&
           c->awake - k->ordered >= STILL_MS * MS;
}

static void follow(struct coord *c, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    struct outlook o = look(c);
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
        if (k->why != WHY_BEST) /* that was not ahead: training stands, and the disk is busy */
            k->factor = k->factor < 1024 ? k->factor * 2 : k->factor;
        if (!k->past_since)
            k->past_since = c->awake;
        if (k->step >= c->train_steps && c->awake - k->past_since >= WRITE_MS * MS)
            release(c, k->generation); /* the disk hangs */
        k->not_before = c->awake + (k->past_since == c->awake ? PACE_MS : RETRY_MS) * MS;
        end(c, 0);
    } else if (o.silent >= 0) {
        give_up(c, LINE_CHECKPOINT_SILENT, o.silent, out);
    } else if (o.unanswered >= 0 && c->awake - k->ordered >= ANSWER_MS * MS) {
        give_up(c, LINE_CHECKPOINT_UNANSWERED, o.unanswered, out);
    } else if (gives_way(c)) {
        end(c, 0);
    } else if (since != INT64_MAX && c->awake - since >= allowed * MS) {
        give_up(c, LINE_CHECKPOINT_SLOW, -1, out);
    } else {
        if (o.unanswered >= 0)
            coord_due(c, out, k->ordered + ANSWER_MS * MS);
        if (since != INT64_MAX)
            coord_due(c, out, since + allowed * MS);
    }
}

int64_t coord_checkpoint_counts(const struct coord *c, uint64_t generation, int64_t step)
{
    int knew = !c->eval.ended || generation > c->eval.ended_in;
    return knew ? step : lower(step, c->train_steps - 1);
}

void coord_checkpoint_written(struct coord *c, const struct coord_event *e, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    int waited = k->phase == CKPT_MANIFEST, looked = k->looks;
    k->op = k->looks = 0;
    c->number++; /* other checkpoints than before may be kept */
    if (e->st == ST_REFUSED)
        coord_fence(c, 0, out);
    if (looked && e->st == ST_OK)
        k->unsaved = k->to_release;
    if (looked)
        return;
    int64_t step = coord_checkpoint_counts(c, k->generation, e->disk.step);
    if (e->st == ST_OK && step > k->last_step && e->disk.step >= 0)
        k->last_step = step;
    if (!waited || c->fenced)
        return; /* it was given up, the disk is free again; or this process ends */
    if (e->st != ST_OK) {
        give_up(c, LINE_CHECKPOINT_MANIFEST, -1, out);
        return;
    }
    give(c);
    k->save_at = k->ordered + c->save_ms * MS;
    k->overdue = c->save_by_steps && coord_highest(c) / c->save_steps > k->step / c->save_steps;
    end(c, 1);
}

/* What orders that came to nothing, of this life or an earlier one, have left in the folder goes
 * before the next: a full disk must not be filled by them. Files of the last may come late. */
static void sweep(struct coord *c, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    int n = 0;
    for (int i = 0; i < c->n_slots; i++)
        n += coord_servers(c)[i].order == k->order && coord_servers(c)[i].phase == CONTROL_WRITTEN;
    if (!k->unmade || k->op || n <= k->n_swept || !c->recorded || c->fenced)
        return;
    k->n_swept = n;
    k->op_since = c->awake;
    coord_order_disk(c, out, DISK_SWEEP, &k->op);
}

/* Checks the folder's owner before the workers receive a last step that is not saved: another ps 0
 * may have claimed the folder and resumed an older step, and the job would have two results. */
static void look_at_owner(struct coord *c, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    if (k->to_release != c->generation || k->unsaved == k->to_release ||
        k->last_step >= c->train_steps || k->op || c->fenced)
        return;
    if (c->awake - k->release_since >= WRITE_MS * MS) {
        coord_fence(c, 1, out);
        return;
    }
    if (c->awake < k->look_at) {
        coord_due(c, out, k->look_at);
        return;
    }
    k->looks = 1;
    k->look_at = c->awake + RETRY_MS * MS;
    k->op_since = c->awake;
    coord_order_disk(c, out, DISK_OWNER, &k->op);
}

/* Handles a disk that hangs: answers requests for a checkpoint, and, after the last step, ends this
 * process, which cannot verify that it still owns the folder. */
static void look_at_disk(struct coord *c, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    if ((!k->op && !c->eval.op) || k->phase != CKPT_IDLE)
        return;
    coord_due(c, out, k->op_since + WRITE_MS * MS);
    if (c->awake - k->op_since < WRITE_MS * MS)
        return;
    if (coord_checkpoint_is_asked(c)) {
        accept(c);
        give(c);
        c->number++;
    }
    if (coord_highest(c) >= c->train_steps && k->last_step < c->train_steps &&
        k->unsaved != c->generation)
        coord_fence(c, 1, out);
    if (c->awake < k->line)
        return;
    k->line = c->awake + WRITE_MS * MS;
    coord_say(out, &(struct coord_line){LINE_CHECKPOINT_DISK, -1, -1, {k->last_step, 0, 0}});
}

static void set_hold_last(struct coord *c, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    int on = k->last_step < c->train_steps && k->unsaved != c->generation;
    const struct coord_action a = {.kind = ACT_HOLD_LAST, .arg = on};
    if (on != k->hold_last && coord_act(out, &a))
        k->hold_last = on;
}

/* The last, when this process ends: of where all have stopped. 1: there is nothing more to wait
 * for. */
static int is_finished(struct coord *c, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    int done = coord_all_done(c), could = c->phase == PHASE_RUNNING ? done : coord_all_stopped(c);
    int64_t lowest = coord_lowest(c);
    if (k->phase != CKPT_IDLE)
        return 0;
    if (c->eval.op && c->awake < c->finish_at + LAST_MS * MS) { /* `best` is written meanwhile */
        coord_due(c, out, c->finish_at + LAST_MS * MS);
        return 0;
    }
    if (c->job_failed)
        return !coord_servers_unaware(c);
    if (!c->generation || (done && k->last_step >= c->train_steps))
        return 1;
    if (!c->has_folder)
        return c->phase == PHASE_STOPPING || done || c->awake >= c->finish_at;
    if (could && (lowest < 0 || lowest == k->last_step))
        return 1;
    int64_t more = could && absent_server(c) < 0 ? LAST_MS * MS : 0;
    int late = c->awake >= c->finish_at + more;
    if (late || (could && k->unsaved == c->generation && k->why == WHY_LAST)) {
        coord_say(out, &(struct coord_line){
                           LINE_CHECKPOINT_NO_LAST, absent_server(c), -1, {k->last_step, 0, 0}});
        k->no_last = !k->diverged; /* no other start would make that one */
        return 1;
    }
    coord_due(c, out, c->finish_at + more);
    return 0;
}

/* From here on replies say that this ps 0 ends. */
static void close_calls(struct coord *c)
{
    if (!c->closing)
        c->goodbye = ++c->number;
    c->closing = 1;
}

/* Nobody but ps 0 knows that a job has failed: it stays until the others do. */
static void finish(struct coord *c, struct coord_out *out)
{
    const struct coord_action a = {.kind = ACT_FINISHED};
    if (c->job_failed)
        close_calls(c);
    if (c->finished || !is_finished(c, out) || !coord_act(out, &a))
        return;
    c->finished = 1;
    close_calls(c);
    accept(c);
    give(c);
}

void coord_checkpoint(struct coord *c, struct coord_out *out)
{
    struct coord_checkpoint *k = &c->ckpt;
    int ready = c->phase == PHASE_RUNNING && c->workers_generation == c->generation;
    int stands = c->phase == PHASE_STOPPING && coord_all_stopped(c);
    if (c->finishing)
        ready = stands || (ready && coord_all_done(c));
    else /* it may stand for long, until there are workers enough */
        ready |= stands && coord_checkpoint_is_asked(c);
    note_pace(c);
    if (c->has_folder && c->phase == PHASE_RUNNING)
        set_hold_last(c, out);
    if (k->phase == CKPT_MANIFEST && c->awake - k->op_since >= WRITE_MS * MS)
        give_up(c, LINE_CHECKPOINT_SLOW, -1, out);
    if (k->phase == CKPT_ORDERED)
        follow(c, out);
    if (k->phase == CKPT_IDLE && c->has_folder && c->generation) {
        sweep(c, out);
        look_at_owner(c, out);
        look_at_disk(c, out);
    }
    if (k->phase == CKPT_IDLE && ready && c->has_folder && !c->finished && !c->job_failed)
        begin(c, out);
    else if (!c->has_folder || c->phase == PHASE_EMPTY) {
        if (coord_checkpoint_is_asked(c)) { /* there is nothing to save */
            accept(c);
            give(c);
            c->number++;
        }
    }
    if (c->finishing)
        finish(c, out);
    else if (k->phase == CKPT_MANIFEST)
        coord_due(c, out, k->op_since + WRITE_MS * MS);
}
