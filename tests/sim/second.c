/* tests/sim/second.c - the process of a region's second server (second.h), with production's
 * region_server, service and store. The region's driver (group.c), which runs at ps 0, sends plans,
 * stops and workers' pieces to the second server. They arrive a little later. */
#include "tests/sim/second.h"
#include "ps/region/region_server.h"
#include <stdlib.h>
#include <string.h>

struct ask {
    struct group_worker *g;
    struct net_stream *stream;
    struct net_piece piece;
    struct net_span span;
    float data[SIM_ELEMS];
};
enum { MAX_ASKS = 1 << 16 };
static struct ask *asks[MAX_ASKS];
static int n_asks;

void second_reset(void)
{
    n_asks = 0;
}

int second_node(int head)
{
    return head + SIM_WORKERS / 2;
}

bool region_is_second(int node)
{
    return opt(OPT_region_servers) > 1 && node >= second_node(SIM_SERVERS);
}

struct region *region_head(struct region *r)
{
    return r->is_second ? region_of(r->node - SIM_WORKERS / 2) : r;
}

static bool is_there(const struct region *r)
{
    return r && !r->is_dying &&
           (sim.node[r->node].state == NODE_UP || sim.node[r->node].state == NODE_PAUSED);
}

struct region *region_second(const struct region *r)
{
    struct region *s =
        opt(OPT_region_servers) > 1 && !r->is_second ? region_of(second_node(r->node)) : NULL;
    return is_there(s) ? s : NULL;
}

struct region *ledger_of(struct region *r)
{
    struct region *h = region_head(r);
    if (!r->is_second)
        return r->is_dying ? NULL : r;
    return is_there(h) && !r->is_dying && r->plan && h->plan == r->plan ? h : NULL;
}

/* The store's hooks pass each call to the server's own hooks; the ledger notes versions. */
static int outer_waits(void *ctx, int64_t version, int64_t train_steps)
{
    struct region *r = ctx;
    const struct outer_hooks *o = region_server_outer(r->server);
    return o->waits(o->ctx, version, train_steps);
}

static void outer_made(void *ctx, int chunk, int64_t version, int waits, struct buf *value)
{
    struct region *r = ctx;
    const struct outer_hooks *o = region_server_outer(r->server);
    struct region *h = ledger_of(r);
    if (h)
        ledger_made(h, chunk, version, waits, value->data);
    o->made(o->ctx, chunk, version, waits, value);
}

static void outer_first(void *ctx, int chunk, const struct net_payload *value)
{
    struct region *r = ctx;
    const struct outer_hooks *o = region_server_outer(r->server);
    o->first(o->ctx, chunk, value);
}

static int64_t outer_slots_since(void *ctx)
{
    struct region *r = ctx;
    const struct outer_hooks *o = region_server_outer(r->server);
    return o->slots_since(o->ctx);
}

static enum status first_join(void *ctx, const struct net_join *join, char *why, size_t why_bytes)
{
    return ST_OK;
}

static enum status on_beginning(void *ctx, const struct net_plan *plan)
{
    struct region *r = ctx;
    return region_server_begin(r->server, plan);
}

static void on_gate(void *ctx, const struct net_gate *g, struct net_squares_reply *reply)
{
    struct region *r = ctx;
    region_server_take(r->server, g, reply);
}

static void on_done(void *ctx)
{
}

static void on_failed(void *ctx)
{
    sim_fail("end", "a region's second server has no memory, or ps 0 refused its letter");
}

void second_start(struct region *r)
{
    const struct region_server_config own = {sim_address[r->node], 1, on_failed, r};
    struct region *h = region_head(r);
    r->outer = (struct outer_hooks){outer_waits, outer_made, outer_first, outer_slots_since, r};
    CHECK(region_server_create(&own, &r->server) == ST_OK);
    const struct service_config cfg = {.self = 1,
                                       .address = sim_address[r->node],
                                       .first_join = first_join,
                                       .ps_hosts = sim_region_hosts(r->index),
                                       .worker_hosts = &sim_group_hosts,
                                       .max_model_bytes = 1 << 30,
                                       .no_ticker = 1,
                                       .outer = &r->outer,
                                       .beginning = on_beginning,
                                       .gate = on_gate,
                                       .done = on_done,
                                       .ctx = r};
    CHECK(service_create(&cfg, &r->service) == ST_OK);
    r->handler = service_handler(r->service);
    region_server_serve(r->server, r->service);
    if (sim.node[r->node - SIM_WORKERS / 2].state == NODE_ENDED)
        sim_timer(r->node, 0, TIMER_EXIT_REGION, 0);
    else if (is_there(h) && h->plan)
        sim_timer(h->node, sim_below(&sim.node[r->node].random, 50) * SIM_MS, TIMER_GROUP_LOST, 0);
}

void second_die(struct region *r)
{
    struct region *h = region_head(r);
    for (int i = 0; h && i < GROUP_WORKERS; i++) {
        struct group_worker *g = &h->worker[i];
        if (!g->second || g->second->server != r->node)
            continue;
        struct net_stream *s = g->second;
        g->second = NULL;
        s->open[UP] = false;
        r->handler.stream_closed(r->handler.ctx, s);
        if (is_there(h))
            group_lost_stream(h, g);
    }
}

void second_timer(struct region *r, int what, int64_t number)
{
    struct region *h = region_head(r);
    if (what == TIMER_SECOND_STOP && is_there(h) && r->plan &&
        number == (int64_t)r->plan->generation)
        generation_stop(r->service);
    if (what == TIMER_SECOND_BEGIN && is_there(h) && h->plan && h->plan != r->plan) {
        r->plan = h->plan;
        group_begin_at(r, h->plan, h->from);
    }
    if (what == TIMER_SECOND_ASK) {
        const struct ask *a = asks[number];
        if (is_there(h) && a->g->second == a->stream && a->stream->open[UP])
            r->handler.piece(r->handler.ctx, a->stream, &a->g->head, &a->piece);
    }
}

void second_ask(struct region *h, struct group_worker *g, const struct net_piece *p,
                const float *data)
{
    struct region *r = region_second(h);
    struct ask *a = sim_alloc(sizeof *a);
    size_t bytes = (size_t)opt(OPT_elems) * sizeof(float);
    if (!r || !g->second)
        return;
    if (n_asks == MAX_ASKS)
        sim_fail("bound", "more pieces than a run can have");
    *a = (struct ask){.g = g, .stream = g->second, .piece = *p};
    if (data) {
        memcpy(a->data, data, bytes);
        a->span = (struct net_span){(const uint8_t *)a->data, bytes};
        a->piece.payload = (struct net_payload){&a->span, 0, bytes};
    }
    asks[n_asks] = a;
    sim_timer(r->node, sim_below(&sim.node[h->node].random, 2000) * 1000, TIMER_SECOND_ASK,
              n_asks++);
}

bool second_join(struct region *h, struct group_worker *g, const struct net_join *like,
                 const struct net_join_reply *told, bool *init)
{
    struct region *r = region_second(h);
    struct net_join_reply reply = {.answer = JOIN_RETRY};
    struct net_join j = *like;
    int was = sim.running;
    if (!r || sim.node[r->node].state != NODE_UP)
        return false;
    j.generation = told->generation;
    j.ps0 = told->ps0;
    sim.running = r->node;
    r->handler.join(r->handler.ctx, &j, "a worker", &reply);
    sim.running = was;
    free(reply.server);
    hosts_free(&reply.servers);
    if (reply.answer == JOIN_REFUSED)
        sim_fail("end", "%s refuses its worker %d: %s", sim.node[r->node].name, g->index,
                 reply.why);
    if (reply.answer == JOIN_RETRY)
        return false;
    g->second = sim_alloc(sizeof *g->second);
    *g->second = (struct net_stream){
        .client = h->node, .server = r->node, .cookie = g->index, .open = {true, true}};
    *init = reply.answer == JOIN_INIT;
    return true;
}

void second_close(struct region *h, struct group_worker *g)
{
    struct net_stream *s = g->second;
    struct region *r = region_second(h);
    int was = sim.running;
    g->second = NULL;
    if (!s || !r)
        return;
    s->open[UP] = false;
    sim.running = r->node;
    r->handler.stream_closed(r->handler.ctx, s);
    sim.running = was;
}

void second_leave(struct region *h, const struct net_leave *l)
{
    struct region *r = region_second(h);
    int was = sim.running;
    if (!r)
        return;
    sim.running = r->node;
    r->handler.leave(r->handler.ctx, l);
    sim.running = was;
}
