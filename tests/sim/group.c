/* tests/sim/group.c - the driver of a region (region.h). It acts as the region's workers, which
 * push gradients and wait for versions by direct calls of the region's service. It also acts as the
 * region's coordinator, in all that the region can notice: generations that end at any moment,
 * checkpoints, a start from a checkpoint. */
#include "base/digest.h"
#include "base/term.h"
#include "ps/service/planner.h"
#include "ps/service/run.h"
#include "ps/store/handover.h"
#include "tests/sim/oracle.h"
#include "tests/sim/second.h"
#include <stdlib.h>
#include <string.h>

enum { AGAIN_MS = 50, MAX_CHURN = 60 };

/* simulated checkpoints of each region, which remain when its processes end */
static const struct region_checkpoint *on_disk[SIM_NODES];
static struct sim_random disk[SIM_NODES];

void group_reset(void)
{
    memset(on_disk, 0, sizeof on_disk);
    for (int i = 0; i < SIM_NODES; i++)
        disk[i] = sim_random_of(sim.schedule->seed, STREAM_DISK, (uint64_t)i);
}

static struct sim_random *chance_of(const struct region *r)
{
    return &sim.node[r->node].random;
}

static bool has_second(const struct region *r)
{
    return opt(OPT_region_servers) > 1;
}

static void worker_timer(struct region *r, struct group_worker *g, int64_t ns)
{
    sim_timer(r->node, ns, TIMER_GROUP_WORKER + g->index, ++g->timer);
}

/* Reports the end of a worker's streams to the servers, as the network does. */
static void close_stream(struct region *r, struct group_worker *g)
{
    struct net_stream *s = g->stream;
    g->stream = NULL;
    second_close(r, g);
    if (!s)
        return;
    s->open[UP] = false;
    r->handler.stream_closed(r->handler.ctx, s);
}

void group_lost_stream(struct region *r, struct group_worker *g)
{
    g->is_over = true;
    if (g->phase != GROUP_COMPUTE)
        worker_timer(r, g, SIM_MS);
}

void group_end(struct region *r)
{
    for (int i = 0; i < GROUP_WORKERS; i++)
        close_stream(r, &r->worker[i]);
}

/* Lets the worker join again after a pause; dies: as a new process. */
static void worker_again(struct region *r, struct group_worker *g, int64_t ms, bool dies)
{
    g->phase = GROUP_OUT;
    if (dies)
        g->incarnation = sim_draw(chance_of(r)) | 1;
    close_stream(r, g);
    worker_timer(r, g, ms * SIM_MS);
}

static void ask_chunk(struct region *r, struct group_worker *g, int chunk, enum piece_kind kind,
                      int64_t step, const float *data)
{
    size_t bytes = (size_t)opt(OPT_elems) * sizeof(float);
    struct net_span span = {(const uint8_t *)data, bytes};
    struct net_piece p = {.kind = kind,
                          .chunk = (uint32_t)chunk,
                          .step = (uint64_t)step,
                          .weight = (float)r->job.batch,
                          .dtype = DTYPE_F32};
    struct net_stream *s = g->stream;
    if (data) {
        p.payload = (struct net_payload){&span, 0, bytes};
        p.crc32c = digest_crc32c(0, data, bytes);
    }
    g->waits[chunk] = true;
    if (r->plan->shard[chunk] > 0)
        second_ask(r, g, &p, data);
    else if (s)
        r->handler.piece(r->handler.ctx, s, &g->head, &p);
}

/* Requests all chunks from their servers, or sends first values where init[server] is set. */
static void fetch_chunks(struct region *r, struct group_worker *g, const bool init[2])
{
    g->phase = GROUP_FETCH;
    g->is_over = false;
    memset(g->waits, 0, sizeof g->waits);
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        g->version[i] = -1;
    for (int i = 0; i < sim_chunks->n_chunks; i++) {
        float value[SIM_ELEMS];
        sim_first_value(i, value);
        bool brings = init[r->plan->shard[i]];
        ask_chunk(r, g, i, brings ? PIECE_INIT : PIECE_PULL, 0, brings ? value : NULL);
    }
}

static void join_group(struct region *r, struct group_worker *g)
{
    struct net_join_reply reply = {.answer = JOIN_RETRY};
    const struct net_join j = {.member = g->index,
                               .incarnation = g->incarnation,
                               .address = "g:1",
                               .job = r->job,
                               .chunks = sim_chunks};
    r->handler.join(r->handler.ctx, &j, "a worker", &reply);
    free(reply.server);
    hosts_free(&reply.servers);
    if (reply.answer == JOIN_REFUSED)
        sim_fail("end", "%s refuses its worker %d: %s", sim.node[r->node].name, g->index,
                 reply.why);
    bool is_in = reply.answer != JOIN_RETRY;
    bool init[2] = {reply.answer == JOIN_INIT, false};
    if (is_in && has_second(r))
        is_in = second_join(r, g, &j, &reply, &init[1]);
    if (!is_in) {
        worker_timer(r, g, AGAIN_MS * SIM_MS);
        return;
    }
    g->stream = sim_alloc(sizeof *g->stream);
    *g->stream = (struct net_stream){
        .client = r->node, .server = r->node, .cookie = g->index, .open = {true, true}};
    g->place = reply.place;
    g->head = (struct net_frame_head){reply.generation, (uint32_t)reply.place.rank, g->incarnation};
    fetch_chunks(r, g, init);
}

static struct group_worker *worker_of(struct net_stream *s, struct region **r)
{
    *r = region_of(s->client);
    if (!*r || (*r)->is_dying)
        return NULL;
    struct group_worker *g = &(*r)->worker[s->cookie];
    return g->stream == s || g->second == s ? g : NULL;
}

void group_answer(struct net_stream *s, const struct net_piece *p, const struct buf *payload)
{
    struct region *r;
    struct group_worker *g = worker_of(s, &r);
    if (!g || p->kind == PIECE_TAKEN || p->kind == PIECE_NONE)
        return;
    if (p->kind == PIECE_REBASE) {
        g->is_over = true;
    } else if (payload) {
        memcpy(g->value[p->chunk], payload->data, (size_t)opt(OPT_elems) * sizeof(float));
        g->version[p->chunk] = (int64_t)p->step;
    } else {
        sim_fail("end", "%s refuses a piece of its worker %d: %s", sim.node[r->node].name, g->index,
                 p->kind == PIECE_REFUSED ? "refused" : "other");
    }
    g->waits[p->chunk] = false;
    if (g->phase != GROUP_COMPUTE)
        worker_timer(r, g, sim_below(chance_of(r), 500) * 1000);
}

void group_ended(struct net_stream *s, const char *why)
{
    struct region *r;
    struct group_worker *g = worker_of(s, &r);
    s->open[UP] = false;
    if (g)
        g->is_over = true;
    if (g && g->phase != GROUP_COMPUTE)
        worker_timer(r, g, SIM_MS);
}

/* Returns true if all answers have arrived. */
static bool is_quiet(const struct group_worker *g)
{
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        if (g->waits[i])
            return false;
    return true;
}

static void compute_step(struct region *r, struct group_worker *g)
{
    const struct sim_node *n = &sim.node[r->node];
    int64_t ns = opt(OPT_compute_ms) * SIM_MS;
    g->phase = GROUP_COMPUTE;
    ns = ns / 2 + sim_below(chance_of(r), ns);
    worker_timer(r, g, n->slow && !sim.is_calm ? ns * 100 : ns);
}

static void push_step(struct region *r, struct group_worker *g)
{
    uint64_t at = net_place_position(&g->place, r->job.batch, g->step);
    g->phase = GROUP_EXCHANGE;
    for (int i = 0; i < sim_chunks->n_chunks; i++) {
        float gradient[SIM_ELEMS];
        sim_gradient(i, at + ((uint64_t)r->index << 40), r->job.batch, g->value[i], gradient);
        ask_chunk(r, g, i, PIECE_PUSH, g->step, gradient);
    }
}

static void leave_group(struct region *r, struct group_worker *g)
{
    const struct net_leave l = {g->index, g->incarnation, 1, 0, g->head.generation, ""};
    g->phase = GROUP_LEFT;
    r->handler.leave(r->handler.ctx, &l);
    second_leave(r, &l);
}

/* Continues once all chunks are at the worker's step: with the next step, or by leaving. */
static void next_step(struct region *r, struct group_worker *g)
{
    if (g->step >= r->job.train_steps)
        leave_group(r, g);
    else
        compute_step(r, g);
}

static void on_fetched(struct region *r, struct group_worker *g)
{
    g->step = INT64_MAX;
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        g->step = g->version[i] < g->step ? g->version[i] : g->step;
    g->phase = GROUP_BACK;
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        if (g->version[i] > g->step)
            ask_chunk(r, g, i, PIECE_PULL, g->step + 1, NULL);
    if (is_quiet(g))
        next_step(r, g);
}

static void move_worker(struct region *r, struct group_worker *g)
{
    if (g->phase == GROUP_LEFT)
        return;
    if (g->phase != GROUP_OUT && g->is_over) {
        worker_again(r, g, AGAIN_MS, false);
        return;
    }
    switch (g->phase) {
    case GROUP_OUT:
        join_group(r, g);
        break;
    case GROUP_COMPUTE:
        push_step(r, g);
        break;
    case GROUP_FETCH:
        if (is_quiet(g))
            on_fetched(r, g);
        break;
    case GROUP_BACK:
        if (is_quiet(g))
            next_step(r, g);
        break;
    case GROUP_EXCHANGE:
        g->step += is_quiet(g);
        if (is_quiet(g))
            next_step(r, g);
        break;
    default:
        break;
    }
}

/* From here on: the coordinator. */

enum status group_first_join(void *ctx, const struct net_join *join_group, char *why,
                             size_t why_bytes)
{
    struct region *r = ctx;
    const struct region_checkpoint *c = on_disk[r->node];
    const struct planner_first first = {.join = join_group, .servers = sim_region_hosts(r->index)};
    const struct checkpoint_parent_version none = {0};
    if (r->first)
        return ST_OK;
    enum status st = ps_region_check(r->region, join_group, why, why_bytes);
    if (st != ST_OK)
        return st;
    CHECK(planner_make_first(&first, &r->first) == ST_OK);
    sim_keep_plan(r->first);
    CHECK(ps_region_take(r->region, join_group, c ? &c->parent : &none) == ST_OK);
    sim_timer(r->node, sim_below(chance_of(r), 20) * SIM_MS, TIMER_GROUP_PLAN, 0);
    return ST_OK;
}

static uint64_t next_number(struct region *r)
{
    return (uint64_t)sim.node[r->node].life << 24 | ++r->n_plans;
}

void group_begin_at(struct region *r, struct net_plan *p, const struct region_checkpoint *from)
{
    STORY("%s: generation " TERM_FMT " from step %lld", sim.node[r->node].name,
          TERM_ARG(p->generation), (long long)p->step);
    CHECK(generation_begin(r->service, p, from ? (const struct checkpoint_restore *)from : NULL) ==
          ST_OK);
}

/* Begins the plan at each server at its own time. */
static void begin_plan(struct region *r, struct net_plan *p, const struct region_checkpoint *c)
{
    static const struct checkpoint_parent_version none = {0};
    struct region *second = region_second(r);
    sim_keep_plan(p);
    ps_region_plans(r->region, p, c ? &c->parent : &none);
    r->plan = p;
    r->from = c;
    if (!has_second(r)) {
        group_begin_at(r, p, c);
        generation_settle(r->service, p->generation);
        return;
    }
    sim_timer(r->node, sim_below(chance_of(r), 30) * SIM_MS, TIMER_GROUP_BEGIN, 0);
    if (second)
        sim_timer(second->node, sim_below(chance_of(r), 30) * SIM_MS, TIMER_SECOND_BEGIN, 0);
}

static void begin_planned(struct region *r)
{
    struct generation_state st;
    generation_state(r->service, &st);
    if (st.generation != r->plan->generation)
        group_begin_at(r, r->plan, r->from);
}

/* Returns true, and the state of all servers together, if all have begun the plan. */
static bool all_state(struct region *r, struct generation_state *out)
{
    struct region *second = region_second(r);
    generation_state(r->service, out);
    if (!has_second(r))
        return true;
    if (!second || !r->plan || second->plan != r->plan || out->generation != r->plan->generation)
        return false;
    struct generation_state other;
    generation_state(second->service, &other);
    if (other.generation != out->generation)
        return false;
    out->lowest = other.lowest < out->lowest ? other.lowest : out->lowest;
    out->stopped &= other.stopped;
    return true;
}

static void begin_first(struct region *r)
{
    const struct region_checkpoint *c = on_disk[r->node];
    if (has_second(r) && !region_second(r)) {
        sim_timer(r->node, 20 * SIM_MS, TIMER_GROUP_PLAN, 0);
        return;
    }
    const struct net_join join_group = {.job = r->first->job, .chunks = r->first->chunks};
    struct checkpoint_manifest from = {.step = 0};
    struct net_plan *p;
    struct planner_first first = {.generation = next_number(r),
                                  .ps0 = sim.node[r->node].incarnation,
                                  .join = &join_group,
                                  .servers = sim_region_hosts(r->index),
                                  .n_members = r->job.n_workers,
                                  .restore = c ? "c" : ""};
    if (c) {
        from.step = c->step;
        from.job = c->plan->job;
        from.progress = (struct checkpoint_progress){.known = 1, .position = c->position};
        first.from = &from;
    }
    ledger_start(r, c, false);
    CHECK(planner_make_first(&first, &p) == ST_OK);
    begin_plan(r, p, c);
}

static void begin_next(struct region *r, int64_t step)
{
    int member[GROUP_WORKERS] = {0, 1};
    struct net_plan *p;
    struct planner_next next = {.generation = next_number(r),
                                .ps0 = sim.node[r->node].incarnation,
                                .base = r->plan,
                                .source = step < 0 ? PLAN_FIRST : PLAN_MEMORY,
                                .step = step < 0 ? 0 : step,
                                .member = member,
                                .n_members = r->job.n_workers,
                                .servers = sim_region_hosts(r->index)};
    next.position = net_plan_position(r->plan, next.step);
    CHECK(planner_make_next(&next, &p) == ST_OK);
    begin_plan(r, p, NULL);
}

/* Rolls back to the checkpoint after the second server has lost its chunks. */
static void on_lost(struct region *r)
{
    int member[GROUP_WORKERS] = {0, 1};
    const struct region_checkpoint *c = on_disk[r->node];
    struct net_plan *p;
    struct planner_next next = {.generation = next_number(r),
                                .ps0 = sim.node[r->node].incarnation,
                                .base = r->plan,
                                .source = c ? PLAN_CHECKPOINT : PLAN_FIRST,
                                .step = c ? c->step : 0,
                                .position = c ? c->position : 0,
                                .restore = c ? "c" : "",
                                .member = member,
                                .n_members = r->job.n_workers,
                                .servers = sim_region_hosts(r->index)};
    struct region *second = region_second(r);
    /* the region's last checkpoint may be missing, but the region ends nevertheless */
    r->is_unsaved |= r->is_done;
    if (!second || second->plan || r->is_done)
        return; /* the second server is about to begin a plan */
    r->is_changing = false;
    generation_stop(r->service);
    CHECK(planner_make_next(&next, &p) == ST_OK);
    ledger_start(r, c, true);
    begin_plan(r, p, c);
}

/* From time to time kills a worker, or ends the generation for another reason, or does both. */
static void churn_group(struct region *r)
{
    struct sim_random *c = chance_of(r);
    sim_timer(r->node, sim_below(c, 2 * opt(OPT_churn_ms)) * SIM_MS, TIMER_GROUP_CHURN, 0);
    if (sim.is_calm || r->is_done || !r->plan || r->n_plans >= MAX_CHURN)
        return;
    if (sim_chance(c, 40)) {
        struct group_worker *g = &r->worker[sim_below(c, r->job.n_workers)];
        if (g->phase != GROUP_LEFT)
            worker_again(r, g, sim_below(c, 200), true);
    }
    struct generation_state st;
    struct region *second = region_second(r);
    if (sim_chance(c, 60) && !r->is_changing && all_state(r, &st)) {
        r->is_changing = true;
        generation_stop(r->service);
        if (second)
            sim_timer(second->node, sim_below(c, 20) * SIM_MS, TIMER_SECOND_STOP,
                      (int64_t)r->plan->generation);
        sim_timer(r->node, sim_below(c, 5) * SIM_MS, TIMER_GROUP_STOPPED,
                  (int64_t)r->plan->generation);
    }
}

/* Begins the next generation once all servers have stopped. */
static void on_stopped(struct region *r, uint64_t generation)
{
    struct generation_state st;
    if (generation != r->plan->generation || !r->is_changing)
        return;
    if (!all_state(r, &st) || (has_second(r) && !st.stopped)) {
        sim_timer(r->node, 20 * SIM_MS, TIMER_GROUP_STOPPED, (int64_t)generation);
        return;
    }
    r->is_changing = false;
    if (!st.ended && !r->is_done)
        begin_next(r, st.lowest);
}

void group_timer(struct region *r, int what, int64_t number)
{
    if (what == TIMER_GROUP_PLAN)
        begin_first(r);
    else if (what == TIMER_GROUP_CHURN)
        churn_group(r);
    else if (what == TIMER_GROUP_STOPPED)
        on_stopped(r, (uint64_t)number);
    else if (what == TIMER_GROUP_BEGIN)
        begin_planned(r);
    else if (what == TIMER_GROUP_LOST)
        on_lost(r);
    else if (number == r->worker[what - TIMER_GROUP_WORKER].timer)
        move_worker(r, &r->worker[what - TIMER_GROUP_WORKER]);
}

/* Posts the event that ends the write of a checkpoint, after the time that the disk needs; never,
 * if the disk hangs for good. */
static void begin_writing(struct region *r)
{
    struct sim_node *n = &sim.node[r->node];
    int64_t duration = sim_between(&disk[r->node], 100, 20000) * 1000;
    if (sim_chance(&disk[r->node], 5)) /* other hosts load the disk */
        duration *= 100;
    if (n->disk_until > sim.now + duration && !sim.is_calm)
        duration = n->disk_until - sim.now;
    sim_mark(MARK_disk);
    if (n->disk_stuck != n->life)
        sim_post(duration, EV_DISK, r->node);
}

/* Begins a checkpoint of a step that all chunks have; its file is on the disk a little later. */
static void capture_step(struct region *r, int64_t step)
{
    struct region_checkpoint *c = sim_alloc(sizeof *c);
    struct region *second = region_second(r);
    struct run *runs[2] = {service_run(r->service, &(int){0}),
                           second ? service_run(second->service, &(int){0}) : NULL};
    c->step = step;
    memcpy(c->ledger, r->ledger, sizeof c->ledger);
    c->file.n = sim_chunks->n_chunks;
    for (int i = 0; i < c->file.n; i++) {
        struct handover_chunk t;
        CHECK(handover_take(runs[r->plan->shard[i]]->store, i, step, &t) == ST_OK);
        c->file.chunk[i] = i;
        c->file.state[i].version = t.version;
        memcpy(c->file.state[i].value, t.value->data, (size_t)opt(OPT_elems) * sizeof(float));
        if (t.slots)
            memcpy(c->file.state[i].slots, t.slots->data, t.slots->bytes);
        handover_drop(&t);
    }
    run_unref(runs[0]);
    run_unref(runs[1]);
    c->generation = r->plan->generation;
    c->position = net_plan_position(r->plan, step);
    c->plan = r->plan;
    r->writing = c;
    begin_writing(r);
}

void group_disk(struct region *r)
{
    struct region_checkpoint *c = r->writing;
    r->writing = NULL;
    if (!sim.node[r->node].disk_full) {
        ps_region_parent_at(r->region, c->generation, c->step,
                            &c->parent); /* known before the checkpoint's manifest is ordered */
        on_disk[r->node] = c;
        STORY("%s: a checkpoint of step %lld, of round %lld%s", sim.node[r->node].name,
              (long long)c->step, (long long)c->parent.version,
              c->parent.known ? "" : " (not known)");
    }
    group_look(r);
}

static bool is_saved(const struct region *r)
{
    const struct region_checkpoint *c = on_disk[r->node];
    return !opt(OPT_region_save) || r->is_unsaved || (c && c->step >= r->job.train_steps);
}

void group_look(struct region *r)
{
    struct generation_state st;
    int64_t every = opt(OPT_region_save);
    bool has_all = all_state(r, &st);
    struct region *second = region_second(r);
    if (has_all && second && r->settled != st.generation) {
        r->settled = st.generation;
        generation_settle(r->service, st.generation);
        generation_settle(second->service, st.generation);
    }
    bool is_last = st.lowest >= r->job.train_steps;
    if (r->plan && has_all && every && !r->writing && st.lowest >= 0 &&
        ((st.lowest > r->seen && st.lowest % every == 0) || (is_last && !is_saved(r)))) {
        r->seen = st.lowest;
        capture_step(r, st.lowest);
    }
    if (r->is_done && is_saved(r))
        region_stop(r);
}

void group_done(struct region *r)
{
    STORY("%s: all its workers have left", sim.node[r->node].name);
}

void group_start(struct region *r)
{
    const struct region_checkpoint *c = on_disk[r->node];
    r->job = sim_region_job;
    r->seen = c ? c->step : 0;
    for (int i = 0; i < r->job.n_workers; i++) {
        r->worker[i].index = i;
        r->worker[i].incarnation = sim_draw(chance_of(r)) | 1;
        worker_timer(r, &r->worker[i], sim_below(chance_of(r), 300) * SIM_MS);
    }
    if (opt(OPT_churn_ms))
        sim_timer(r->node, sim_below(chance_of(r), 2 * opt(OPT_churn_ms)) * SIM_MS,
                  TIMER_GROUP_CHURN, 0);
}
