/* tests/sim/worker.c - see worker.h. The loop has the same parts as that of worker/train and
 * member/updates.c: it starts in a generation, computes, pushes and waits; it starts again when the
 * generation has ended; at the end it leaves. */
#include "tests/sim/worker.h"
#include "tests/sim/client.h"
#include "tests/sim/fiber.h"
#include "tests/sim/oracle_rows.h"
#include "tests/sim/worker_rows.h"
#include <math.h>
#include <string.h>

enum { LEAVE_MS = 5000, SOON_MS = 5000 };

struct worker {
    int node;
    bool is_dying;
    struct net_exchange *x;
    struct net_start start; /* start of the present generation */
    int64_t step;
    /* is_leaving: the worker sends leave messages, or has sent them */
    bool quits, has_term, is_leaving;
    /* the worker's next contribution is not finite; a server refuses it, and the worker quits */
    bool diverges;
    int n_leavers; /* threads that inform ps 0 of SIGTERM */
    float params[SIM_CHUNKS * SIM_ELEMS], gradient[SIM_CHUNKS][SIM_ELEMS];
    struct worker_rows rows;
};

static struct worker *workers[SIM_NODES];

static bool in_lockstep(void)
{
    return job_in_lockstep(&sim_job);
}

void worker_quit(int node)
{
    struct worker *w = workers[node];
    if (w->is_leaving || !w->start.generation) /* the worker is no member any more, or not yet */
        return;
    w->diverges = sim_chance(&sim.node[node].random, 50);
    w->quits = !w->diverges;
    fiber_wake(w);
}

bool worker_leaves(int node)
{
    return workers[node]->has_term;
}

bool worker_trains_in(int node, uint64_t generation, uint64_t ps0)
{
    const struct worker *w = workers[node];
    uint64_t its_ps0;
    return !w->quits && !w->is_leaving && w->x && client_generation(w->x, &its_ps0) == generation &&
           its_ps0 == ps0;
}

/* Waits for the duration of a step. Returns ST_INTERNAL if the worker ends with an error. */
static enum status compute(struct worker *w, int64_t ns)
{
    int64_t until = sim.now + ns;
    while (sim.now < until && !w->quits && !w->is_dying)
        fiber_wait(w, until);
    return w->is_dying ? ST_CANCELLED : w->quits ? ST_INTERNAL : ST_OK;
}

static enum status compute_step(struct worker *w)
{
    struct sim_node *n = &sim.node[w->node];
    int64_t ms = opt(OPT_compute_ms);
    int64_t ns = ms * SIM_MS / 2 + sim_below(&n->random, ms * SIM_MS);
    return compute(w, n->slow && !sim.is_calm ? ns * 100 : ns);
}

static bool all_done(const struct worker *w)
{
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        if (net_exchange_version(w->x, i) < sim_job.train_steps)
            return false;
    return true;
}

static uint64_t position_of_step(const struct worker *w)
{
    if (in_lockstep())
        return net_place_position(&w->start.place, sim_job.batch, w->step);
    uint64_t samples = net_exchange_samples(w->x);
    if (samples == 0)
        sim_fail("I6", "no server has assigned samples to %s", sim.node[w->node].name);
    return samples - 1;
}

static enum status push_chunk(struct worker *w, int i, uint64_t position)
{
    int64_t version = net_exchange_version(w->x, i);
    if (version < 0 || version >= sim_job.train_steps)
        return ST_OK;
    if (tables_is_bucket(i))
        return worker_rows_push(&w->rows, w->x, i, position);
    const struct net_chunk *c = &sim_chunks->chunks[i];
    float *values = w->params + c->first, *data = w->gradient[i];
    sim_gradient(i, position, sim_job.batch, values, data);
    bool is_bad = w->diverges && i == sim_chunks->n_dense - 1;
    if (is_bad)
        data[0] = INFINITY;
    /* these workers send from the values, as libweir sends changes (libweir/arrays.c) */
    if (w->node % 2)
        data = memcpy(values, data, (size_t)c->n_elems * sizeof *values);
    static const uint8_t marks = 1;
    bool lacks = sim_lacks(i, position) && !is_bad;
    client_set_position(w->node, i, position);
    net_exchange_set_rate(w->x, sim_rate(in_lockstep() ? (uint64_t)version : position));
    return net_exchange_push_lacking(w->x, i, version, data, (float)sim_job.batch,
                                     lacks ? &marks : NULL);
}

static enum status exchange_step(struct worker *w)
{
    uint64_t position = position_of_step(w);
    enum status st = ST_OK, ended = ST_OK;
    oracle_samples(w->start.generation, w->start.ps0, &w->start.place, w->step, position);
    for (int i = 0; i < sim_chunks->n_chunks && (st == ST_OK || st == ST_REBASED); i++) {
        st = push_chunk(w, i, position);
        ended = st == ST_REBASED ? st : ended;
    }
    if (st != ST_OK && st != ST_REBASED)
        return st;
    st = net_exchange_wait(w->x, 0, sim_chunks->n_chunks, 0);
    w->step += st == ST_OK;
    return st == ST_OK ? ended : st;
}

/* Trains until the generation ends (ST_REBASED), or the job's last step. */
static enum status train_generation(struct worker *w)
{
    enum status st = ST_OK;
    w->rows.n_members = w->start.place.n_members;
    worker_rows_forget(&w->rows);
    while (!all_done(w)) {
        if (sim_chunks->n_tables > 0)
            TRY(worker_rows_look_up(&w->rows, w->x, position_of_step(w)));
        TRY(compute_step(w));
        TRY(exchange_step(w));
    }
    for (int i = 0; i < sim_chunks->n_dense && !in_lockstep(); i++)
        TRY(net_exchange_pull(w->x, i, sim_job.train_steps));
    if (sim_chunks->n_tables > 0)
        TRY(worker_rows_read_all(&w->rows, w->x));
    TRY(net_exchange_wait(w->x, 0, sim_chunks->n_chunks, sim_job.train_steps));
    TRY(compute(w, opt(OPT_compute_ms) * SIM_MS)); /* it evaluates */
done:
    return st;
}

static enum status train(struct worker *w)
{
    enum status st;
    do {
        st = net_exchange_start(w->x, &w->start);
        if (st != ST_OK)
            break;
        w->step = w->start.step;
        STORY("%s continues from step %lld", sim.node[w->node].name, (long long)w->step);
        st = train_generation(w);
    } while (st == ST_REBASED);
    return st;
}

/* Leaves the job, if the worker can leave it. Returns the exit status. */
static int leave_job(struct worker *w, enum status st)
{
    bool leaves = st == ST_OK || w->quits || (st == ST_CANCELLED && opt(OPT_coordinator));
    w->is_leaving = true;
    if (leaves)
        net_exchange_leave_failed(w->x, st == ST_OK, w->quits ? "it diverged" : "", LEAVE_MS);
    else
        STORY("%s ends without leaving: %s", sim.node[w->node].name, status_text(st));
    if (w->quits)
        return EXIT_PERMANENT;
    return leaves ? 0 : st == ST_CANCELLED ? EXIT_RETRY : status_exit_code(st);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    enum status st = train(w);
    w->quits = st == ST_INTERNAL || (w->diverges && st == ST_REFUSED) ||
               (opt(OPT_full_stops) && st == ST_REFUSED &&
                oracle_rows_is_full(w->start.generation, w->start.ps0, w->step));
    if (w->quits && !w->is_dying) {
        sim.node[w->node].quit = sim.node[w->node].life;
        STORY("%s ends with an error", sim.node[w->node].name);
    }
    int status = leave_job(w, st);
    while (w->n_leavers > 0)
        fiber_wait(&w->n_leavers, INT64_MAX);
    struct net_exchange *x = w->x;
    w->x = NULL;
    net_exchange_destroy(x);
    if (!w->is_dying)
        sim_timer(w->node, 0, TIMER_WORKER_EXIT, status);
    return NULL;
}

static enum status first_values(void *ctx, float *params)
{
    for (int i = 0; i < sim_chunks->n_dense; i++)
        sim_first_value(i, params + sim_chunks->chunks[i].first);
    return ST_OK;
}

static void on_start(int node)
{
    struct worker *w = sim_alloc(sizeof *w);
    int index = node - SIM_SERVERS, was = sim.running;
    const struct net_exchange_config cfg = {
        .ps_hosts = &sim_ps_hosts,
        .join = {.member = index < sim_job.n_workers ? index : -1,
                 .incarnation = sim.node[node].incarnation,
                 .address = sim_address[node],
                 .job = sim_job,
                 .chunks = sim_chunks},
        .params = w->params,
        .first_values = first_values,
        .ctx = w};
    struct net_exchange_config own = cfg;
    if (index >= sim_job.n_workers)
        own.join.job.n_workers = 0; /* the worker joins a running job */
    sim.running = node;
    workers[node] = w;
    w->node = w->rows.node = node;
    (void)first_values(w, w->params);
    CHECK(net_exchange_create(&own, &w->x) == ST_OK);
    fiber_start(node, worker_main, w);
    sim.running = was;
}

static void on_die(int node)
{
    struct worker *w = workers[node];
    int was = sim.running;
    sim.running = node;
    w->is_dying = true;
    client_die(node);
    if (w->x)
        net_exchange_cancel(w->x);
    fibers_end(node);
    sim.running = was;
}

static void on_timer(int node, int what, int64_t number)
{
    if (what == TIMER_FIBER)
        fiber_timer(number);
    else
        sim_ended(node, (int)number);
}

static void *leave_soon_main(void *arg)
{
    struct worker *w = arg;
    net_exchange_leave_soon(w->x, SOON_MS);
    w->n_leavers--;
    fiber_wake(&w->n_leavers);
    return NULL;
}

/* Handles SIGTERM as worker/shutdown.c does: the worker leaves at the next generation; without a ps
 * 0 that decides on generations it ends at once. */
static void on_term(int node)
{
    struct worker *w = workers[node];
    if (!w->x || w->has_term)
        return;
    w->has_term = true;
    if (!opt(OPT_coordinator)) {
        net_exchange_cancel(w->x);
        return;
    }
    w->n_leavers++;
    fiber_start(node, leave_soon_main, w);
}

const struct sim_ops sim_worker_ops = {.start = on_start,
                                       .die = on_die,
                                       .reply = client_reply,
                                       .message = client_message,
                                       .closed = client_closed,
                                       .timer = on_timer,
                                       .term = on_term};
