/* tests/sim/process.c - see sim.h: processes start, die and are paused. An event for an earlier
 * life of a process is dropped. Events for a paused process wait, then occur in random order. */
#include "tests/sim/client.h"
#include "tests/sim/disk.h"
#include "tests/sim/net.h"
#include "tests/sim/sim.h"

void sim_timer(int node, int64_t delay, int what, int64_t number)
{
    struct sim_event *e = sim_post(delay, EV_TIMER, node);
    e->a = what;
    e->b = number;
}

void sim_start(int node)
{
    struct sim_node *n = &sim.node[node];
    if (n->state == NODE_UP || n->state == NODE_PAUSED || n->gone)
        return;
    n->state = NODE_UP;
    sim.has_changed = true;
    n->life++;
    n->incarnation = sim_draw(&sim.identity) | 1;
    n->held = NULL;
    n->held_end = &n->held;
    STORY("%s starts (life %u)", n->name, n->life);
    if (n->life > 1)
        sim_mark(MARK_restart);
    n->ops->start(node);
}

void sim_kill(int node, bool power)
{
    struct sim_node *n = &sim.node[node];
    if (n->state != NODE_UP && n->state != NODE_PAUSED)
        return;
    n->state = NODE_DOWN;
    sim.has_changed = true;
    n->is_closed = false;
    sim_net_node_died(node, power);
    if (power)
        disk_lose_unsynced(node);
    n->ops->die(node);
    n->held = NULL;
}

void sim_ended(int node, int status)
{
    struct sim_node *n = &sim.node[node];
    STORY("%s ends with %d", n->name, status);
    n->state = NODE_ENDED;
    sim.has_changed = true;
    n->status = status;
    n->is_closed = false;
    sim_net_node_died(node, false);
    n->ops->die(node);
}

void sim_pause(int node, bool on)
{
    struct sim_node *n = &sim.node[node];
    sim.has_changed = true;
    if (on && n->state == NODE_UP) {
        n->state = NODE_PAUSED;
        n->paused_at = sim.now;
    } else if (!on && n->state == NODE_PAUSED) {
        struct sim_event *e = n->held, *next;
        n->state = NODE_UP;
        n->paused_ns += sim.now - n->paused_at;
        n->held = NULL;
        n->held_end = &n->held;
        for (; e; e = next) {
            next = e->next;
            e->next = NULL;
            sim_repost(e, 0);
        }
    }
}

static void run_event(struct sim_event *e)
{
    const struct sim_ops *ops = e->node >= 0 ? sim.node[e->node].ops : NULL;
    switch (e->kind) {
    case EV_TIMER:
        ops->timer(e->node, e->a, e->b);
        break;
    case EV_OPERATION:
        client_operation(e->p);
        break;
    case EV_RENAME:
        disk_rename_late(e->p);
        break;
    case EV_DISK:
        ops->disk(e->node);
        break;
    case EV_FAULT:
        sim_fault_strike(e->a);
        break;
    case EV_FAULT_END:
        sim_fault_end(e->a);
        break;
    case EV_START:
        sim_start(e->a);
        break;
    case EV_CALM:
        sim_calm();
        break;
    default:
        sim_net_event(e);
    }
}

void sim_dispatch(struct sim_event *e)
{
    if (e->node >= 0) {
        struct sim_node *n = &sim.node[e->node];
        if (e->life != n->life || (n->state != NODE_UP && n->state != NODE_PAUSED))
            return; /* the event is for an earlier life of the process */
        if (n->state == NODE_PAUSED) {
            e->next = NULL;
            *n->held_end = e;
            n->held_end = &e->next;
            return;
        }
    }
    sim.cells[e->kind]++;
    sim.running = e->node;
    run_event(e);
}
