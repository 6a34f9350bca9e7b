/* ps/coordinator/coordinator.c - see coordinator.h: events in, then whatever they make due. */
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/coordinator_impl.h"
#include <string.h>

static size_t aligned(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Where everything lies; the state itself comes first. */
static void lay_out(struct coord *c, int max_servers, int max_workers)
{
    size_t s = (size_t)max_servers, w = (size_t)max_workers, bits = s * ((w + 7) / 8);
    c->max_servers = max_servers;
    c->max_workers = max_workers;
    c->servers_at = aligned(sizeof *c);
    c->workers_at = aligned(c->servers_at + s * sizeof(struct coord_server_state));
    c->members_at = aligned(c->workers_at + w * sizeof(struct coord_worker));
    c->numbers_at = aligned(c->members_at + w * sizeof(int));
    c->files_at = aligned(c->numbers_at + s * sizeof(int));
    c->parts_at = aligned(c->files_at + s * sizeof(struct coord_file));
    c->missing_at = aligned(c->parts_at + w * sizeof(struct coord_part));
    c->heard_at = aligned(c->missing_at + bits);
    c->bytes = aligned(c->heard_at + bits);
}

size_t coord_bytes(int max_servers, int max_workers)
{
    struct coord c;
    lay_out(&c, max_servers, max_workers);
    return c.bytes;
}

void coord_init(struct coord *c, int max_servers, int max_workers)
{
    struct coord layout;
    memset(&layout, 0, sizeof layout);
    lay_out(&layout, max_servers, max_workers);
    memset(c, 0, layout.bytes);
    *c = layout;
    c->lost = -1;
    c->ckpt.step = c->ckpt.last_step = -1;
    c->ckpt.factor = 1;
    c->ckpt.unmade = 1; /* an earlier life may have left something */
    c->ckpt.n_swept = -1;
    c->own_lowest = c->own_highest = -1;
    for (int i = 0; i < max_workers; i++) {
        coord_workers(c)[i].since = INT64_MAX;
        coord_workers(c)[i].missed_by = -1;
        coord_workers(c)[i].left_step = -1;
    }
}

int coord_act(struct coord_out *out, const struct coord_action *a)
{
    if (out->n == COORD_MAX_ACTIONS)
        return 0;
    out->act[out->n++] = *a;
    return 1;
}

void coord_say(struct coord_out *out, const struct coord_line *line)
{
    const struct coord_action a = {.kind = ACT_LINE, .line = *line};
    if (out->n < COORD_MAX_ACTIONS - 8) /* what is more than a line has room in any case */
        coord_act(out, &a);
}

void coord_order_disk(struct coord *c, struct coord_out *out, enum coord_disk disk, uint32_t *op)
{
    const struct coord_action a = {.kind = ACT_DISK,
                                   .op = ++c->ops,
                                   .disk = disk,
                                   .value = disk == DISK_FIND ? c->passed : c->epoch};
    *op = c->ops;
    coord_act(out, &a);
}

void coord_due(const struct coord *c, struct coord_out *out, int64_t awake)
{
    int64_t in = awake > c->awake ? awake - c->awake : 0;
    if (c->now + in < out->wake_ns)
        out->wake_ns = c->now + in;
}

int coord_claim(struct coord *c, uint64_t claim)
{
    uint64_t other = term_epoch(claim);
    if (!term_is_possible(claim) || other > c->epoch + MOST_EPOCHS)
        return 0;
    if (claim && other >= c->epoch)
        c->epoch = other + 1;
    return 1;
}

void coord_fence(struct coord *c, int is_unsure, struct coord_out *out)
{
    const struct coord_action a = {.kind = ACT_FENCED, .arg = is_unsure};
    if (!c->fenced && coord_act(out, &a))
        c->fenced = 1;
}

static void note_claim(struct coord *c, uint64_t claim, struct coord_out *out)
{
    if (coord_claim(c, claim) || claim == c->ignored)
        return;
    c->ignored = claim;
    coord_say(out, &(struct coord_line){LINE_WORKER_CLAIM, -1, -1, {(int64_t)claim, 0, 0}});
}

static void start(struct coord *c, const struct coord_start *s)
{
    c->started = 1;
    c->incarnation = s->incarnation;
    c->save_steps = s->save_steps;
    c->save_by_steps = s->save_steps > 0;
    c->save_ms = s->save_ms;
    c->worker_timeout_ms = s->worker_timeout_ms;
    c->min_workers = s->min_workers;
    c->serves = s->serves;
    c->has_folder = s->has_folder;
    c->epoch = s->epoch + !s->is_claimed;
    c->recorded = !s->has_folder || s->is_claimed ? c->epoch : 0;
    c->ckpt.last_step = s->last_step;
    c->all_steps_before = s->has_all_steps;
    c->done_ms = s->done_ms;
    c->eval.best = s->best;
    c->began = c->awake;
    /* none that another ps 0 gave has the number of one of ours */
    c->number = c->ckpt.order = s->incarnation >> 1 | 1;
    for (int i = 0; i < s->servers->n; i++) {
        int slot = coord_server_add(c, s->servers->addr[i]);
        if (slot >= 0)
            coord_servers(c)[slot].number = c->n_numbers++;
    }
}

static void recorded(struct coord *c, const struct coord_event *e, struct coord_out *out)
{
    c->epoch_op = 0;
    c->epoch_failed = e->st;
    c->epoch_at = e->st == ST_OK ? 0 : c->awake + RECORD_MS * MS;
    if (e->st == ST_REFUSED)
        coord_fence(c, 0, out);
    if (e->st != ST_OK)
        return;
    c->recorded = e->disk.epoch;
    c->n = 0;
    c->number++;
    if (c->epoch <
        c->recorded) /* a claim that came meanwhile may be above: that is recorded next */
        c->epoch = c->recorded;
}

static void disk(struct coord *c, const struct coord_event *e, struct coord_out *out)
{
    if (e->op == 0)
        return;
    if (e->op == c->epoch_op)
        recorded(c, e, out);
    else if (e->op == c->ckpt.op)
        coord_checkpoint_written(c, e, out);
    else if (e->op == c->eval.op)
        coord_best_recorded(c, e, out);
    else if (c->pending == PENDING_FIND && e->op == c->op)
        coord_found(c, e);
}

/* Recorded before it is told to anybody. What cannot be recorded is tried again. */
static void record_epoch(struct coord *c, struct coord_out *out)
{
    if (c->epoch == c->recorded || c->epoch_op)
        return;
    if (!c->has_folder) {
        c->recorded = c->epoch;
        c->n = 0;
        c->number++;
    } else if (c->awake >= c->epoch_at) {
        coord_order_disk(c, out, DISK_EPOCH, &c->epoch_op);
    } else {
        coord_due(c, out, c->epoch_at);
    }
}

/* This process was started anew after a job's last step, and no worker comes to it any more. */
static void end_if_done(struct coord *c, struct coord_out *out)
{
    const struct coord_action a = {.kind = ACT_DONE};
    if (!c->all_steps_before || c->done_ms <= 0 || c->job_done || c->finishing || c->generation ||
        c->pending != PENDING_NONE)
        return;
    if (c->awake - c->began < c->done_ms * MS) {
        coord_due(c, out, c->began + c->done_ms * MS);
    } else if (coord_act(out, &a)) {
        c->job_done = 1;
        coord_say(out, &(struct coord_line){LINE_JOB_DONE_BEFORE, -1, -1, {0, 0, 0}});
    }
}

static void handle(struct coord *c, const struct coord_event *e, struct coord_out *out)
{
    switch (e->kind) {
    case COORD_START:
        start(c, e->start);
        break;
    case COORD_TIMER:
        break;
    case COORD_CONTROL:
        coord_control(c, e, out);
        break;
    case COORD_CLOSED:
        coord_closed(c, e->call);
        break;
    case COORD_JOB:
        note_claim(c, e->job.claim, out);
        coord_job(c, e, out);
        break;
    case COORD_WORKERS:
        note_claim(c, e->workers.claim, out);
        coord_workers_note(c, e);
        break;
    case COORD_COMMAND:
        coord_command(c, e);
        break;
    case COORD_DISK:
        disk(c, e, out);
        break;
    case COORD_PLANNED:
        coord_planned(c, e, out);
        break;
    case COORD_EVALUATED:
        coord_evaluated(c, e, out);
        break;
    }
}

static void note_time(struct coord *c, const struct coord_event *e, int64_t now_ns)
{
    int64_t passed = c->started ? now_ns - c->now : 0;
    c->now = now_ns;
    c->awake += passed < LOOK_MS * MS ? passed : LOOK_MS * MS;
    if (e->lowest != c->own_lowest || e->highest != c->own_highest)
        c->moved = c->awake;
    c->own_lowest = e->lowest;
    c->own_highest = e->highest;
}

void coord_step(struct coord *c, const struct coord_event *e, int64_t now_ns, struct coord_out *out)
{
    CHECK(c->started == (e->kind != COORD_START));
    CHECK(now_ns >= c->now || !c->started);
    out->n = 0;
    out->wake_ns = now_ns + STEP_MS * MS;
    note_time(c, e, now_ns);
    handle(c, e, out);
    record_epoch(c, out);
    coord_reconfigure(c, out);
    coord_evaluations_follow(c, out);
    coord_checkpoint(c, out);
    coord_evaluations_follow(c, out);
    end_if_done(c, out);
    coord_answer(c, out);
    if (out->n == COORD_MAX_ACTIONS)
        out->wake_ns = now_ns;
}
