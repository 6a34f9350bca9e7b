/* tests/sim/worker.c - see worker.h: the process and its trainer. Each event moves the exchange,
 * then the trainer looks how far it can go. */
#include "tests/sim/worker.h"
#include "tests/sim/oracle.h"
#include "tests/sim/region.h"
#include <string.h>

static struct worker *workers[SIM_NODES];

struct worker *sim_worker(int node)
{
    enum sim_state s = sim.node[node].state;
    if (s != NODE_UP && s != NODE_PAUSED)
        return NULL;
    return opt(OPT_regions) ? region_of(node)->w : workers[node];
}

static int lockstep(void)
{
    return job_in_lockstep(&sim_job);
}

void worker_fail(struct worker *w, int status, const char *why)
{
    if (w->x) {
        parent_failed(w, why);
        return;
    }
    STORY("%s gives up: %s", sim.node[w->node].name, why);
    w->phase = PHASE_END;
    w->timer++;
    sim.node[w->node].status = status;
    sim_timer(w->node, 0, TIMER_TRAINER, w->timer);
}

static void poll_worker(struct worker *w);

void worker_quit(int node)
{
    struct worker *w = workers[node];
    if (w->phase >= PHASE_LEAVE || !w->generation) /* before, it is nobody's member */
        return;
    sim.node[node].quit = sim.node[node].life;
    STORY("%s ends with an error", sim.node[node].name);
    w->failed = 1;
    w->phase = PHASE_LEAVE;
    w->timer++;
    exchange_leave(w, 0);
    poll_worker(w);
}

static void compute_step(struct worker *w)
{
    struct sim_node *n = &sim.node[w->node];
    int64_t ms = opt(OPT_compute_ms);
    int64_t ns = ms * SIM_MS / 2 + sim_below(&n->random, ms * SIM_MS);
    w->phase = PHASE_COMPUTE;
    sim_timer(w->node, n->slow && !sim.calm ? ns * 100 : ns, TIMER_TRAINER, ++w->timer);
}

static int all_done(const struct worker *w)
{
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        if (w->chunk[i].version < sim_job.train_steps)
            return 0;
    return 1;
}

static void next_step(struct worker *w)
{
    if (!all_done(w)) {
        compute_step(w);
        return;
    }
    w->phase = PHASE_LAST;
    for (int i = 0; i < sim_chunks->n_chunks && !lockstep(); i++)
        exchange_request(w, i, PIECE_PULL, sim_job.train_steps);
}

static void push_step(struct worker *w)
{
    uint64_t position = net_place_position(&w->place, sim_job.batch, w->step);
    if (!lockstep() && w->samples == 0)
        sim_fail("I6", "nobody gave %s its samples", sim.node[w->node].name);
    if (!lockstep())
        position = w->samples - 1;
    oracle_samples(w->generation, w->ps0, &w->place, w->step, position);
    w->phase = PHASE_EXCHANGE;
    for (int i = 0; i < sim_chunks->n_chunks; i++) {
        struct worker_chunk *c = &w->chunk[i];
        if (c->version >= sim_job.train_steps || c->version < 0)
            continue;
        sim_gradient(i, position, sim_job.batch, c->value, c->gradient);
        c->position = position;
        exchange_request(w, i, PIECE_PUSH, c->version);
    }
}

static void restart_step(struct worker *w)
{
    w->phase = PHASE_JOIN;
    w->timer++;
    exchange_begin_start(w);
}

/* All chunks are there: in lockstep those that are ahead are read again as they were. */
static void go_back(struct worker *w)
{
    w->step = exchange_lowest(w);
    w->phase = PHASE_BACK;
    for (int i = 0; i < sim_chunks->n_chunks && lockstep(); i++)
        if (w->chunk[i].version > w->step)
            exchange_request(w, i, PIECE_PULL, w->step);
}

static void check_back(struct worker *w)
{
    for (int i = 0; lockstep() && i < sim_chunks->n_chunks; i++)
        if (w->chunk[i].version != w->step)
            sim_fail("I4", "chunk %d came to %s at step %lld, not %lld, from which it goes on", i,
                     sim.node[w->node].name, (long long)w->chunk[i].version, (long long)w->step);
    STORY("%s goes on from step %lld", sim.node[w->node].name, (long long)w->step);
}

/* One move at most; 1: there was one. */
static int advance_phase(struct worker *w)
{
    enum phase was = w->phase;
    if (was == PHASE_END || was == PHASE_LEAVE)
        return 0;
    if (exchange_is_out(w) && was != PHASE_COMPUTE && was != PHASE_EVALUATE) {
        w->phase = PHASE_LEAVE;
        exchange_leave(w, 0);
        return 0;
    }
    if (was == PHASE_JOIN) {
        exchange_ask_again(w);
        if (exchange_all_joined(w))
            w->phase = PHASE_FETCH;
        return w->phase != was;
    }
    if (exchange_is_over(w) && was != PHASE_COMPUTE && was != PHASE_EVALUATE) {
        restart_step(w);
        return 1;
    }
    if (was == PHASE_FETCH && exchange_quiet(w, 0)) {
        go_back(w);
    } else if (was == PHASE_BACK && exchange_quiet(w, w->step)) {
        check_back(w);
        next_step(w);
    } else if (was == PHASE_EXCHANGE && exchange_quiet(w, 0)) {
        w->step++;
        w->steps_done++;
        next_step(w);
    } else if (was == PHASE_LAST && exchange_quiet(w, sim_job.train_steps)) {
        w->phase = PHASE_EVALUATE;
        sim_timer(w->node, opt(OPT_compute_ms) * SIM_MS, TIMER_TRAINER, ++w->timer);
    }
    return w->phase != was;
}

static void poll_worker(struct worker *w)
{
    while (sim.node[w->node].state == NODE_UP && advance_phase(w))
        ;
    if (w->phase == PHASE_LEAVE && w->n_leaves == 0) {
        w->phase = PHASE_END;
        sim.node[w->node].status = w->failed ? EXIT_PERMANENT : 0;
        sim_timer(w->node, 0, TIMER_TRAINER, ++w->timer);
    }
}

static void on_timer(int node, int what, int64_t number)
{
    struct worker *w = workers[node];
    if (what != TIMER_TRAINER) {
        exchange_timer(w, what, number);
    } else if (number == w->timer && w->phase == PHASE_END) {
        sim_ended(node, sim.node[node].status);
        return;
    } else if (number == w->timer && w->phase == PHASE_COMPUTE) {
        if (exchange_is_over(w) && exchange_lowest(w) < 0)
            restart_step(w);
        else
            push_step(w);
    } else if (number == w->timer && w->phase == PHASE_EVALUATE) {
        w->phase = PHASE_LEAVE;
        exchange_leave(w, 1);
    }
    poll_worker(w);
}

void worker_init(struct worker *w, int node)
{
    w->node = node;
    w->incarnation = sim.node[node].incarnation;
    w->member = node - SIM_SERVERS < sim_job.n_workers ? node - SIM_SERVERS : -1;
    w->reached = -1;
    for (int i = 0; i < SIM_SERVERS; i++)
        w->link[i].node = i;
    for (int i = 0; i < SIM_CHUNKS; i++)
        w->chunk[i].version = -1;
}

static void on_start(int node)
{
    struct worker *w = sim_alloc(sizeof *w);
    workers[node] = w;
    worker_init(w, node);
    exchange_begin_start(w);
    poll_worker(w);
}

static void on_die(int node)
{
}

static void on_reply(int node, struct sim_call *c)
{
    exchange_reply(workers[node], c);
    poll_worker(workers[node]);
}

static void on_message(int node, struct net_stream *s, struct sim_msg *m)
{
    exchange_message(workers[node], s, m);
    poll_worker(workers[node]);
}

static void on_closed(int node, struct net_stream *s)
{
    exchange_closed(workers[node], s);
    poll_worker(workers[node]);
}

static void on_term(int node)
{
    struct worker *w = workers[node];
    if (opt(OPT_coordinator))
        exchange_leave_soon(w);
    else
        worker_fail(w, EXIT_RETRY, "SIGTERM");
    poll_worker(w);
}

const struct sim_ops sim_worker_ops = {.start = on_start,
                                       .die = on_die,
                                       .reply = on_reply,
                                       .message = on_message,
                                       .closed = on_closed,
                                       .timer = on_timer,
                                       .term = on_term};
