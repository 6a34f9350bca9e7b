/* tests/sim/server.c - see server.h: one life of a server. */
#include "tests/sim/server.h"
#include "ps/service/run.h"
#include "ps/store/handover.h"
#include "tests/sim/oracle.h"
#include <stdlib.h>
#include <string.h>

static struct server *servers[SIM_SERVERS];

struct server *sim_server(int node)
{
    enum sim_state s = sim.node[node].state;
    return node < SIM_SERVERS && (s == NODE_UP || s == NODE_PAUSED) ? servers[node] : NULL;
}

static void on_roster_changed(void *ctx);

/* Each chunk of the generation that has begun, as it is here. */
static void on_started(void *ctx)
{
    struct server *s = ctx;
    int ended;
    struct run *r = service_run(s->service, &ended);
    if (r->generation <= s->last_generation)
        sim_fail("term", "%s goes from generation %llx to %llx", sim.node[s->node].name,
                 (unsigned long long)s->last_generation, (unsigned long long)r->generation);
    s->last_generation = r->generation;
    STORY("%s begins generation %llx", sim.node[s->node].name, (unsigned long long)r->generation);
    oracle_begin(s->node, r->plan);
    for (int i = 0; r->self >= 0 && i < r->chunks->n_chunks; i++) {
        struct handover_chunk t;
        struct oracle_state now = {.version = -1};
        if (r->plan->shard[i] != r->self)
            continue;
        if (handover_take(r->store, i, -1, &t) == ST_OK) {
            now.version = t.version;
            memcpy(now.value, t.value->data, (size_t)opt(OPT_elems) * sizeof(float));
            if (t.slots)
                memcpy(now.slots, t.slots->data,
                       t.slots->bytes < sizeof now.slots ? t.slots->bytes : sizeof now.slots);
            handover_drop(&t);
        }
        oracle_begin_chunk(r->plan, i, &now);
    }
    run_unref(r);
    on_roster_changed(s);
}

/* All members have left, done: all steps are there, with the right bits. */
static void on_done(void *ctx)
{
    struct server *s = ctx;
    int ended;
    STORY("%s: the job is done", sim.node[s->node].name);
    s->done = 1;
    if (s->node == 0)
        sim.job_done = sim.node[0].life;
    struct run *r = service_run(s->service, &ended);
    for (int i = 0; r->self >= 0 && i < r->chunks->n_chunks; i++) {
        int64_t version;
        struct buf *b = store_read(r->store, i, &version);
        if (!b)
            continue;
        if (version != sim_job.train_steps)
            sim_fail("I8", "all workers have ended, but chunk %d is at step %lld", i,
                     (long long)version);
        oracle_version((struct oracle_place){s->node, r->generation, i}, version, b->data, NULL,
                       "at the end");
        buf_unref(b);
    }
    run_unref(r);
    if (opt(OPT_coordinator))
        server_finish(s);
}

void server_exit(struct server *s, int status)
{
    if (s->ending == 2)
        return;
    s->ending = 2;
    status = s->term && status == 0 ? SIM_TERM_STATUS : status;
    sim.node[s->node].status = status;
    sim_timer(s->node, 0, TIMER_EXIT, status);
}

void server_finish(struct server *s)
{
    if (s->ending)
        return;
    s->ending = 1;
    s->finish_ns = sim.now + (s->node == 0 ? 340 : 60) * SIM_S;
    if (s->node == 0) {
        lead_command(s, COORDINATOR_FINISH, 0);
    } else {
        s->wants += s->folder != NULL;
        follow_news(s, 0);
    }
}

static void on_roster_changed(void *ctx)
{
    struct server *s = ctx;
    if (s->dying || !opt(OPT_coordinator) || !s->service)
        return;
    if (s->lead)
        lead_changed(s);
    follow_news(s, 1);
}

/* ps 0 makes all plans. */
static enum status no_first_join(void *ctx, const struct net_join *join, char *why,
                                 size_t why_bytes)
{
    return ST_OK;
}

static void on_control(void *ctx, struct net_server *server, const struct net_control *request,
                       uint64_t call)
{
    lead_control(ctx, request, call);
}

static void on_control_closed(void *ctx, uint64_t call)
{
    lead_closed(ctx, call);
}

static void on_start(int node)
{
    struct server *s = sim_alloc(sizeof *s);
    servers[node] = s;
    s->node = node;
    int core = (int)opt(OPT_coordinator);
    s->joining = node >= sim_ps_hosts.n;
    s->folder = core ? folder_of(node) : NULL;
    struct service_config cfg = {.self = node,
                                 .address = sim_address[node],
                                 .hold_last = node == 0 && s->folder != NULL,
                                 .first_join = !core       ? NULL
                                               : node == 0 ? lead_first_join
                                                           : no_first_join,
                                 .roster_changed = on_roster_changed,
                                 .control = on_control,
                                 .control_closed = on_control_closed,
                                 .ps_hosts = &sim_ps_hosts,
                                 .worker_hosts = &sim_worker_hosts,
                                 .max_model_bytes = 1 << 30,
                                 .no_ticker = 1,
                                 .started = on_started,
                                 .done = on_done,
                                 .ctx = s};
    if (service_create(&cfg, &s->service) != ST_OK)
        sim_fail("bound", "no memory");
    s->handler = service_handler(s->service);
    if (core && node == 0)
        lead_start(s);
    if (core)
        follow_start(s);
}

static void forget_stream(struct net_stream *stream)
{
    struct server *s = servers[stream->server];
    s->handler.stream_closed(s->handler.ctx, stream);
}

static void on_die(int node)
{
    struct server *s = servers[node];
    s->dying = 1;
    sim_streams_each(node, forget_stream);
    follow_stop(s);
    service_destroy(s->service);
    s->service = NULL;
}

static void *keep_copy(const void *from, size_t bytes)
{
    return memcpy(sim_alloc(bytes), from, bytes);
}

static void answer_join(struct server *s, struct sim_call *c)
{
    struct net_join_reply *r = sim_alloc(sizeof *r);
    s->handler.join(s->handler.ctx, c->request, sim.node[c->client].name, r);
    if (r->server) {
        int *map = r->server;
        r->server = keep_copy(map, (size_t)r->n_chunks * sizeof *map);
        free(map);
    }
    struct hosts h = r->servers;
    if (h.n > 0) {
        r->servers.addr = sim_alloc((size_t)h.n * sizeof *h.addr);
        for (int i = 0; i < h.n; i++)
            r->servers.addr[i] = keep_copy(h.addr[i], strlen(h.addr[i]) + 1);
        hosts_free(&h);
    }
    if (r->answer == JOIN_WELCOME || r->answer == JOIN_INIT)
        sim_mark(MARK_join);
    sim_call_answer(c, r);
}

static void on_request(int node, struct sim_call *c)
{
    struct server *s = servers[node];
    if (c->kind == CALL_JOIN) {
        answer_join(s, c);
    } else if (c->kind == CALL_LEAVE) {
        s->handler.leave(s->handler.ctx, c->request);
        sim_mark(MARK_leave);
        sim_call_answer(c, NULL);
    } else if (c->kind == CALL_CONTROL && s->lead) {
        sim_control_add(c);
        s->handler.control(s->handler.ctx, NULL, c->request, c->id);
    } else if (c->kind == CALL_SQUARES) {
        squares_request(s, c);
    }
}

/* The present version of a chunk in the run that the contribution is for; -1: there is none. */
static int64_t version_of(struct server *s, const struct sim_msg *m, float *value)
{
    int ended;
    int64_t version = -1;
    struct run *r = service_run(s->service, &ended);
    struct buf *b = NULL;
    if (r && r->generation == m->head.generation)
        b = store_read(r->store, (int)m->piece.chunk, &version);
    if (b)
        memcpy(value, b->data, (size_t)opt(OPT_elems) * sizeof(float));
    buf_unref(b);
    run_unref(r);
    return version;
}

static void on_message(int node, struct net_stream *stream, struct sim_msg *m)
{
    struct server *s = servers[node];
    struct net_span span = {m->data, m->bytes};
    float before[SIM_ELEMS], after[SIM_ELEMS];
    struct net_piece p = {.kind = m->piece.kind,
                          .chunk = m->piece.chunk,
                          .step = m->piece.step,
                          .weight = m->piece.weight,
                          .crc32c = m->piece.crc32c,
                          .dtype = m->piece.dtype};
    if (m->bytes)
        p.payload = (struct net_payload){&span, 0, m->bytes};
    int is_push = m->piece.kind == PIECE_PUSH;
    int64_t was = is_push ? version_of(s, m, before) : 0;
    if (is_push)
        oracle_pushing(node, m, was);
    s->handler.piece(s->handler.ctx, stream, &m->head, &p);
    if (!is_push)
        return;
    sim_mark(MARK_push);
    int64_t is = version_of(s, m, after);
    oracle_pushed(node, m, was, is, after);
    if (is > was)
        sim_mark(MARK_version);
}

static void on_closed(int node, struct net_stream *stream)
{
    forget_stream(stream);
}

static void on_call_lost(int node, struct sim_call *c)
{
    struct server *s = servers[node];
    if (c->kind == CALL_CONTROL && s->lead)
        s->handler.control_closed(s->handler.ctx, c->id);
}

static void on_reply(int node, struct sim_call *c)
{
    if (c->kind == CALL_SQUARES)
        squares_reply(node, c);
    else
        follow_reply(servers[node], c);
}

static void on_timer(int node, int what, int64_t number)
{
    struct server *s = servers[node];
    if (what == TIMER_EXIT)
        sim_ended(node, (int)number);
    else if (what == TIMER_LEAD || what == TIMER_MAIL || what == TIMER_FINISH)
        lead_timer(s, what, number);
    else if (what == TIMER_SQUARES)
        squares_timer(node, number);
    else
        follow_timer(s, what, number);
}

static void on_disk(int node, void *order)
{
    struct disk_order *o = order;
    if (o->what == DISK_ORDER_FILE)
        follow_disk(servers[node], o);
    else
        lead_disk(servers[node], o);
}

/* As main.c does: no server is in a hurry with the first signal, each is with the second. */
static void on_term(int node)
{
    struct server *s = servers[node];
    int again = s->ending != 0;
    s->term = 1;
    if (again || (node != 0 && !s->folder))
        server_exit(s, 0);
    else if (node == 0)
        server_finish(s);
    else
        follow_term(s);
}

const struct sim_ops sim_server_ops = {.start = on_start,
                                       .die = on_die,
                                       .request = on_request,
                                       .message = on_message,
                                       .closed = on_closed,
                                       .call_lost = on_call_lost,
                                       .timer = on_timer,
                                       .reply = on_reply,
                                       .disk = on_disk,
                                       .term = on_term};
