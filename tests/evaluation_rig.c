/* tests/evaluation_rig.c - see evaluation_rig.h. */
#include "tests/evaluation_rig.h"
#include <stdio.h>
#include <stdlib.h>

static void disk_ends(struct rig *r, const struct coordinator_action *a)
{
    struct coordinator_manifest_view m = {.step = -1};
    struct coordinator_event e = {
        .kind = COORDINATOR_DISK, .op = a->op, .disk = {.epoch = a->value}};
    if (a->disk == DISK_FIND && r->found == 0)
        e.st = ST_NOT_FOUND;
    if (a->disk == DISK_MANIFEST) {
        r->n_manifests++;
        coordinator_view_manifest(r->c, &r->manifest);
        e.st = r->manifest_st;
    }
    if (a->disk == DISK_BEST && r->best_hangs) {
        r->best_op = a->op;
        return;
    }
    if (a->disk == DISK_BEST) {
        e.st = r->best_st;
        if (e.st == ST_OK)
            evaluation_new_best(r->c, &r->recorded);
    }
    coordinator_view_manifest(r->c, &m);
    e.disk.step = a->disk == DISK_MANIFEST ? m.step : a->disk == DISK_FIND ? r->found : -1;
    eval_step(r, e);
}

static void on_plan(struct rig *r, uint32_t op)
{
    struct coordinator_plan_view plan;
    coordinator_view_next_plan(r->c, &plan);
    r->generation = plan.generation;
    r->train_steps = plan.train_steps;
    r->n_plans++;
    eval_step(r, (struct coordinator_event){.kind = COORDINATOR_PLANNED, .op = op});
}

void eval_step(struct rig *r, struct coordinator_event e)
{
    struct coordinator_out out;
    e.lowest = e.highest = r->version;
    coordinator_step(r->c, &e, r->now, &out);
    for (int i = 0; i < out.n; i++) {
        const struct coordinator_action *a = &out.act[i];
        if (a->kind == ACT_PLAN)
            on_plan(r, a->op);
        else if (a->kind == ACT_DISK)
            disk_ends(r, a);
        else if (a->kind == ACT_FINISHED)
            r->n_finished++;
        else if (a->kind == ACT_FENCED)
            r->n_fenced++;
        else if (a->kind == ACT_LINE)
            r->lines[a->line.id]++;
    }
}

void eval_server_calls(struct rig *r)
{
    struct net_control_reply reply = {.step = -1};
    struct net_control report = {.n_servers = 1, .incarnation = 9 + r->incarnation};
    r->now += MS;
    coordinator_view_fill_reply(r->c, 0, &reply);
    if (reply.order != r->order && reply.step >= 0) {
        r->order = reply.order;
        r->phase = PART_ARMED;
    }
    if (reply.step < 0 && r->phase == PART_ARMED)
        r->phase = PART_IDLE;
    if (r->phase == PART_ARMED && r->file_fails)
        r->phase = PART_FAILED;
    if (r->phase == PART_ARMED && r->disk_busy)
        r->phase = PART_PAST;
    if (r->phase == PART_ARMED && r->version >= reply.step)
        r->phase = r->version == reply.step ? PART_WRITING : PART_PAST;
    else if (r->phase == PART_WRITING && !r->file_hangs)
        r->phase = PART_WRITTEN;
    snprintf(report.address, sizeof report.address, "h:1");
    report.generation = r->generation;
    report.ps0 = report.heard_ps0 = 9;
    report.heard_epoch = 1;
    report.order = r->order;
    report.phase = r->phase;
    report.stop = r->stop_hangs ? 0 : reply.stop;
    report.stopped = 1;
    report.lowest = report.highest = r->version;
    report.seen = reply.number;
    eval_step(r, (struct coordinator_event){
                     .kind = COORDINATOR_CONTROL, .control = &report, .call = ++r->call});
}

void eval_report_workers(struct rig *r)
{
    eval_step(r, (struct coordinator_event){.kind = COORDINATOR_WORKERS,
                                            .workers = {r->generation, 0, 2, r->worker}});
}

void eval_open_ps0(struct rig *r, struct coordinator_start start, int64_t from)
{
    char *addrs[] = {"h:1"};
    const struct hosts servers = {1, addrs};
    start.incarnation = 9;
    start.address = "h:1";
    start.servers = &servers;
    start.worker_timeout_ms = 1000;
    start.epoch = (uint64_t)start.has_folder;
    start.is_claimed = start.has_folder;
    start.last_step = from > 0 ? from : -1;
    *r = (struct rig){.c = calloc(1, coordinator_bytes(2, 4)), .now = 1000 * MS, .version = from};
    coordinator_init(r->c, 2, 4);
    eval_step(r, (struct coordinator_event){.kind = COORDINATOR_START, .start = &start});
    eval_server_calls(r);
}

void eval_open_start(struct rig *r, struct coordinator_start start, int lockstep, int64_t from)
{
    eval_open_ps0(r, start, from);
    eval_step(r, (struct coordinator_event){.kind = COORDINATOR_JOB,
                                            .job = {.train_steps = STEPS,
                                                    .step = from,
                                                    .from_checkpoint = from > 0,
                                                    .lockstep = lockstep,
                                                    .n_members = 2}});
    assert_int_equal(r->n_plans, 1);
    for (int i = 0; i < 2; i++)
        r->worker[i] = (struct coordinator_worker_event){.member = i,
                                                         .incarnation = 11 + (uint64_t)i,
                                                         .missing_ms = -1,
                                                         .joined = 1,
                                                         .spoke = 1};
    eval_server_calls(r);
    eval_report_workers(r);
}

void eval_open_with(struct rig *r, int has_folder, int lockstep, const struct best_evaluation *best,
                    int64_t from)
{
    struct coordinator_start start = {.has_folder = has_folder};
    if (best)
        start.best = *best;
    eval_open_start(r, start, lockstep, from);
}

void eval_open(struct rig *r)
{
    eval_open_with(r, 1, 1, NULL, 0);
}

struct net_evaluation eval_whole(const struct rig *r, double loss)
{
    return (struct net_evaluation){.generation = r->generation,
                                   .ps0 = 9,
                                   .step = r->version,
                                   .n_parts = 1,
                                   .n = SAMPLES,
                                   .right = 50,
                                   .loss = loss * SAMPLES,
                                   .data = {SAMPLES, 1, 2},
                                   .every = EVERY,
                                   .patience = r->is_patient ? STEPS : PATIENCE};
}

enum evaluation_go eval_ask(struct rig *r, const struct net_evaluation *v)
{
    struct net_evaluation_reply reply;
    enum evaluation_go is = evaluation_verdict(r->c, v, &reply);
    if (is == EVALUATION_NEW)
        eval_step(r, (struct coordinator_event){.kind = COORDINATOR_EVALUATED, .evaluation = v});
    return is;
}

void eval_at(struct rig *r, int64_t at, double loss)
{
    r->version = at;
    const struct net_evaluation v = eval_whole(r, loss);
    int n = 0;
    while (eval_ask(r, &v) != EVALUATION_GO) {
        eval_server_calls(r);
        eval_report_workers(r);
        assert_true(n++ < 50);
    }
    for (int i = 0; i < 5; i++)
        eval_server_calls(r);
}

void eval_train_to_the_end(struct rig *r)
{
    r->version = STEPS;
    for (int i = 0; i < 10; i++)
        eval_server_calls(r);
    assert_int_equal(coordinator_view_last_step(r->c), STEPS);
}

void eval_expect_best(const struct rig *r, int64_t at)
{
    struct best_evaluation best;
    evaluation_best(r->c, &best);
    assert_int_equal(best.known, at >= 0);
    if (at >= 0)
        assert_int_equal(best.step, at);
}

void eval_lose_worker(struct rig *r)
{
    struct net_control_reply reply = {.stop = 0};
    r->worker[1].missing_ms = 0;
    r->stop_hangs = 1;
    for (int i = 0; i < 30 && reply.stop == 0; i++) {
        r->now += 1000 * MS;
        r->worker[1].missing_ms += 1000;
        eval_server_calls(r);
        eval_report_workers(r);
        coordinator_view_fill_reply(r->c, 0, &reply);
    }
    assert_true(reply.stop > 0);
}
