/* tests/sim/fault.c - lets faults and commands strike and end (sim.h). No fault strikes once the
 * world is calm (sim.is_calm). */
#include "tests/sim/disk.h"
#include "tests/sim/net.h"
#include "tests/sim/second.h"
#include "tests/sim/server.h"
#include "tests/sim/sim.h"
#include "tests/sim/worker.h"

static bool is_active[SIM_MAX_FAULTS];
static unsigned waited_for; /* marks (enum sim_mark) that faults wait for, one bit each */
static int n_looks;         /* times that the operator has looked at the job */

static void post_fault(enum sim_event_kind kind, int64_t delay, int a)
{
    sim_post(delay, kind, -1)->a = a;
}

void sim_faults_begin(void)
{
    const struct sim_schedule *s = sim.schedule;
    waited_for = 0;
    n_looks = 0;
    for (int i = 0; i < s->n_faults; i++) {
        is_active[i] = false;
        if (s->fault[i].mark == MARK_start)
            post_fault(EV_FAULT, s->fault[i].after_us * 1000, i);
        else
            waited_for |= 1u << s->fault[i].mark;
    }
    post_fault(EV_CALM, opt(OPT_calm_ms) * SIM_MS, 0);
}

void sim_fault_mark(enum sim_mark mark)
{
    const struct sim_schedule *s = sim.schedule;
    if (!(waited_for & 1u << mark))
        return;
    for (int i = 0; i < s->n_faults; i++)
        if (s->fault[i].mark == mark && s->fault[i].nth == sim.marks[mark])
            post_fault(EV_FAULT, s->fault[i].after_us * 1000, i);
}

static void set_cut(const struct sim_fault *f, int by)
{
    if (f->kind != FAULT_isolate) {
        sim_net_cut(f->node, f->other, by);
        if (f->kind == FAULT_cut || f->kind == FAULT_apart)
            sim_net_cut(f->other, f->node, by);
        return;
    }
    for (int i = 0; i < SIM_NODES; i++)
        if (i != f->node) {
            sim_net_cut(f->node, i, by);
            sim_net_cut(i, f->node, by);
        }
}

/* Starts a process of the same kind at the first address that was never used; once the world is
 * calm, also at the address of a process that has left. */
static void join_process(int like)
{
    int first = sim_is_server(like) ? 0 : SIM_SERVERS;
    int end = sim_is_server(like) ? SIM_SERVERS : SIM_NODES;
    int taken = first + (int)opt(sim_is_server(like) ? OPT_servers : OPT_workers);
    for (int i = taken; i < end; i++)
        if (sim.node[i].state == NODE_ABSENT) {
            sim_start(i);
            return;
        }
    for (int i = first; i < end && sim.is_calm; i++)
        if (sim.node[i].state == NODE_ENDED) {
            sim_start(i);
            return;
        }
}

static void command_job(enum coordinator_command_kind what, int node)
{
    server_command(what, sim_is_server(node) ? node : node - SIM_SERVERS);
}

static void end_process(const struct sim_fault *f)
{
    sim_kill(f->node, f->kind != FAULT_kill);
    if (f->kind == FAULT_lose_folder) {
        disk_lose_folder();
        for (int i = 0; i < SIM_NODES; i++) /* later checkpoints with the same names are whole */
            sim.node[i].n_damaged = 0;
    }
    if (f->ms >= 0 && sim.node[f->node].state == NODE_DOWN)
        post_fault(EV_START, f->ms * SIM_MS, f->node);
}

/* Lets a process end by itself: after SIGTERM, or with an error. */
static void end_itself(const struct sim_fault *f)
{
    const struct sim_node *n = &sim.node[f->node];
    if (n->state == NODE_UP && f->kind == FAULT_term)
        n->ops->term(f->node);
    else if (n->state == NODE_UP && !sim_is_server(f->node))
        worker_quit(f->node);
}

/* Strikes a server's disk, or the files that it reads and writes; returns as strike_fault(). */
static bool strike_disk(const struct sim_fault *f, struct sim_node *n)
{
    switch (f->kind) {
    case FAULT_disk_hang:
        n->disk_until = sim.now + f->ms * SIM_MS;
        return true;
    case FAULT_disk_full:
        n->disk_full++;
        return true;
    case FAULT_damaged:
        n->reads_damaged = true;
        return false;
    case FAULT_begin_fails:
        n->begin_fails += (int)(f->ms % 3) + 1;
        return false;
    case FAULT_late:
        n->is_late = true;
        return false;
    case FAULT_disk_stuck:
        n->disk_stuck = n->life;
        return false;
    default:
        return false;
    }
}

/* Returns true if the fault lasts until sim_fault_end(). */
static bool strike_fault(const struct sim_fault *f)
{
    struct sim_node *n = &sim.node[f->node];
    switch (f->kind) {
    case FAULT_gone:
        n->gone = n->state != NODE_ENDED;
        sim_kill(f->node, false);
        return false;
    case FAULT_kill:
    case FAULT_power:
    case FAULT_lose_folder:
        end_process(f);
        return false;
    case FAULT_pause:
        sim_pause(f->node, true);
        return true;
    case FAULT_reset:
        sim_net_reset_pair(f->node, f->other);
        return false;
    case FAULT_cut:
    case FAULT_cut_one_way:
    case FAULT_isolate:
        set_cut(f, 1);
        return true;
    case FAULT_slow_link:
        sim_net_slow(f->node, f->other, 1);
        return true;
    case FAULT_slow:
        n->slow++;
        return true;
    case FAULT_term:
    case FAULT_quit:
        end_itself(f);
        return false;
    case FAULT_join:
        join_process(f->node);
        return false;
    case FAULT_drain:
        command_job(sim_is_server(f->node) ? COORDINATOR_DRAIN_SERVER : COORDINATOR_REMOVE_WORKER,
                    f->node);
        return false;
    case FAULT_checkpoint:
        command_job(COORDINATOR_CHECKPOINT, 0);
        return false;
    case FAULT_apart:
        set_cut(f, 1);
        return false;
    default:
        return strike_disk(f, n);
    }
}

void sim_fault_strike(int i)
{
    const struct sim_fault *f = &sim.schedule->fault[i];
    char text[160];
    if (sim.is_calm)
        return;
    if (sim.has_story) {
        sim_fault_text(f, text, sizeof text);
        sim_story("! %s", text);
    }
    sim.fault_hits[f->kind]++;
    is_active[i] = strike_fault(f);
    if (is_active[i])
        post_fault(EV_FAULT_END, f->ms * SIM_MS, i);
}

void sim_fault_end(int i)
{
    const struct sim_fault *f = &sim.schedule->fault[i];
    struct sim_node *n = &sim.node[f->node];
    if (!is_active[i])
        return;
    is_active[i] = false;
    STORY("! %s of %s ends", sim_fault_name[f->kind], n->name);
    switch (f->kind) {
    case FAULT_pause:
        sim_pause(f->node, false);
        break;
    case FAULT_cut:
    case FAULT_cut_one_way:
    case FAULT_isolate:
        set_cut(f, -1);
        break;
    case FAULT_slow_link:
        sim_net_slow(f->node, f->other, -1);
        break;
    case FAULT_slow:
        n->slow--;
        break;
    case FAULT_disk_full:
        n->disk_full--;
        break;
    default:
        break;
    }
}

/* Starts the first workers again, always (`all`) or if no worker runs, unless the job is done. */
static void start_workers(bool all)
{
    int alive = 0;
    for (int i = SIM_SERVERS; i < SIM_NODES; i++)
        alive += sim.node[i].state == NODE_UP && !region_is_second(i);
    for (int i = 0; i < (int)opt(OPT_workers) && (all || !alive) && !sim.job_done; i++) {
        sim.node[SIM_SERVERS + i].gone = 0;
        sim_start(SIM_SERVERS + i);
        if (opt(OPT_region_servers) > 1)
            sim_start(SIM_SERVERS + i + SIM_WORKERS / 2);
    }
}

/* Kills workers that received SIGTERM and still wait for a generation without them. */
static void end_leavers(void)
{
    for (int i = SIM_SERVERS; i < SIM_NODES && !opt(OPT_regions); i++)
        if (sim.node[i].state == NODE_UP && worker_leaves(i))
            sim_kill(i, false);
}

/* Removes a process whose host is gone for good; later starts it on another host of that name. */
static void replace_gone(int node)
{
    struct sim_node *n = &sim.node[node];
    bool is_server = sim_is_server(node);
    if (!n->gone || n->state == NODE_UP || n->state == NODE_ENDED)
        return;
    if (n->gone++ < 4 && (is_server || opt(OPT_min_workers) == 0)) {
        command_job(is_server ? COORDINATOR_DRAIN_SERVER : COORDINATOR_REMOVE_WORKER, node);
    } else if (n->gone > 4) {
        n->gone = 0;
        sim_start(node);
    }
}

/* Plays the operator who follows docs/guide/failures.md when training waits. */
static void operate_job(void)
{
    const struct coordinator_state *ps0 = server_coordinator();
    struct coordinator_line l;
    if (!ps0)
        return;
    if (!coordinator_view_waits_for(ps0, &l))
        l = (struct coordinator_line){.id = LINE_NONE, .server = -1};
    int named = l.server > 0 ? sim_server_at(coordinator_view_server_address(ps0, l.server))
                             : server_awaited();
    if (named > 0 && sim.node[named].disk_stuck == sim.node[named].life && n_looks > 2)
        /* the process that is started next mounts its folder again, and this folder may answer */
        sim_kill(named, false);
    if (named > 0 && (sim.node[named].state == NODE_ENDED || sim.node[named].state == NODE_DOWN))
        sim_start(named);
    if (l.id == WAIT_WORKERS && !opt(OPT_regions))
        join_process(SIM_SERVERS);
    if (++n_looks >= 6)
        end_leavers();
    start_workers(n_looks >= 6);
    for (int i = 1; i < SIM_NODES; i++)
        replace_gone(i);
}

void sim_calm(void)
{
    if (opt(OPT_coordinator))
        post_fault(EV_CALM, 20 * SIM_S, 0);
    if (sim.is_calm) {
        operate_job();
        return;
    }
    STORY("! all faults end here");
    for (int i = 0; i < sim.schedule->n_faults; i++)
        sim_fault_end(i);
    sim.is_calm = true;
    for (int i = 0; i < SIM_NODES; i++)
        if (sim.node[i].state == NODE_DOWN)
            sim_start(i);
}
