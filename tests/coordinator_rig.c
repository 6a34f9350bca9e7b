/* tests/coordinator_rig.c - see coordinator_rig.h. */
#include "tests/coordinator_rig.h"
#include <stdio.h>
#include <stdlib.h>

/* Carries out a checkpoint order: the server writes its file at once, unless its disk hangs. */
static void carry_out_order(struct rig *r, struct rig_server *s,
                            const struct net_control_reply *reply)
{
    if (reply->order != s->order && reply->step >= 0) {
        s->order = reply->order;
        s->phase = s->phase == PART_WRITING ? PART_PAST : PART_ARMED;
    }
    if (reply->step < 0 && s->phase == PART_ARMED)
        s->phase = PART_IDLE;
    if (s->phase == PART_ARMED && r->version >= reply->step)
        s->phase = PART_WRITING;
    if (s->phase == PART_WRITING && !s->hangs)
        s->phase = PART_WRITTEN;
}

void rig_report_server(struct rig *r, int i)
{
    struct rig_server *s = &r->server[i];
    struct net_control_reply reply = {.step = -1};
    struct net_control report = {.n_servers = 1,
                                 .incarnation = 9 + (uint64_t)(i + SERVERS * s->restarts),
                                 .stopped = !s->runs,
                                 .lowest = r->version,
                                 .highest = r->version};
    snprintf(report.address, sizeof report.address, "h:%d", i + 1);
    if (i < coordinator_view_n_servers(r->c)) { /* a server has a slot after its first call */
        int has_plan = coordinator_view_fill_reply(r->c, i, &reply),
            obeys = reply.epoch >= s->heard_epoch;
        if (has_plan && obeys && reply.generation <= s->damaged) {
            report.unreadable = reply.generation;
        } else if (has_plan && obeys && reply.generation > s->generation) {
            s->generation = reply.generation;
            s->ps0 = reply.incarnation;
        }
        if (obeys && s->has_called) {
            s->heard_ps0 = reply.incarnation;
            s->heard_epoch = reply.epoch;
        }
        carry_out_order(r, s, &reply);
        s->failed = reply.drained && reply.closing && reply.failed;
        s->ended = reply.drained && reply.closing && !reply.failed;
        s->has_called = 1;
    }
    report.generation = s->generation;
    report.ps0 = s->ps0;
    report.heard_ps0 = s->heard_ps0;
    report.heard_epoch = s->heard_epoch;
    report.order = s->order;
    report.phase = s->phase;
    report.stop = reply.stop;
    report.seen = reply.number;
    rig_step(r, (struct coordinator_event){
                    .kind = COORDINATOR_CONTROL, .control = &report, .call = ++r->call});
}

static void on_plan(struct rig *r, uint32_t op)
{
    struct coordinator_plan_view plan;
    if (r->no_memory > 0) {
        r->no_memory--;
        rig_step(r,
                 (struct coordinator_event){.kind = COORDINATOR_PLANNED, .op = op, .st = ST_NOMEM});
        return;
    }
    coordinator_view_next_plan(r->c, &plan);
    r->generation = plan.generation;
    r->train_steps = plan.train_steps;
    r->n_plans++;
    r->holds_last = r->has_folder;
    rig_step(r, (struct coordinator_event){.kind = COORDINATOR_PLANNED, .op = op, .st = ST_OK});
    rig_report_server(r, 0);
}

void rig_disk_ends(struct rig *r, uint32_t op, enum status st, int64_t its_step, uint64_t epoch)
{
    rig_step(r, (struct coordinator_event){.kind = COORDINATOR_DISK,
                                           .op = op,
                                           .st = st,
                                           .disk = {.step = its_step, .epoch = epoch}});
}

static void on_disk(struct rig *r, const struct coordinator_action *a)
{
    struct coordinator_manifest_view m = {.step = -1};
    if (a->disk == DISK_MANIFEST) {
        coordinator_view_manifest(r->c, &m);
        r->n_manifests++;
        if (r->disk_hangs) {
            r->manifest = a->op;
            return;
        }
    }
    if (a->disk == DISK_EPOCH && r->epoch_hangs) {
        r->epoch_op = a->op;
        r->epoch = a->value;
        return;
    }
    if (a->disk == DISK_FIND) {
        r->passed_over = a->value;
        m.step = r->found;
    }
    enum status st = a->disk == DISK_MANIFEST           ? r->manifest_st
                     : a->disk == DISK_OWNER            ? r->owner_st
                     : a->disk != DISK_FIND             ? ST_OK
                     : r->find_st == ST_OK && !r->found ? ST_NOT_FOUND
                                                        : r->find_st;
    rig_disk_ends(r, a->op, st, m.step, a->value);
}

void rig_step(struct rig *r, struct coordinator_event e)
{
    struct coordinator_out out;
    e.lowest = e.highest = r->version;
    coordinator_step(r->c, &e, r->now, &out);
    for (int i = 0; i < out.n; i++) {
        const struct coordinator_action *a = &out.act[i];
        if (a->kind == ACT_PLAN)
            on_plan(r, a->op);
        else if (a->kind == ACT_DISK)
            on_disk(r, a);
        else if (a->kind == ACT_HOLD_LAST)
            r->holds_last = a->arg;
        else if (a->kind == ACT_FENCED)
            r->fenced++, r->unsure += a->arg;
        else if (a->kind == ACT_FAILED)
            r->n_failed++;
        else if (a->kind == ACT_FINISHED)
            r->n_finished++;
        else if (a->kind == ACT_DONE)
            r->n_done++;
        if (a->kind == ACT_LINE && a->line.id == LINE_CHECKPOINT_NO_LAST)
            coordinator_line_text(r->c, &a->line, NULL, r->no_last, sizeof r->no_last);
        if (a->kind == ACT_LINE && a->line.id >= LINE_CHECKPOINT_SILENT &&
            a->line.id <= LINE_CHECKPOINT_MANIFEST)
            coordinator_line_text(r->c, &a->line, NULL, r->given_up, sizeof r->given_up);
        if (a->kind == ACT_LINE && !r->lines[a->line.id]++)
            r->line_ns[a->line.id] = r->now;
    }
}

void rig_report_workers(struct rig *r)
{
    rig_step(r, (struct coordinator_event){.kind = COORDINATOR_WORKERS,
                                           .workers = {r->generation, r->claim, 2, r->worker}});
}

static void start(struct rig *r, int has_folder, int epoch_hangs, int64_t save_steps,
                  int64_t save_ms)
{
    char *addrs[] = {"h:1"};
    const struct hosts servers = {1, addrs};
    const struct coordinator_start start = {.incarnation = 9,
                                            .address = "h:1",
                                            .servers = &servers,
                                            .worker_timeout_ms = TIMEOUT_MS,
                                            .save_steps = save_steps,
                                            .save_ms = save_ms,
                                            .has_folder = has_folder,
                                            .epoch = (uint64_t)has_folder,
                                            .is_claimed = has_folder,
                                            .last_step = -1};
    *r = (struct rig){.has_folder = has_folder,
                      .epoch_hangs = epoch_hangs,
                      .c = calloc(1, coordinator_bytes(SERVERS, 4)),
                      .now = 1000 * MS,
                      .version = 3,
                      .n_servers = 1};
    coordinator_init(r->c, SERVERS, 4);
    rig_step(r, (struct coordinator_event){.kind = COORDINATOR_START, .start = &start});
}

void rig_start(struct rig *r, int has_folder, int epoch_hangs)
{
    start(r, has_folder, epoch_hangs, 0, 0);
}

static void open_job(struct rig *r, int lockstep)
{
    rig_report_server(r, 0);
    rig_step(r, (struct coordinator_event){
                    .kind = COORDINATOR_JOB,
                    .job = {.train_steps = STEPS, .lockstep = lockstep, .n_members = 2}});
    assert_int_equal(r->n_plans, 1);
    for (int i = 0; i < 2; i++)
        r->worker[i] = (struct coordinator_worker_event){
            .member = i, .incarnation = 11 + (uint64_t)i, .missing_ms = -1, .joined = 1};
}

void rig_open(struct rig *r, int has_folder)
{
    rig_start(r, has_folder, 0);
    open_job(r, 1);
}

void rig_open_saving(struct rig *r, int64_t save_steps, int64_t save_ms)
{
    start(r, 1, 0, save_steps, save_ms);
    open_job(r, 1);
}

void rig_open_saving_async(struct rig *r, int64_t save_steps)
{
    start(r, 1, 0, save_steps, 0);
    open_job(r, 0);
}

void rig_look(struct rig *r)
{
    r->now += LOOK_EVERY_MS * MS;
    if (r->worker[1].missing_ms >= 0)
        r->worker[1].missing_ms += LOOK_EVERY_MS;
    rig_report_workers(r);
    for (int i = 0; i < r->n_servers; i++)
        rig_report_server(r, i);
}

void rig_let_pass(struct rig *r, int64_t ms)
{
    for (int64_t end = r->now + ms * MS; r->now < end;)
        rig_look(r);
}

void rig_changes(struct rig *r, int64_t most_ms)
{
    int n = r->n_plans;
    int64_t begin = r->now;
    while ((r->n_plans == n || !coordinator_view_is_settled(r->c)) && r->now < begin + MOST_MS * MS)
        rig_look(r);
    assert_int_equal(r->n_plans, n + 1);
    assert_true(r->now - begin <= most_ms * MS);
}

void rig_server_joins(struct rig *r)
{
    r->n_servers++;
    rig_changes(r, 3 * LOOK_EVERY_MS);
}

void rig_command(struct rig *r, enum coordinator_command_kind what)
{
    rig_step(r, (struct coordinator_event){.kind = COORDINATOR_COMMAND, .command = {.what = what}});
}

void rig_ask(struct rig *r)
{
    rig_let_pass(r, 3000);
    rig_command(r, COORDINATOR_CHECKPOINT);
}

void rig_finish(struct rig *r, int64_t ms)
{
    rig_command(r, COORDINATOR_FINISH);
    rig_let_pass(r, ms);
    assert_int_equal(r->n_finished, 1);
}
