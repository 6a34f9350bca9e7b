/* tests/sim/run.c - one run (run.h): makes the world, and handles events until the job has ended or
 * a check fails. */
#include "tests/sim/run.h"
#include "base/log.h"
#include "ps/service/run.h"
#include "tests/sim/client.h"
#include "tests/sim/disk.h"
#include "tests/sim/lineage.h"
#include "tests/sim/oracle.h"
#include "tests/sim/patches.h"
#include "tests/sim/second.h"
#include "tests/sim/server.h"
#include "tests/sim/worker.h"
#include <string.h>

/* Time for ps 0 to wait twice for a file that is never written, once at the last step. */
enum { BOUND_S = 900, MAX_EVENTS = 200000 };

static void to_story(void *ctx, enum log_level level, const char *text)
{
    const struct server *s =
        sim.running >= 0 && sim_is_server(sim.running) ? sim_server(sim.running) : NULL;
    if (sim.has_story && !(sim_is_server(sim.running) && (!s || s->is_dying)))
        sim_story("    %s logs: %s", sim.running >= 0 ? sim.node[sim.running].name : "?", text);
}

static void make_world(const struct sim_schedule *s, bool has_story)
{
    memset(&sim, 0, offsetof(struct sim, leave));
    memset(sim.cells, 0, sizeof sim.cells);
    memset(sim.fault_hits, 0, sizeof sim.fault_hits);
    sim.schedule = s;
    sim.has_story = has_story;
    sim.now = SIM_S;
    sim.running = -1;
    sim.ties = sim_random_of(s->seed, STREAM_TIES, 0);
    sim.identity = sim_random_of(s->seed, STREAM_IDENTITY, 0);
    sim.memory = sim_random_of(s->seed, STREAM_MEMORY, 0);
    sim.end_ns = SIM_S + (opt(OPT_calm_ms) + 1000 * (int64_t)BOUND_S) * SIM_MS;
    log_init("sim", -1, has_story ? LOG_LEVEL_INFO : (enum log_level)(LOG_LEVEL_ERROR + 1));
    log_divert(to_story, NULL);
    sim_loop_reset();
    sim_net_reset();
    sim_job_reset();
    squares_reset();
    clients_reset();
    oracle_reset();
    lineage_reset();
    patches_reset();
    disk_reset();
    regions_reset();
    for (int i = 0; i < SIM_NODES; i++) {
        sim.node[i].ops = sim_is_server(i)   ? &sim_server_ops
                          : opt(OPT_regions) ? &sim_region_ops
                                             : &sim_worker_ops;
        sim.node[i].random = sim_random_of(s->seed, STREAM_TRAINER, (uint64_t)i);
    }
}

/* Starts the programs in random order, within a second. */
static void start_all(void)
{
    int n = (int)(opt(OPT_servers) + opt(OPT_workers));
    for (int i = 0; i < n; i++) {
        int servers = (int)opt(OPT_servers);
        int node = i < servers ? i : SIM_SERVERS + i - servers;
        sim_post(sim_below(&sim.identity, 1000) * SIM_MS, EV_START, -1)->a = node;
    }
    for (int i = 0; i < (int)opt(OPT_workers) && opt(OPT_region_servers) > 1; i++)
        sim_post(sim_below(&sim.identity, 1000) * SIM_MS, EV_START, -1)->a =
            second_node(SIM_SERVERS + i);
}

/* Acts as a cluster's scheduler: starts a process again after EXIT_RETRY, and after SIGTERM unless
 * the job is done. */
static void supervise_node(int node)
{
    struct sim_node *n = &sim.node[node];
    if (n->state != NODE_ENDED || n->status == 0)
        return;
    if (n->status == SIM_TERM_STATUS && sim.job_done)
        return;
    if (n->status == EXIT_PERMANENT && (n->quit == n->life || (sim.job_failed && n->quit == 0)))
        return;
    if (n->status != EXIT_RETRY && n->status != SIM_TERM_STATUS)
        sim_fail("end", "%s ended with exit status %d", n->name, n->status);
    n->state = NODE_DOWN;
    sim.has_changed = true;
    sim_post(sim_between(&sim.identity, 10, 3000) * SIM_MS, EV_START, -1)->a = node;
}

/* Returns true if all workers have ended, at least one of them with all steps done. */
static bool all_left(void)
{
    bool is_done = false;
    for (int i = SIM_SERVERS; i < SIM_NODES; i++) {
        if (sim.node[i].state == NODE_UP || sim.node[i].state == NODE_PAUSED ||
            sim.node[i].state == NODE_DOWN)
            return false;
        is_done |= sim.node[i].state == NODE_ENDED && sim.node[i].status == 0;
    }
    return is_done;
}

/* Returns true if the servers of a failed job have ended. If other faults strike, checks only ps 0,
 * because its order to end may not reach the other servers. */
static bool have_failed(void)
{
    int n = sim_schedule_only_quits(sim.schedule) ? SIM_SERVERS : 1;
    if (sim.node[0].life > sim.job_failed) /* ps 0 died while it ended */
        return true;
    for (int i = 0; i < n; i++)
        if (sim.node[i].state != NODE_ABSENT && sim.node[i].state != NODE_ENDED)
            return false;
    return true;
}

/* Checks that the job has failed if all workers ended with errors, and no other fault struck.
 * Checks nothing if workers joined or were started again. */
static void check_quits(void)
{
    int n = 0;
    if (!sim_schedule_only_quits(sim.schedule))
        return;
    for (int i = SIM_SERVERS; i < SIM_NODES; i++)
        if (sim.node[i].life > (uint32_t)(i - SIM_SERVERS < (int)opt(OPT_workers)))
            return;
    for (int i = 0; i < (int)opt(OPT_workers); i++)
        n += sim.node[SIM_SERVERS + i].quit == 1;
    if (n == (int)opt(OPT_workers) && !sim.job_failed)
        sim_fail("end", "all workers have ended with errors, but the job has not failed");
    for (int i = 0; i < SIM_SERVERS && sim.job_failed; i++)
        if (sim.node[i].state == NODE_ENDED && sim.node[i].status != EXIT_PERMANENT)
            sim_fail("end", "the job has failed, but %s ended with exit status %d",
                     sim.node[i].name, sim.node[i].status);
}

/* Returns true if a parent group may have lost all its versions and all its checkpoints. */
static bool has_lost_all(void)
{
    bool is_lost = false;
    if (opt(OPT_folder))
        return disk_n_losses() > 0;
    for (int i = 0; i < SIM_SERVERS; i++)
        is_lost |= sim.node[i].life > 1 || sim.node[i].gone;
    return is_lost;
}

/* Returns true if the job has ended: by ps 0's decision; without ps 0's decisions, once all workers
 * have ended. */
static bool is_over(void)
{
    if (sim.job_failed)
        return have_failed();
    if (opt(OPT_coordinator) && !opt(OPT_folder) && sim.node[0].life > 1 && all_left())
        return true; /* ps 0 has lost its memory, and no worker is left to inform it */
    if (opt(OPT_regions) && all_left() && has_lost_all())
        return true; /* regions that have ended do not join again */
    /* a ps 0 that dies while it ends is not started again, because it has no work left */
    if (opt(OPT_coordinator))
        return sim.node[0].state == NODE_ENDED || (sim.job_done && sim.node[0].life > sim.job_done);
    for (int i = 0; i < (int)opt(OPT_workers); i++)
        if (sim.node[SIM_SERVERS + i].state != NODE_ENDED)
            return false;
    return true;
}

/* Returns true if a server found the job done, without ps 0's decisions. */
static bool is_done(void)
{
    for (int i = 0; i < (int)opt(OPT_servers) && !opt(OPT_coordinator); i++)
        if (sim_server(i) && sim_server(i)->job_done)
            return true;
    return false;
}

static void end_world(void)
{
    for (int i = 0; i < SIM_NODES; i++)
        if (sim.node[i].state == NODE_UP || sim.node[i].state == NODE_PAUSED)
            sim_kill(i, false);
}

/* Runs the world until its end. Checks whether it has ended only after a process was started or
 * ended, or a server was informed how its job ends: sim.has_changed. */
static void run_all(void)
{
    start_all();
    sim_faults_begin();
    for (;;) {
        if (sim.has_changed && (is_over() || is_done()) && !server_is_ending())
            break;
        sim.has_changed = false;
        struct sim_event *e = sim_next();
        if (!e || sim.now > sim.end_ns)
            sim_fail("liveness", "the job does not end, %s",
                     e ? "though all faults have ended" : "and no event is left");
        if (sim.n_events > MAX_EVENTS)
            sim_fail("livelock", "the job has not ended after %d events", MAX_EVENTS);
        sim_dispatch(e);
        if (e->node >= 0)
            supervise_node(e->node);
    }
    check_quits();
    end_world();
}

void sim_run(const struct sim_schedule *s, bool has_story, struct sim_outcome *out)
{
    make_world(s, has_story);
    if (setjmp(sim.leave) == 0)
        run_all();
    sim_net_finish();
    sim_job_finish();
    *out = (struct sim_outcome){.digest = sim.digest,
                                .events = sim.n_events,
                                .ns = sim.now - SIM_S,
                                .checks = oracle_n_checks()};
    memcpy(out->faults, sim.fault_hits, sizeof out->faults);
    memcpy(out->marks, sim.marks, sizeof out->marks);
    if (sim.check) {
        snprintf(out->check, sizeof out->check, "%s", sim.check);
        snprintf(out->why, sizeof out->why, "%s", sim.why);
    }
    sim.schedule = NULL;
    log_divert(NULL, NULL);
}
