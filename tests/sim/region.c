/* tests/sim/region.c - the process of a region's ps 0 (region.h). Its calls of the store, the
 * service and the exchange pass through here (--wrap), where fibers switch and the ledger checks
 * values. */
#include "ps/region/region_chunks.h"
#include "ps/region/region_server.h"
#include "ps/store/outer.h"
#include "tests/sim/oracle.h"
#include "tests/sim/second.h"
#include <string.h>
#include <unistd.h>

static struct region *regions[SIM_NODES];

struct region *region_of(int node)
{
    return regions[node];
}

void regions_reset(void)
{
    memset(regions, 0, sizeof regions);
    second_reset();
    fibers_reset();
    group_reset();
    ledger_reset();
}

/* The store's hooks pass each call to the region's own hooks; the ledger notes versions. */
static const struct outer_hooks *own(const struct region *r)
{
    return ps_region_outer(r->region);
}

static int outer_waits(void *ctx, int64_t version, int64_t train_steps)
{
    const struct outer_hooks *o = own(ctx);
    return o->waits(o->ctx, version, train_steps);
}

static void outer_made(void *ctx, int chunk, int64_t version, int waits, struct buf *value)
{
    const struct outer_hooks *o = own(ctx);
    struct region *r = ctx;
    if (!r->is_dying)
        ledger_made(r, chunk, version, waits, value->data);
    o->made(o->ctx, chunk, version, waits, value);
}

static void outer_first(void *ctx, int chunk, const struct net_payload *value)
{
    const struct outer_hooks *o = own(ctx);
    o->first(o->ctx, chunk, value);
}

static int64_t outer_slots_since(void *ctx)
{
    const struct outer_hooks *o = own(ctx);
    return o->slots_since(o->ctx);
}

/* Calls of ps/region to its store and service: other threads may run between them. */
int __real_outer_adopt(struct store *s, int chunk, int64_t version,
                       const struct outer_adoption *how);
int __wrap_outer_adopt(struct store *s, int chunk, int64_t version,
                       const struct outer_adoption *how);
int __wrap_outer_adopt(struct store *s, int chunk, int64_t version,
                       const struct outer_adoption *how)
{
    struct region *r = region_of(sim.running);
    fiber_pause();
    int made = __real_outer_adopt(s, chunk, version, how);
    struct region *h = made ? ledger_of(r) : NULL;
    if (h && !r->is_second)
        ledger_adopted(r, chunk, version, how->to, how->from);
    if (!h || !r->is_second)
        return made;
    int64_t now;
    struct buf *is = store_read(s, chunk, &now);
    if (is && now == version)
        ledger_obeyed(h, h->plan->generation, chunk, version, is->data);
    buf_unref(is);
    return made;
}

int __real_region_chunks_adopt(struct ps_region *r, struct run *run,
                               const struct region_chunk_adoption *w);
int __wrap_region_chunks_adopt(struct ps_region *r, struct run *run,
                               const struct region_chunk_adoption *w);
int __wrap_region_chunks_adopt(struct ps_region *r, struct run *run,
                               const struct region_chunk_adoption *w)
{
    struct region *own = region_of(sim.running);
    if (run->plan->shard[w->chunk] != run->self && !own->is_dying)
        ledger_word(own, run->generation, w);
    return __real_region_chunks_adopt(r, run, w);
}

enum status __real_outer_set_first(struct store *s, int chunk, int64_t version, const float *value);
enum status __wrap_outer_set_first(struct store *s, int chunk, int64_t version, const float *value);
enum status __wrap_outer_set_first(struct store *s, int chunk, int64_t version, const float *value)
{
    struct region *r = region_of(sim.running);
    int64_t before, after;
    fiber_pause();
    struct buf *was = store_read(s, chunk, &before);
    enum status st = __real_outer_set_first(s, chunk, version, value);
    struct buf *is = store_read(s, chunk, &after);
    struct region *h = !was && is ? ledger_of(r) : NULL;
    if (h && h->x)
        ledger_first(h, chunk, version, value);
    buf_unref(was);
    buf_unref(is);
    return st;
}

struct run *__real_service_run(struct service *s, int *ended);
struct run *__wrap_service_run(struct service *s, int *ended);
struct run *__wrap_service_run(struct service *s, int *ended)
{
    if (fiber_is_running())
        fiber_pause();
    struct run *run = __real_service_run(s, ended);
    if (fiber_is_running()) /* the next generation may begin before the caller uses this one */
        fiber_pause();
    return run;
}

/* Notes the region's exchange with its parent; a region that rolls back creates another one. */
enum status __real_net_exchange_create(const struct net_exchange_config *cfg,
                                       struct net_exchange **out);
enum status __wrap_net_exchange_create(const struct net_exchange_config *cfg,
                                       struct net_exchange **out);
enum status __wrap_net_exchange_create(const struct net_exchange_config *cfg,
                                       struct net_exchange **out)
{
    struct region *r = opt(OPT_regions) ? region_of(sim.running) : NULL;
    enum status st = __real_net_exchange_create(cfg, out);
    if (r && st == ST_OK) {
        r->x = *out;
        r->incarnation = cfg->join.incarnation;
        memset(r->held, 0, sizeof r->held);
    }
    return st;
}

void region_received(const struct net_exchange *x, int chunk, int64_t version)
{
    struct region *r = region_of(sim.running);
    r->held[chunk].version = version;
    r->held[chunk].generation = client_generation(x, &r->held[chunk].ps0);
    const struct ledger_step at = {r->held[chunk].generation, r->held[chunk].ps0, chunk, 0,
                                   version};
    oracle_parent(&at, client_params(x, chunk), "as a region received it");
}

int64_t region_parent_version(const struct region *r, int chunk, uint64_t *generation,
                              uint64_t *ps0)
{
    *generation = r->held[chunk].generation;
    *ps0 = r->held[chunk].ps0;
    return r->held[chunk].version;
}

/* Lets a region wait for its parent without a limit (--parent_timeout=0). */
void *__wrap_region_end_watch(void *region);
void *__wrap_region_end_watch(void *region)
{
    return NULL;
}

/* Returns a fixed number, since a region's incarnation at its parent depends on it. */
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    return 1000 + sim.running;
}

static void on_refused(void *ctx)
{
    struct region *r = ctx;
    if (!r->is_dying)
        sim_fail("end", "%s cannot continue with its parent group", sim.node[r->node].name);
}

static void on_started(void *ctx)
{
    struct region *r = ctx;
    ps_region_wake(r->region);
}

static enum status on_beginning(void *ctx, const struct net_plan *plan)
{
    struct region *r = ctx;
    return ps_region_begin(r->region, plan);
}

static void on_gate(void *ctx, const struct net_gate *gate, struct net_squares_reply *reply)
{
    struct region *r = ctx;
    region_chunks_receive(r->region, gate, reply);
}

static void on_done(void *ctx)
{
    struct region *r = ctx;
    r->is_done = true;
    if (!r->is_dying)
        ledger_end(r);
    group_done(r);
}

static void make_region(struct region *r)
{
    const struct ps_region_config cfg = {.parents = &sim_ps_hosts,
                                         .address = sim_address[r->node],
                                         .index = r->index,
                                         .n_regions = (int)opt(OPT_workers),
                                         .steps = opt(OPT_region_steps),
                                         .fragments = sim_fragments(),
                                         .overlap = sim_overlap(),
                                         .overlap_mix = -1,
                                         .max_drift = opt(OPT_max_drift),
                                         .outer = (int)sim_job.optim.kind,
                                         .outer_rate = -1,
                                         .outer_momentum = -1,
                                         .push_dtype = DTYPE_F32,
                                         .version_dtype = DTYPE_F32,
                                         .refused = on_refused,
                                         .ctx = r};
    CHECK(ps_region_create(&cfg, &r->region) == ST_OK);
    r->outer = (struct outer_hooks){outer_waits, outer_made, outer_first, outer_slots_since, r};
}

static void on_start(int node)
{
    int was = sim.running; /* running node; -1: the event belongs to no node */
    sim.running = node;
    struct region *r = sim_alloc(sizeof *r);
    regions[node] = r;
    r->node = node;
    r->index = (node - SIM_SERVERS) % (opt(OPT_region_servers) > 1 ? SIM_WORKERS / 2 : SIM_WORKERS);
    r->is_second = region_is_second(node);
    if (r->is_second) {
        second_start(r);
        sim.running = was;
        return;
    }
    make_region(r);
    const struct service_config cfg = {.self = 0,
                                       .address = sim_address[node],
                                       .first_join = group_first_join,
                                       .ps_hosts = sim_region_hosts(r->index),
                                       .worker_hosts = &sim_group_hosts,
                                       .max_model_bytes = 1 << 30,
                                       .no_ticker = 1,
                                       .outer = &r->outer,
                                       .region = r->index,
                                       .n_regions = (int)opt(OPT_workers),
                                       .started = on_started,
                                       .beginning = on_beginning,
                                       .gate = on_gate,
                                       .done = on_done,
                                       .ctx = r};
    CHECK(service_create(&cfg, &r->service) == ST_OK);
    r->handler = service_handler(r->service);
    CHECK(ps_region_start(r->region, r->service) == ST_OK);
    group_start(r);
    sim.running = was;
}

static void *stop_main(void *arg)
{
    struct region *r = arg;
    if (r->is_second)
        region_server_stop(r->server);
    ps_region_await_end(r->region);
    ps_region_stop(r->region, NULL);
    if (!r->is_dying)
        sim_timer(r->node, 0, TIMER_EXIT_REGION, 0);
    return NULL;
}

void region_stop(struct region *r)
{
    if (!r->is_stopping)
        fiber_start(r->node, stop_main, r);
    r->is_stopping = true;
}

static void on_die(int node)
{
    struct region *r = regions[node];
    int was = sim.running;
    sim.running = node;
    r->is_dying = true;
    client_die(node);
    if (r->is_second)
        second_die(r);
    region_stop(r);
    fibers_end(node);
    group_end(r);
    service_destroy(r->service);
    ps_region_destroy(r->region);
    region_server_destroy(r->server);
    sim.running = was;
}

/* Lets the region's driver check for work after an event of either server. */
static void look_at_group(struct region *r)
{
    struct region *h = region_head(r);
    int was = sim.running;
    if (!h || h->is_dying || sim.node[h->node].state != NODE_UP)
        return;
    sim.running = h->node;
    group_look(h);
    sim.running = was;
}

static void on_timer(int node, int what, int64_t number)
{
    struct region *r = regions[node];
    if (what == TIMER_FIBER) {
        fiber_timer(number);
    } else if (what == TIMER_EXIT_REGION) {
        struct region *second = region_second(r);
        if (second)
            sim_timer(second->node, SIM_MS, TIMER_EXIT_REGION, 0);
        sim_ended(node, 0);
        return;
    } else if (r->is_second) {
        second_timer(r, what, number);
    } else {
        group_timer(r, what, number);
    }
    look_at_group(r);
}

static void on_request(int node, struct sim_call *c)
{
    gate_request(regions[node], c);
    look_at_group(regions[node]);
}

static void on_reply(int node, struct sim_call *c)
{
    if (c->kind == CALL_GATE)
        peer_reply(c);
    else
        client_reply(node, c);
}

static void on_call_lost(int node, struct sim_call *c)
{
}

static void on_disk(int node)
{
    group_disk(regions[node]);
}

const struct sim_ops sim_region_ops = {.start = on_start,
                                       .die = on_die,
                                       .request = on_request,
                                       .call_lost = on_call_lost,
                                       .reply = on_reply,
                                       .message = client_message,
                                       .closed = client_closed,
                                       .timer = on_timer,
                                       .disk = on_disk};
