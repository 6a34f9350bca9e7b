/* tests/sim/squares.c - ps/service/square_sender.h on the simulated network (server.h): sends this
 * server's part of each step's norm to each other server, until that server accepts it. */
#include "ps/service/square_sender.h"
#include "tests/sim/server.h"
#include <string.h>

enum { AGAIN_MS = 50, CALL_MS = 5000 };

struct peer {
    int node, number;
    bool is_over;
    int64_t sent, calling; /* last step that the peer accepted; step of the call */
    struct sim_call *call; /* call in flight; NULL: none */
};

struct square_sender { /* a sender, which lasts for the run */
    struct square_sender *next;
    int node, number, self, n, n_peers;
    bool is_dead;
    bool waits; /* the timer of all peers is set */
    uint32_t life;
    uint64_t generation, ps0;
    int64_t step;
    double square[2][SIM_CHUNKS];
    struct peer peer[SIM_SERVERS];
};

static struct square_sender *senders;
static int n_senders;

enum status __wrap_square_sender_create(const struct net_plan *plan, int self,
                                        struct square_sender **out);
void __wrap_square_sender_destroy(struct square_sender *s);
void __wrap_square_sender_put(void *ctx, int64_t step, const double *square, int n);

void squares_reset(void)
{
    senders = NULL;
    n_senders = 0;
}

enum status __wrap_square_sender_create(const struct net_plan *plan, int self,
                                        struct square_sender **out)
{
    int n_chunks[SIM_SERVERS] = {0};
    *out = NULL;
    if (!job_servers_clip(&plan->job) || self < 0)
        return ST_OK;
    for (int i = 0; i < plan->chunks->n_chunks; i++)
        n_chunks[plan->shard[i]]++;
    if (n_chunks[self] == 0 || n_chunks[self] == plan->chunks->n_chunks)
        return ST_OK;
    struct square_sender *s = sim_alloc(sizeof *s);
    *s = (struct square_sender){.next = senders,
                                .node = sim_running(),
                                .number = ++n_senders,
                                .self = self,
                                .n = n_chunks[self],
                                .generation = plan->generation,
                                .ps0 = plan->ps0,
                                .step = plan->step - 1};
    s->life = sim.node[s->node].life;
    for (int i = 0; i < plan->servers.n; i++)
        if (i != self && n_chunks[i] > 0)
            s->peer[s->n_peers++] = (struct peer){
                .node = sim_server_at(plan->servers.addr[i]), .number = i, .sent = plan->step - 1};
    senders = s;
    *out = s;
    return ST_OK;
}

void __wrap_square_sender_destroy(struct square_sender *s)
{
    if (s)
        s->is_dead = true;
}

static void send_next(struct square_sender *s, struct peer *p)
{
    if (s->is_dead || p->is_over || p->call || s->step <= p->sent)
        return;
    p->calling = p->sent + 1 < s->step - 1 ? s->step - 1 : p->sent + 1;
    struct net_squares *m = sim_alloc(sizeof *m);
    double *square = sim_alloc(sizeof s->square[0]);
    memcpy(square, s->square[p->calling & 1], sizeof s->square[0]);
    *m = (struct net_squares){.generation = s->generation,
                              .ps0 = s->ps0,
                              .step = p->calling,
                              .server = s->self,
                              .n = s->n,
                              .square = square};
    p->call = sim_call(s->node, p->node, CALL_SQUARES, m, CALL_MS * SIM_MS);
}

void __wrap_square_sender_put(void *ctx, int64_t step, const double *square, int n)
{
    struct square_sender *s = ctx;
    if (n != s->n || step <= s->step)
        sim_fail("I2", "%s computes its part of the norm of step %lld twice",
                 sim.node[s->node].name, (long long)step);
    memcpy(s->square[step & 1], square, (size_t)n * sizeof *square);
    s->step = step;
    for (int i = 0; i < s->n_peers; i++)
        send_next(s, &s->peer[i]);
}

void squares_reply(int node, struct sim_call *c)
{
    const struct net_squares_reply *r = c->st == ST_OK ? c->reply : NULL;
    for (struct square_sender *s = senders; s; s = s->next) {
        if (s->node != node || s->life != sim.node[node].life)
            continue;
        for (int i = 0; i < s->n_peers; i++) {
            struct peer *p = &s->peer[i];
            if (p->call != c)
                continue;
            p->call = NULL;
            p->is_over = r && r->answer == SQUARES_OVER;
            if (r && r->answer == SQUARES_REFUSED)
                sim_fail("I2", "%s refuses a part of a norm: %s", sim.node[p->node].name, r->why);
            if (r && r->answer == SQUARES_TAKEN) {
                p->sent = p->calling;
                send_next(s, p);
            } else if (!p->is_over && !s->waits) {
                s->waits = true;
                sim_timer(node, AGAIN_MS * SIM_MS, TIMER_SQUARES, s->number);
            }
            return;
        }
    }
}

void squares_timer(int node, int64_t number)
{
    for (struct square_sender *s = senders; s; s = s->next) {
        if (s->number != number)
            continue;
        s->waits = false;
        for (int i = 0; i < s->n_peers; i++)
            send_next(s, &s->peer[i]);
    }
}

void squares_request(struct server *s, struct sim_call *c)
{
    struct net_squares_reply *r = sim_alloc(sizeof *r);
    s->handler.squares(s->handler.ctx, c->request, r);
    sim_call_answer(c, r);
}
