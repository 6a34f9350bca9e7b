/* tests/sim/net.c - see net.h. A process has at most one connection to each server. A cut
 * stalls its messages until the cut heals or the keepalive fails. A lost connection drops the
 * messages that arrive later. */
#include "tests/sim/net.h"
#include "base/digest.h"

enum { CLIENT_KEEPALIVE_S = 20, SERVER_KEEPALIVE_S = 30, WINDOW = 2 };

struct sim_conn {
    struct sim_conn *next;
    int node[2];          /* node at each end: UP is the server's, DOWN the client's */
    uint32_t life[2];     /* life of each node when the connection was made */
    bool up[2];           /* false: the node at this end was informed of the connection's loss */
    int64_t lost_from[2]; /* times, by direction: messages that arrive from this time on are lost */
    int window[2]; /* number of messages, by direction, that pass without an acknowledgement */
    struct sim_event *stalled;
    struct sim_call *calls;
    struct net_stream *streams;
};

static struct sim_conn *conns;
static struct sim_call *waiting_calls;
static struct sim_msg *payloads[1 << 16];
static int n_payloads;
static int cut[SIM_NODES][SIM_NODES], slowed[SIM_NODES][SIM_NODES];
static int64_t cut_number[SIM_NODES][SIM_NODES];
static struct sim_random link_random[SIM_NODES][SIM_NODES], call_random;
static uint64_t n_ids;

void sim_net_reset(void)
{
    conns = NULL;
    waiting_calls = NULL;
    n_payloads = 0;
    n_ids = 0;
    call_random = sim_random_of(sim.schedule->seed, STREAM_CALL, 0);
    for (int i = 0; i < SIM_NODES; i++)
        for (int k = 0; k < SIM_NODES; k++) {
            cut[i][k] = slowed[i][k] = 0;
            cut_number[i][k] = 0;
            link_random[i][k] =
                sim_random_of(sim.schedule->seed, STREAM_LINK, (uint64_t)(i * SIM_NODES + k));
        }
}

static void release_message(struct sim_msg *m)
{
    buf_unref(m->payload);
    m->payload = NULL;
}

void sim_net_finish(void)
{
    for (int i = 0; i < n_payloads; i++)
        release_message(payloads[i]);
    n_payloads = 0;
}

static int64_t delay_of(int from, int to)
{
    struct sim_random *r = &link_random[from][to];
    int64_t median = opt(OPT_delay_us) * 1000;
    int64_t d = median / 2 + sim_below(r, median);
    int64_t tail = sim_between(r, 1, 300);
    if (sim_below(r, 1000) < 10 * opt(OPT_tail) && !sim.is_calm)
        d *= tail;
    return slowed[from][to] ? d * 100 : d;
}

static int64_t delay_along(const struct sim_conn *c, int direction)
{
    return delay_of(c->node[!direction], c->node[direction]);
}

bool sim_net_is_reachable(int a, int b)
{
    return !cut[a][b] && !cut[b][a];
}

/* Keeps the event until the cut heals, and returns true, if a cut stops it. */
static bool stalls_at_cut(struct sim_conn *c, int direction, struct sim_event *e)
{
    int from = c->node[!direction], to = c->node[direction];
    if (!cut[from][to] && (!cut[to][from] || c->window[direction]-- > 0))
        return false;
    e->next = c->stalled;
    c->stalled = e;
    return true;
}

static struct sim_event *post_to(struct sim_conn *c, int end, int64_t delay,
                                 enum sim_event_kind kind)
{
    struct sim_event *e = sim_post(delay, kind, c->node[end]);
    e->life = c->life[end];
    e->p = c;
    e->a = end;
    return e;
}

static void lose_from(struct sim_conn *c, int direction, int64_t at)
{
    if (at < c->lost_from[direction])
        c->lost_from[direction] = at;
}

/* Informs the process at that end that the connection is gone. */
static void conn_down(struct sim_conn *c, int end)
{
    int node = c->node[end];
    const struct sim_ops *ops = sim.node[node].ops;
    if (!c->up[end])
        return;
    c->up[end] = false;
    lose_from(c, end, sim.now);
    lose_from(c, !end, sim.now + delay_along(c, !end));
    if (c->up[!end])
        post_to(c, !end, delay_along(c, !end), EV_CONN_DOWN);
    for (struct net_stream *s = c->streams; s; s = s->next)
        if (s->open[end]) {
            s->open[end] = false;
            ops->closed(node, s);
        }
    for (struct sim_call *k = c->calls; k; k = k->next) {
        if (end == UP && !k->answered) {
            ops->call_lost(node, k);
        } else if (end == DOWN && !k->ended) {
            k->ended = true;
            k->st = ST_UNAVAILABLE;
            ops->reply(node, k);
        }
    }
}

void sim_net_node_died(int node, bool power)
{
    for (struct sim_conn *c = conns; c; c = c->next) {
        int end = c->node[UP] == node ? UP : DOWN;
        if (c->node[end] != node || c->life[end] != sim.node[node].life || !c->up[end])
            continue;
        c->up[end] = false;
        lose_from(c, end, sim.now);
        int64_t rest = power ? 0 : delay_along(c, !end) * sim_below(&call_random, 4);
        lose_from(c, !end, sim.now + rest);
        int64_t keepalive = end == DOWN ? SERVER_KEEPALIVE_S : CLIENT_KEEPALIVE_S;
        if (!c->up[!end])
            continue;
        if (power)
            post_to(c, !end, keepalive * SIM_S + sim_below(&call_random, keepalive * SIM_S),
                    EV_KEEPALIVE)
                ->b = -1;
        else
            post_to(c, !end, rest + delay_along(c, !end), EV_CONN_DOWN);
    }
}

/* Breaks the connections to earlier lives of the node: its host runs again, and refuses these
 * connections. */
static void refuse_old(int node)
{
    for (struct sim_conn *c = conns; c; c = c->next)
        for (int end = 0; end < 2; end++)
            if (c->node[end] == node && c->life[end] != sim.node[node].life && c->up[!end])
                post_to(c, !end, delay_along(c, !end), EV_CONN_DOWN);
}

static void watch_cut(struct sim_conn *c)
{
    static const int64_t keepalive_s[2] = {SERVER_KEEPALIVE_S, CLIENT_KEEPALIVE_S};
    for (int end = 0; end < 2; end++) {
        c->window[end] = WINDOW;
        if (c->up[end])
            post_to(c, end,
                    keepalive_s[end] * SIM_S + sim_below(&call_random, keepalive_s[end] * SIM_S),
                    EV_KEEPALIVE)
                ->b = cut_number[c->node[UP]][c->node[DOWN]];
    }
}

static bool joins(const struct sim_conn *c, int a, int b)
{
    return (c->node[UP] == a && c->node[DOWN] == b) || (c->node[UP] == b && c->node[DOWN] == a);
}

void sim_net_cut(int from, int to, int by)
{
    bool was_cut = !sim_net_is_reachable(from, to);
    cut[from][to] += by;
    bool is_cut = !sim_net_is_reachable(from, to);
    if (was_cut == is_cut)
        return;
    cut_number[from][to]++;
    cut_number[to][from] = cut_number[from][to];
    for (struct sim_conn *c = conns; c; c = c->next) {
        if (!joins(c, from, to))
            continue;
        if (is_cut) {
            watch_cut(c);
            continue;
        }
        struct sim_event *e = c->stalled, *next;
        c->stalled = NULL;
        for (; e; e = next) {
            next = e->next;
            sim_repost(e, delay_of(to, from));
        }
    }
}

void sim_net_slow(int a, int b, int by)
{
    slowed[a][b] += by;
    slowed[b][a] += by;
}

/* Breaks the connections of two nodes, like a firewall that drops its state. Each end is informed
 * later. */
void sim_net_reset_pair(int a, int b)
{
    for (struct sim_conn *c = conns; c; c = c->next)
        if (joins(c, a, b) && c->up[UP] && c->up[DOWN])
            for (int end = 0; end < 2; end++) {
                lose_from(c, end, sim.now);
                int64_t most = sim_chance(&call_random, 20) ? 20 * SIM_S : 500 * SIM_MS;
                post_to(c, end, sim_below(&call_random, most), EV_KEEPALIVE)->b = -1;
            }
}

static struct sim_conn *connect_to(int client, int server, bool *is_new)
{
    *is_new = false;
    for (struct sim_conn *c = conns; c; c = c->next)
        if (c->node[DOWN] == client && c->node[UP] == server && c->up[DOWN] &&
            c->life[DOWN] == sim.node[client].life)
            return c;
    if (!sim_net_is_reachable(client, server))
        return NULL;
    if (sim.node[server].state != NODE_UP && sim.node[server].state != NODE_PAUSED)
        return NULL;
    if (sim.node[server].is_closed)
        return NULL;
    refuse_old(server);
    struct sim_conn *c = sim_alloc(sizeof *c);
    *c = (struct sim_conn){.next = conns,
                           .node = {server, client},
                           .life = {sim.node[server].life, sim.node[client].life},
                           .up = {true, true},
                           .lost_from = {INT64_MAX, INT64_MAX}};
    *is_new = true;
    return conns = c;
}

struct sim_call *sim_call(int client, int server, enum sim_call_kind kind, void *request,
                          int64_t deadline)
{
    bool is_new;
    struct sim_call *k = sim_alloc(sizeof *k);
    *k = (struct sim_call){.kind = kind, .client = client, .server = server, .request = request};
    k->id = ++n_ids;
    k->conn = connect_to(client, server, &is_new);
    if (deadline > 0)
        sim_post(deadline, EV_DEADLINE, client)->p = k;
    if (!k->conn) { /* the call is refused at once, or no host answers the request to connect */
        bool is_refused = sim_net_is_reachable(client, server);
        sim_post(is_refused ? 2 * delay_of(client, server)
                            : 2 * SIM_S + sim_below(&call_random, 18 * SIM_S),
                 EV_REPLY, client)
            ->p = k;
        k->st = ST_UNAVAILABLE;
        return k;
    }
    while (k->conn->calls && k->conn->calls->answered && k->conn->calls->ended)
        k->conn->calls = k->conn->calls->next; /* nothing more can happen to this call */
    k->next = k->conn->calls;
    k->conn->calls = k;
    int64_t d = delay_along(k->conn, UP);
    struct sim_event *e = post_to(k->conn, UP, is_new ? 3 * d : d, EV_REQUEST);
    e->p = k;
    e->a = 0;
    return k;
}

void sim_call_cancel(struct sim_call *k)
{
    if (k->ended)
        return;
    k->ended = true;
    if (!k->conn || k->answered)
        return;
    struct sim_event *e = post_to(k->conn, UP, delay_along(k->conn, UP), EV_REQUEST);
    e->p = k;
    e->a = 1;
}

void sim_call_answer(struct sim_call *k, void *reply)
{
    k->answered = true;
    k->reply = reply;
    post_to(k->conn, DOWN, delay_along(k->conn, DOWN), EV_REPLY)->p = k;
}

void sim_control_add(struct sim_call *c)
{
    c->next_waiting = waiting_calls;
    waiting_calls = c;
}

void sim_control_answer(int server, uint64_t call, const void *reply)
{
    for (struct sim_call **at = &waiting_calls; *at; at = &(*at)->next_waiting) {
        struct sim_call *c = *at;
        if (c->id != call || c->server != server)
            continue;
        *at = c->next_waiting;
        if (!c->ended)
            sim_call_answer(c, (void *)reply);
        return;
    }
}

struct net_stream *sim_stream_open(int client, int server)
{
    bool is_new;
    struct sim_conn *c = connect_to(client, server, &is_new);
    if (!c)
        return NULL;
    struct net_stream *s = sim_alloc(sizeof *s);
    *s = (struct net_stream){.conn = c, .client = client, .server = server, .open = {true, true}};
    s->id = ++n_ids;
    s->queue[UP].end = &s->queue[UP].first;
    s->queue[DOWN].end = &s->queue[DOWN].first;
    s->next = c->streams;
    c->streams = s;
    return s;
}

static void post_head(struct net_stream *s, int direction)
{
    struct sim_msg *m = s->queue[direction].first;
    struct sim_event *e = post_to(s->conn, direction, m->at - sim.now, EV_STREAM);
    e->p = s;
    e->a = direction;
}

void sim_stream_push(struct net_stream *s, int direction, struct sim_msg *m)
{
    int64_t at = sim.now + delay_along(s->conn, direction);
    if (at < s->queue[direction].last_at)
        at = s->queue[direction].last_at;
    m->at = s->queue[direction].last_at = at;
    m->next = NULL;
    if (m->payload) {
        m->crc_sent = digest_crc32c(0, m->payload->data, m->payload->bytes);
        if (n_payloads == (int)(sizeof payloads / sizeof *payloads))
            sim_fail("bound", "more answers than a run can have");
        payloads[n_payloads++] = m;
    }
    *s->queue[direction].end = m;
    s->queue[direction].end = &m->next;
    if (s->queue[direction].first == m)
        post_head(s, direction);
}

void sim_stream_cancel(struct net_stream *s)
{
    if (!s->open[DOWN])
        return;
    s->open[DOWN] = false;
    struct sim_msg *m = sim_alloc(sizeof *m);
    m->is_last = true;
    sim_stream_push(s, UP, m);
}

void sim_streams_each(int server, void (*fn)(struct net_stream *s))
{
    for (struct sim_conn *c = conns; c; c = c->next)
        for (struct net_stream *s = c->streams; s; s = s->next)
            if (s->server == server && c->life[UP] == sim.node[server].life && s->open[UP]) {
                s->open[UP] = false;
                fn(s);
            }
}

static void deliver_message(struct net_stream *s, int direction, struct sim_msg *m)
{
    int node = s->conn->node[direction];
    const struct sim_ops *ops = sim.node[node].ops;
    if (!s->open[direction])
        return;
    if (m->payload && digest_crc32c(0, m->payload->data, m->payload->bytes) != m->crc_sent)
        sim_fail("I1", "the version of chunk %u, step %llu, changed in flight", m->piece.chunk,
                 (unsigned long long)m->piece.step);
    if (m->piece.kind != PIECE_NONE)
        ops->message(node, s, m);
    if (m->is_last && s->open[direction]) {
        s->open[direction] = false;
        ops->closed(node, s);
    }
}

static void stream_event(struct sim_event *e)
{
    struct net_stream *s = e->p;
    int direction = e->a;
    struct sim_msg *m = s->queue[direction].first;
    if (sim.now >= s->conn->lost_from[direction])
        return; /* this message is lost, and all later messages are lost, too */
    if (stalls_at_cut(s->conn, direction, e))
        return;
    s->queue[direction].first = m->next;
    if (!m->next)
        s->queue[direction].end = &s->queue[direction].first;
    else
        post_head(s, direction);
    deliver_message(s, direction, m);
    release_message(m);
}

static void request_event(struct sim_event *e)
{
    struct sim_call *k = e->p;
    if (sim.now >= k->conn->lost_from[UP] || !k->conn->up[UP] || stalls_at_cut(k->conn, UP, e))
        return;
    const struct sim_ops *ops = sim.node[k->server].ops;
    if (e->a == 0)
        ops->request(k->server, k);
    else if (!k->answered)
        ops->call_lost(k->server, k);
}

static void reply_event(struct sim_event *e)
{
    struct sim_call *k = e->p;
    if (k->ended)
        return;
    if (k->conn) {
        if (sim.now >= k->conn->lost_from[DOWN] || stalls_at_cut(k->conn, DOWN, e))
            return;
        k->st = ST_OK;
    }
    k->ended = true;
    sim.node[k->client].ops->reply(k->client, k);
}

static void deadline_event(struct sim_call *k)
{
    if (k->ended)
        return;
    sim_call_cancel(k);
    k->st = ST_DEADLINE;
    sim.node[k->client].ops->reply(k->client, k);
}

static void keepalive_event(struct sim_event *e)
{
    struct sim_conn *c = e->p;
    int a = c->node[UP], b = c->node[DOWN];
    if (e->b < 0 || (!sim_net_is_reachable(a, b) && cut_number[a][b] == e->b))
        conn_down(c, e->a);
}

void sim_net_event(struct sim_event *e)
{
    switch (e->kind) {
    case EV_STREAM:
        stream_event(e);
        break;
    case EV_REQUEST:
        request_event(e);
        break;
    case EV_REPLY:
        reply_event(e);
        break;
    case EV_DEADLINE:
        deadline_event(e->p);
        break;
    case EV_CONN_DOWN:
        if (!stalls_at_cut(e->p, e->a, e))
            conn_down(e->p, e->a);
        break;
    case EV_KEEPALIVE:
        keepalive_event(e);
        break;
    case EV_CLOSED:
        sim.node[e->node].ops->closed(e->node, e->p);
        break;
    default:
        CHECK(0);
    }
}
