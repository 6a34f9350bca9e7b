/* tests/sim/gate.c - see second.h: net/exchange/peer_client.h on the simulated network, for the
 * fibers of a region's servers. */
#include "net/exchange/peer_client.h"
#include "ps/region/region_server.h"
#include "tests/sim/second.h"
#include <stdlib.h>
#include <string.h>

struct peer_client {
    int node, to, cancelled;
};

enum status __wrap_peer_client_create(const char *addr, struct peer_client **out);
void __wrap_peer_client_destroy(struct peer_client *c);
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

/* As it is sent: it may come twice, and what it has may change meanwhile. */
struct sent {
    struct net_gate gate;
    struct net_gate_item item[16];
    float value[16][SIM_ELEMS];
};

static struct sent *copy(const struct net_gate *gate)
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
    const struct region *r = region_of(c->node);
    if (gate->n > 16)
        sim_fail("bound", "a letter of %d chunks", gate->n);
    struct sim_call *k = sim_call(c->node, c->to, CALL_GATE, copy(gate), deadline_ms * SIM_MS);
    k->waiter = c;
    while (!k->ended && !c->cancelled && !r->dying)
        fiber_wait(c, INT64_MAX);
    if (!k->ended) {
        k->waiter = NULL;
        c->cancelled = 0;
        return ST_CANCELLED;
    }
    if (k->st == ST_OK)
        *reply = *(struct net_squares_reply *)k->reply;
    return k->st;
}

void __wrap_peer_client_cancel(struct peer_client *c)
{
    c->cancelled = 1;
    fiber_wake(c);
}

void gate_reply(struct sim_call *k)
{
    if (k->waiter)
        fiber_wake(k->waiter);
}

/* At the server. */
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
    for (int i = 0; i < gate.n && sim.story; i++)
        STORY("%s hears: chunk %d, version %lld, kind %d: %s", sim.node[r->node].name,
              gate.item[i].chunk, (long long)gate.item[i].version, (int)gate.item[i].kind,
              reply->answer == SQUARES_TAKEN  ? "taken"
              : reply->answer == SQUARES_OVER ? "over"
                                              : "later");
    message_gate_free(&gate);
    sim_call_answer(k, reply);
}
