/* ps/coordinator/coordinator.c - makes a step of the state machine (coordinator.h), which is not
 * a step of training: handles the event, then does all that has become due. */
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/coordinator_impl.h"
#include <stdbool.h>
#include <string.h>

static size_t align_size(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Computes the offsets of the tables in the block, which begins with the struct itself. */
static void lay_out(struct coordinator_state *c, int max_servers, int max_workers)
{
    size_t s = (size_t)max_servers, w = (size_t)max_workers, bits = s * ((w + 7) / 8);
    c->max_servers = max_servers;
    c->max_workers = max_workers;
    c->servers_at = align_size(sizeof *c);
    c->workers_at = align_size(c->servers_at + s * sizeof(struct coordinator_server));
    c->members_at = align_size(c->workers_at + w * sizeof(struct coordinator_worker));
    c->numbers_at = align_size(c->members_at + w * sizeof(int));
    c->files_at = align_size(c->numbers_at + s * sizeof(int));
    c->parts_at = align_size(c->files_at + s * sizeof(struct coordinator_file));
    c->missing_at = align_size(c->parts_at + w * sizeof(struct evaluation_part));
    c->contact_at = align_size(c->missing_at + bits);
    c->bytes = align_size(c->contact_at + bits);
}

size_t coordinator_bytes(int max_servers, int max_workers)
{
    struct coordinator_state c;
    lay_out(&c, max_servers, max_workers);
    return c.bytes;
}

void coordinator_init(struct coordinator_state *c, int max_servers, int max_workers)
{
    struct coordinator_state layout;
    memset(&layout, 0, sizeof layout);
    lay_out(&layout, max_servers, max_workers);
    memset(c, 0, layout.bytes);
    *c = layout;
    c->lost = -1;
    c->ckpt.step = c->ckpt.last_step = -1;
    c->ckpt.factor = 1;
    c->ckpt.unmade = 1; /* an earlier process may have left files */
    c->ckpt.n_swept = -1;
    c->own_lowest = c->own_highest = -1;
    for (int i = 0; i < max_workers; i++) {
        coordinator_workers(c)[i].since = INT64_MAX;
        coordinator_workers(c)[i].missed_by = -1;
        coordinator_workers(c)[i].left_step = -1;
    }
}

bool coordinator_add_action(struct coordinator_out *out, const struct coordinator_action *a)
{
    if (out->n == COORDINATOR_MAX_ACTIONS)
        return false;
    out->act[out->n++] = *a;
    return true;
}

void coordinator_add_line(struct coordinator_out *out, const struct coordinator_line *line)
{
    const struct coordinator_action a = {.kind = ACT_LINE, .line = *line};
    /* the last 8 entries are kept for actions other than log lines */
    if (out->n < COORDINATOR_MAX_ACTIONS - 8)
        coordinator_add_action(out, &a);
}

void coordinator_order_disk(struct coordinator_state *c, struct coordinator_out *out,
                            enum disk_task on_disk, uint32_t *op)
{
    const struct coordinator_action a = {.kind = ACT_DISK,
                                         .op = ++c->ops,
                                         .disk = on_disk,
                                         .value = on_disk == DISK_FIND ? c->passed : c->epoch};
    *op = c->ops;
    coordinator_add_action(out, &a);
}

void coordinator_wake_at(const struct coordinator_state *c, struct coordinator_out *out,
                         int64_t awake)
{
    int64_t in = awake > c->awake ? awake - c->awake : 0;
    if (c->now + in < out->wake_ns)
        out->wake_ns = c->now + in;
}

bool coordinator_note_claim(struct coordinator_state *c, uint64_t claim)
{
    uint64_t other = term_epoch(claim);
    if (!term_is_possible(claim) || other > c->epoch + MOST_EPOCHS)
        return false;
    if (claim && other >= c->epoch)
        c->epoch = other + 1;
    return true;
}

void coordinator_fence(struct coordinator_state *c, int is_unsure, struct coordinator_out *out)
{
    const struct coordinator_action a = {.kind = ACT_FENCED, .arg = is_unsure};
    if (!c->fenced && coordinator_add_action(out, &a))
        c->fenced = 1;
}

static void note_claim(struct coordinator_state *c, uint64_t claim, struct coordinator_out *out)
{
    if (coordinator_note_claim(c, claim) || claim == c->ignored)
        return;
    c->ignored = claim;
    coordinator_add_line(
        out, &(struct coordinator_line){LINE_WORKER_CLAIM, -1, -1, {(int64_t)claim, 0, 0}});
}

static void on_start(struct coordinator_state *c, const struct coordinator_start *s)
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
    /* `number` and the number of the order begin at random numbers, so they differ from those of
     * other ps 0 processes */
    c->number = c->ckpt.order = s->incarnation >> 1 | 1;
    for (int i = 0; i < s->servers->n; i++) {
        int slot = server_registry_add(c, s->servers->addr[i]);
        if (slot >= 0)
            coordinator_servers(c)[slot].number = c->n_numbers++;
    }
}

static void on_recorded(struct coordinator_state *c, const struct coordinator_event *e,
                        struct coordinator_out *out)
{
    c->epoch_op = 0;
    c->epoch_failed = e->st;
    c->epoch_at = e->st == ST_OK ? 0 : c->awake + RECORD_MS * MS;
    if (e->st == ST_REFUSED)
        coordinator_fence(c, 0, out);
    if (e->st != ST_OK)
        return;
    c->recorded = e->disk.epoch;
    c->n = 0;
    c->number++;
    /* a claim that arrived during the recording may be higher: it is recorded next */
    if (c->epoch < c->recorded)
        c->epoch = c->recorded;
}

static void on_disk(struct coordinator_state *c, const struct coordinator_event *e,
                    struct coordinator_out *out)
{
    if (e->op == 0)
        return;
    if (e->op == c->epoch_op)
        on_recorded(c, e, out);
    else if (e->op == c->ckpt.op)
        checkpoint_schedule_written(c, e, out);
    else if (e->op == c->eval.op)
        evaluation_best_recorded(c, e, out);
    else if (c->pending == PENDING_FIND && e->op == c->op)
        reconfigure_on_found(c, e);
}

/* Records the epoch before any reply contains it. A failed record is retried. */
static void record_epoch(struct coordinator_state *c, struct coordinator_out *out)
{
    if (c->epoch == c->recorded || c->epoch_op)
        return;
    if (!c->has_folder) {
        c->recorded = c->epoch;
        c->n = 0;
        c->number++;
    } else if (c->awake >= c->epoch_at) {
        coordinator_order_disk(c, out, DISK_EPOCH, &c->epoch_op);
    } else {
        coordinator_wake_at(c, out, c->epoch_at);
    }
}

/* Ends the job in a restarted ps 0 if its steps were done before the restart and no worker joins
 * within done_ms. */
static void end_if_done(struct coordinator_state *c, struct coordinator_out *out)
{
    const struct coordinator_action a = {.kind = ACT_DONE};
    if (!c->all_steps_before || c->done_ms <= 0 || c->job_done || c->finishing || c->generation ||
        c->pending != PENDING_NONE)
        return;
    if (c->awake - c->began < c->done_ms * MS) {
        coordinator_wake_at(c, out, c->began + c->done_ms * MS);
    } else if (coordinator_add_action(out, &a)) {
        c->job_done = 1;
        coordinator_add_line(out,
                             &(struct coordinator_line){LINE_JOB_DONE_BEFORE, -1, -1, {0, 0, 0}});
    }
}

static void handle_event(struct coordinator_state *c, const struct coordinator_event *e,
                         struct coordinator_out *out)
{
    switch (e->kind) {
    case COORDINATOR_START:
        on_start(c, e->start);
        break;
    case COORDINATOR_TIMER:
        break;
    case COORDINATOR_CONTROL:
        server_registry_control(c, e, out);
        break;
    case COORDINATOR_CLOSED:
        server_registry_closed(c, e->call);
        break;
    case COORDINATOR_JOB:
        note_claim(c, e->job.claim, out);
        reconfigure_on_job(c, e, out);
        break;
    case COORDINATOR_WORKERS:
        note_claim(c, e->workers.claim, out);
        failure_detector_note_workers(c, e);
        break;
    case COORDINATOR_COMMAND:
        coordinator_command_begin(c, e);
        break;
    case COORDINATOR_DISK:
        on_disk(c, e, out);
        break;
    case COORDINATOR_PLANNED:
        reconfigure_on_planned(c, e, out);
        break;
    case COORDINATOR_EVALUATED:
        evaluation_note(c, e, out);
        break;
    }
}

static void note_time(struct coordinator_state *c, const struct coordinator_event *e,
                      int64_t now_ns)
{
    int64_t passed = c->started ? now_ns - c->now : 0;
    c->now = now_ns;
    c->awake += passed < LOOK_MS * MS ? passed : LOOK_MS * MS;
    if (e->lowest != c->own_lowest || e->highest != c->own_highest)
        c->moved = c->awake;
    c->own_lowest = e->lowest;
    c->own_highest = e->highest;
}

void coordinator_step(struct coordinator_state *c, const struct coordinator_event *e,
                      int64_t now_ns, struct coordinator_out *out)
{
    CHECK(c->started == (e->kind != COORDINATOR_START));
    CHECK(now_ns >= c->now || !c->started);
    out->n = 0;
    out->wake_ns = now_ns + STEP_MS * MS;
    note_time(c, e, now_ns);
    handle_event(c, e, out);
    record_epoch(c, out);
    reconfigure_step(c, out);
    evaluation_follow(c, out);
    checkpoint_schedule_step(c, out);
    evaluation_follow(c, out);
    end_if_done(c, out);
    server_registry_answer(c, out);
    if (out->n == COORDINATOR_MAX_ACTIONS)
        out->wake_ns = now_ns;
}
