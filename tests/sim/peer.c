/* tests/sim/peer.c - net/exchange/peer_client.h on the simulated network, for fibers (server.h,
 * second.h). A cancelled call ends at once; a cancel between two calls ends the next one, as in
 * net/rpc/unary.c. */
#include "net/exchange/peer_client.h"
#include "ps/region/region_server.h"
#include "tests/sim/second.h"
#include "tests/sim/server.h"
#include <stdlib.h>
#include <string.h>

struct peer_client {
    int node, to;
    bool is_cancelled;
};

enum status __wrap_peer_client_create(const char *addr, struct peer_client **out);
void __wrap_peer_client_destroy(struct peer_client *c);
enum status __wrap_peer_client_control(struct peer_client *c, const struct net_control *request,
                                       int64_t deadline_ms, struct net_control_reply *reply,
                                       char why[CONTROL_TEXT_BYTES]);
enum status __wrap_peer_client_gate(struct peer_client *c, const struct net_gate *gate,
                                    int64_t deadline_ms, struct net_squares_reply *reply,
                                    char why[CONTROL_TEXT_BYTES]);
void __wrap_peer_client_cancel(struct peer_client *c);

enum status __wrap_peer_client_create(const char *addr, struct peer_client **out)
{
    struct peer_client *c = sim_alloc(sizeof *c);
    c->node = sim.running;
    for (int i = 0; i < SIM_NODES; i++)
        if (!strcmp(addr, sim_address[i]))
            c->to = i;
    *out = c;
    return ST_OK;
}

void __wrap_peer_client_destroy(struct peer_client *c)
{
}

static bool is_dying(int node)
{
    if (sim_is_server(node))
        return !sim_server(node) || sim_server(node)->is_dying;
    return region_of(node)->is_dying;
}

/* Waits until the call ends; returns ST_CANCELLED if it was cancelled. */
static enum status await(struct peer_client *c, struct sim_call *k)
{
    k->waiter = c;
    while (!k->ended && !c->is_cancelled && !is_dying(c->node))
        fiber_wait(c, INT64_MAX);
    k->waiter = NULL;
    c->is_cancelled = false;
    if (k->ended)
        return k->st;
    if (!is_dying(c->node))
        sim_call_cancel(k);
    return ST_CANCELLED;
}

void __wrap_peer_client_cancel(struct peer_client *c)
{
    c->is_cancelled = true;
    fiber_wake(c);
}

void peer_reply(struct sim_call *k)
{
    if (k->waiter)
        fiber_wake(k->waiter);
}

static void *copy_list(const void *from, int n, size_t bytes)
{
    return n > 0 ? sim_copy(from, (size_t)n * bytes) : NULL;
}

enum status __wrap_peer_client_control(struct peer_client *c, const struct net_control *request,
                                       int64_t deadline_ms, struct net_control_reply *reply,
                                       char why[CONTROL_TEXT_BYTES])
{
    if (is_dying(c->node))
        fiber_wait(c, INT64_MAX);
    if (c->is_cancelled || is_dying(c->node)) {
        snprintf(why, CONTROL_TEXT_BYTES, "cancelled");
        c->is_cancelled = false;
        return ST_CANCELLED;
    }
    struct net_control *sent = sim_copy(request, sizeof *request);
    sent->missing = copy_list(request->missing, request->n_missing, sizeof *sent->missing);
    sent->parts = copy_list(request->parts, request->n_parts, sizeof *sent->parts);
    struct sim_call *k = sim_call(c->node, c->to, CALL_CONTROL, sent, deadline_ms * SIM_MS);
    enum status st = await(c, k);
    if (st != ST_OK) {
        snprintf(why, CONTROL_TEXT_BYTES, "%s", status_text(st));
        return st;
    }
    const struct net_control_reply *r = k->reply;
    if (r->later[0]) {
        snprintf(why, CONTROL_TEXT_BYTES, "%s", r->later);
        return ST_UNAVAILABLE;
    }
    *reply = *r;
    reply->kept = NULL;
    if (r->n_kept > 0 && !(reply->kept = malloc((size_t)r->n_kept * sizeof *r->kept)))
        return ST_NOMEM;
    if (r->n_kept > 0)
        memcpy(reply->kept, r->kept, (size_t)r->n_kept * sizeof *r->kept);
    return r->plan ? net_plan_copy(r->plan, &reply->plan) : ST_OK;
}

void peer_control(struct server *s, struct sim_call *c)
{
    sim_control_add(c);
    s->handler.control(s->handler.ctx, NULL, c->request, c->id);
}

/* Answers a control call of ps 0; copies all that the reply points to. */
void net_server_control_reply(struct net_server *s, uint64_t call,
                              const struct net_control_reply *reply)
{
    struct net_plan *plan = NULL;
    if (!reply || !sim_server(sim.running) || sim_server(sim.running)->is_dying)
        return;
    struct net_control_reply *r = sim_copy(reply, sizeof *reply);
    r->kept = copy_list(reply->kept, reply->n_kept, sizeof *r->kept);
    if (reply->plan) {
        CHECK(net_plan_copy(reply->plan, &plan) == ST_OK);
        sim_keep_plan(plan);
        r->plan = plan;
    }
    sim_control_answer(sim.running, call, r);
}

/* Copy of a gate message in flight, because the original may change before the message arrives. */
struct sent {
    struct net_gate gate;
    struct net_gate_item item[16];
    float value[16][SIM_ELEMS];
};

static struct sent *copy_gate(const struct net_gate *gate)
{
    struct sent *s = sim_alloc(sizeof *s);
    s->gate = *gate;
    s->gate.n = gate->n < 16 ? gate->n : 16;
    for (int i = 0; i < s->gate.n; i++) {
        s->item[i] = gate->item[i];
        if (gate->item[i].value)
            memcpy(s->value[i], gate->item[i].value->data, gate->item[i].value->bytes);
    }
    return s;
}

enum status __wrap_peer_client_gate(struct peer_client *c, const struct net_gate *gate,
                                    int64_t deadline_ms, struct net_squares_reply *reply,
                                    char why[CONTROL_TEXT_BYTES])
{
    if (gate->n > 16)
        sim_fail("bound", "a letter has %d chunks, at most 16 are possible", gate->n);
    struct sim_call *k = sim_call(c->node, c->to, CALL_GATE, copy_gate(gate), deadline_ms * SIM_MS);
    enum status st = await(c, k);
    if (st == ST_OK)
        *reply = *(struct net_squares_reply *)k->reply;
    return st;
}

/* Passes a gate message to the server's handler, and answers it. */
void gate_request(struct region *r, struct sim_call *k)
{
    struct sent *s = k->request;
    struct net_squares_reply *reply = sim_alloc(sizeof *reply);
    struct net_gate gate = s->gate;
    gate.item = calloc((size_t)gate.n, sizeof *gate.item);
    for (int i = 0; i < gate.n; i++) {
        size_t bytes = (size_t)opt(OPT_elems) * sizeof(float);
        gate.item[i] = s->item[i];
        if (!s->item[i].value)
            continue;
        CHECK(buf_create(bytes, &gate.item[i].value) == ST_OK);
        memcpy(gate.item[i].value->data, s->value[i], bytes);
    }
    reply->answer = SQUARES_OVER;
    r->handler.gate(r->handler.ctx, &gate, reply);
    if (reply->answer == SQUARES_REFUSED)
        sim_fail("end", "%s refuses a letter: %s", sim.node[r->node].name, reply->why);
    for (int i = 0; i < gate.n && sim.has_story; i++)
        STORY("%s receives: chunk %d, version %lld, kind %d: %s", sim.node[r->node].name,
              gate.item[i].chunk, (long long)gate.item[i].version, (int)gate.item[i].kind,
              reply->answer == SQUARES_TAKEN  ? "taken"
              : reply->answer == SQUARES_OVER ? "over"
                                              : "later");
    message_gate_free(&gate);
    sim_call_answer(k, reply);
}
