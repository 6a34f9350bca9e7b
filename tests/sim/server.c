/* tests/sim/server.c - one life of a server (server.h). The main thread is a fiber, as are the
 * threads that the node starts: each runs to its end when the process dies. */
#include "tests/sim/server.h"
#include "base/process.h"
#include "ps/coordinator/coordinator_shell_impl.h"
#include "ps/service/run.h"
#include "ps/store/chunk_rows.h"
#include "ps/store/chunk_state.h"
#include "ps/store/handover.h"
#include "tests/sim/disk.h"
#include "tests/sim/fiber.h"
#include "tests/sim/oracle_rows.h"
#include "tests/sim/tables.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { END_S = 15 }; /* limit of ps/main.c */
/* Time to end after SIGTERM: for ps 0 (LAST_MS, WRITE_MS, END_S), and for another server (60 s for
 * its file, END_S). */
enum { FIRST_TERM_S = 400, TERM_S = 90 };

static struct server *servers[SIM_SERVERS];

/* does not switch to another fiber */
struct run *__real_service_run(struct service *s, int *ended);

struct server *sim_server(int node)
{
    enum sim_state s = sim.node[node].state;
    return node < SIM_SERVERS && (s == NODE_UP || s == NODE_PAUSED) ? servers[node] : NULL;
}

struct coordinator_state *server_coordinator(void)
{
    struct server *s = sim_server(0);
    struct coordinator_shell *shell = s && s->self ? node_coordinator(s->self) : NULL;
    return shell ? shell->state : NULL;
}

int server_awaited(void)
{
    char why[CONTROL_TEXT_BYTES], address[CONTROL_TEXT_BYTES];
    struct server *s = sim_server(0);
    if (!server_coordinator() || sim.node[0].state != NODE_UP)
        return -1;
    struct coordinator_shell *shell = node_coordinator(s->self);
    bool waits = !coordinator_folders_can_restore(shell, why, sizeof why) &&
                 sscanf(why, "the server at %255s", address) == 1;
    return waits ? sim_server_at(address) : -1;
}

bool server_is_ending(void)
{
    bool is_any = false;
    for (int i = 0; i < SIM_SERVERS; i++)
        is_any |= sim.node[i].state == NODE_UP && servers[i]->has_term;
    return is_any;
}

void server_command(enum coordinator_command_kind what, int index)
{
    struct server *s = sim_server(0);
    char why[CONTROL_TEXT_BYTES];
    int was = sim.running;
    if (!server_coordinator() || sim.node[0].state != NODE_UP)
        return;
    sim.running = 0;
    if (what == COORDINATOR_CHECKPOINT)
        node_request(s->self);
    else
        coordinator_shell_command(node_coordinator(s->self), what, index, why);
    sim.running = was;
}

/* Returns the bucket of a run; NULL: the run does not have it. */
static const struct bucket *bucket_at(const struct run *r, int chunk)
{
    int shelf = r->store ? r->store->shelf_of[chunk] : -1;
    const struct chunk_rows *rows = shelf >= 0 ? r->store->owned[shelf].rows : NULL;
    return rows && rows->shared ? rows->shared->bucket : NULL;
}

static void check_first_bucket(const struct run *r, int chunk)
{
    const struct bucket *b = bucket_at(r, chunk);
    if (!b)
        sim_fail("rows", "a generation begins without bucket %d", chunk - sim_chunks->n_dense);
    oracle_rows_begin(r->plan, chunk, b);
}

static void check_first_chunk(const struct run *r, int chunk)
{
    struct handover_chunk t;
    struct oracle_state now = {.version = -1};
    if (handover_take(r->store, chunk, -1, &t) == ST_OK) {
        now.version = t.version;
        memcpy(now.value, t.value->data, (size_t)opt(OPT_elems) * sizeof(float));
        now.idle = t.idle ? *(const uint64_t *)t.idle->data : 0;
        if (t.slots)
            memcpy(now.slots, t.slots->data,
                   t.slots->bytes < sizeof now.slots ? t.slots->bytes : sizeof now.slots);
        handover_drop(&t);
    }
    oracle_begin_chunk(r->plan, chunk, &now);
}

/* Checks the generation that has begun, and each chunk at this server. */
static void on_started(void *ctx)
{
    struct server *s = ctx;
    int ended;
    struct run *r = s->is_dying ? NULL : __real_service_run(s->service, &ended);
    if (!r)
        return;
    if (r->generation <= s->last_generation)
        sim_fail("term", "%s begins generation %llx after generation %llx", sim.node[s->node].name,
                 (unsigned long long)r->generation, (unsigned long long)s->last_generation);
    s->last_generation = r->generation;
    STORY("%s begins generation %llx", sim.node[s->node].name, (unsigned long long)r->generation);
    oracle_begin(s->node, r->plan);
    for (int i = 0; r->self >= 0 && i < r->chunks->n_chunks; i++) {
        if (r->plan->shard[i] != r->self)
            continue;
        if (tables_is_bucket(i))
            check_first_bucket(r, i);
        else
            check_first_chunk(r, i);
    }
    run_unref(r);
    if (s->self)
        node_changed(s->self);
}

/* Checks a chunk of a run. Returns its version; -1: the run does not have it. */
static int64_t check_chunk(int node, const struct run *r, int chunk, const char *what)
{
    const struct oracle_place at = {node, r->generation, chunk};
    int64_t version = -1;
    if (tables_is_bucket(chunk)) {
        const struct bucket *b = bucket_at(r, chunk);
        if (b)
            oracle_rows_bucket(at, b, what);
        return b ? (int64_t)b->version : -1;
    }
    struct buf *b = store_read(r->store, chunk, &version);
    if (b)
        oracle_version(at, version, b->data, NULL, what);
    buf_unref(b);
    return b ? version : -1;
}

void server_made(int node)
{
    int ended;
    struct server *s = servers[node];
    struct run *r = s->is_dying ? NULL : __real_service_run(s->service, &ended);
    for (int i = 0; r && r->self >= 0 && i < r->chunks->n_chunks; i++)
        check_chunk(node, r, i, "as it was made");
    run_unref(r);
    sim_mark(MARK_version);
}

static void set_flag(struct server *s, bool *what)
{
    *what = true;
    sim.has_changed = true;
    fiber_wake(s);
}

/* Checks, when all members have left, that each chunk is at the last step, with the right bits. */
static void on_done(void *ctx)
{
    struct server *s = ctx;
    int ended;
    if (s->is_dying)
        return;
    STORY("%s: the job is done", sim.node[s->node].name);
    if (s->node == 0)
        sim.job_done = sim.node[0].life;
    struct run *r = __real_service_run(s->service, &ended);
    for (int i = 0; r->self >= 0 && i < r->chunks->n_chunks; i++) {
        int64_t version = check_chunk(s->node, r, i, "at the end");
        if (version >= 0 && version != sim_job.train_steps)
            sim_fail("I8", "all workers have ended, but chunk %d is at step %lld", i,
                     (long long)version);
    }
    run_unref(r);
    set_flag(s, &s->job_done);
}

static void on_over(void *ctx)
{
    set_flag(ctx, &((struct server *)ctx)->over);
}

static void on_failed(void *ctx)
{
    struct server *s = ctx;
    if (s->node == 0 && !s->is_dying)
        sim.job_failed = sim.node[0].life;
    set_flag(s, &s->failed);
}

static void on_refused(void *ctx)
{
    set_flag(ctx, &((struct server *)ctx)->refused);
}

static void on_unsure(void *ctx)
{
    ((struct server *)ctx)->unsure = true;
    on_refused(ctx);
}

static void on_roster_changed(void *ctx)
{
    struct server *s = ctx;
    if (!s->is_dying && s->self)
        node_changed(s->self);
}

static enum status on_first_join(void *ctx, const struct net_join *join, char *why,
                                 size_t why_bytes)
{
    struct server *s = ctx;
    return s->self ? node_first_join(s->self, join, why, why_bytes) : ST_OK;
}

static void on_control(void *ctx, struct net_server *server, const struct net_control *request,
                       uint64_t call)
{
    struct server *s = ctx;
    if (s->self)
        node_control(s->self, server, request, call);
}

static void on_control_closed(void *ctx, uint64_t call)
{
    struct server *s = ctx;
    if (s->self)
        node_control_closed(s->self, call);
}

static void forget_stream(struct net_stream *stream)
{
    struct server *s = servers[stream->server];
    s->handler.stream_closed(s->handler.ctx, stream);
}

/* Closes the server to calls and streams; its peers notice that. */
static void close_server(struct server *s)
{
    sim.node[s->node].is_closed = true;
    if (s->is_dying)
        return;
    sim_net_node_died(s->node, false);
    sim_streams_each(s->node, forget_stream);
}

static int exit_status(const struct server *s, enum status st, bool lacks_last)
{
    if (st != ST_OK)
        return status_exit_code(st);
    if ((s->failed || s->refused) && !s->unsure)
        return EXIT_PERMANENT;
    return s->has_term ? SIM_TERM_STATUS : s->unsure || lacks_last ? EXIT_RETRY : 0;
}

static enum status create_node(struct server *s, struct node **out)
{
    enum status st = ST_OK;
    struct node_config cfg = {.folder = opt(OPT_folder) ? SIM_FOLDER : NULL,
                              .self = s->node,
                              .joining = s->node >= sim_ps_hosts.n,
                              .address = sim_address[s->node],
                              .ps_hosts = &sim_ps_hosts,
                              .save_steps = opt(OPT_save_steps),
                              .max_model_bytes = 1 << 30,
                              .worker_timeout_ms = opt(OPT_worker_timeout_ms),
                              .min_workers = (int)opt(OPT_min_workers),
                              .refused = on_refused,
                              .replaced = on_refused,
                              .unsure = on_unsure,
                              .over = on_over,
                              .failed = on_failed,
                              .ctx = s};
    TRY(node_create(&cfg, out));
    TRY(node_start(*out, s->service));
    s->self = *out;
    sim.node[s->node].is_closed = false;
    TRY(node_serve(*out));
done:
    return st;
}

/* Waits until the process must end, then for its last checkpoint. Returns true if the process lacks
 * that checkpoint. */
static bool await_end(struct server *s)
{
    while (!s->is_dying && !s->refused && !s->over && !s->failed && !s->job_done && !s->has_term)
        fiber_wait(s, INT64_MAX);
    return !s->is_dying && !s->refused ? !node_finish(s->self) : false;
}

static void *server_main(void *arg)
{
    struct server *s = arg;
    struct node *node = NULL;
    enum status st = create_node(s, &node);
    bool lacks_last = st == ST_OK && await_end(s);
    bool is_finished = st == ST_OK && !s->refused && !s->has_term;
    int status = exit_status(s, st, lacks_last);
    if (!s->is_dying) /* like process_end_within() */
        sim_timer(s->node, END_S * SIM_S, TIMER_EXIT, status);
    close_server(s);
    s->self = NULL;
    node_destroy(node);
    if (opt(OPT_folder) && is_finished)
        node_ended(SIM_FOLDER, sim_address[s->node]);
    if (!s->is_dying)
        sim_timer(s->node, 0, TIMER_EXIT, status);
    return NULL;
}

static void on_start(int node)
{
    struct server *s = sim_alloc(sizeof *s);
    s->paused_ns = -1;
    int was = sim.running;
    bool decides = opt(OPT_coordinator) != 0;
    servers[node] = s;
    sim.running = node;
    s->node = node;
    s->watch = decides && node == 0 ? watch_create() : NULL;
    struct service_config cfg = {.self = node,
                                 .address = sim_address[node],
                                 .hold_last = node == 0 && decides && opt(OPT_folder),
                                 .first_join = decides ? on_first_join : NULL,
                                 .roster_changed = on_roster_changed,
                                 .control = on_control,
                                 .control_closed = on_control_closed,
                                 .ps_hosts = &sim_ps_hosts,
                                 .worker_hosts = &sim_worker_hosts,
                                 .max_model_bytes = 1 << 30,
                                 .threads = opt(OPT_threads) ? server_threads() : NULL,
                                 .long_bytes = 1,
                                 .no_ticker = 1,
                                 .started = on_started,
                                 .done = on_done,
                                 .ctx = s};
    if (service_create(&cfg, &s->service) != ST_OK)
        sim_fail("bound", "no memory");
    s->handler = service_handler(s->service);
    sim.node[node].is_closed = decides;
    if (decides)
        fiber_start(node, server_main, s);
    sim.running = was;
}

static void on_die(int node)
{
    struct server *s = servers[node];
    int was = sim.running;
    sim.running = node;
    s->is_dying = true;
    sim_streams_each(node, forget_stream);
    fibers_end(node);
    service_destroy(s->service);
    s->service = NULL;
    sim.running = was;
}

static void answer_join(struct server *s, struct sim_call *c)
{
    struct net_join_reply *r = sim_alloc_list(sizeof *r); /* the handler sets all of it */
    s->handler.join(s->handler.ctx, c->request, sim.node[c->client].name, r);
    if (r->server) {
        int *map = r->server;
        r->server = sim_copy(map, (size_t)r->n_chunks * sizeof *map);
        free(map);
    }
    struct hosts h = r->servers;
    if (h.n > 0) {
        r->servers.addr = sim_alloc((size_t)h.n * sizeof *h.addr);
        for (int i = 0; i < h.n; i++)
            r->servers.addr[i] = sim_copy(h.addr[i], strlen(h.addr[i]) + 1);
        hosts_free(&h);
    }
    bool is_in = r->answer == JOIN_WELCOME || r->answer == JOIN_INIT;
    if (is_in && s->watch)
        watch_joined(s->watch, c->client);
    if (is_in)
        sim_mark(MARK_join);
    sim_call_answer(c, r);
}

static void on_request(int node, struct sim_call *c)
{
    struct server *s = servers[node];
    if (sim.node[node].is_closed)
        return; /* the connection is gone, so the answer is lost */
    if (c->kind == CALL_JOIN) {
        answer_join(s, c);
    } else if (c->kind == CALL_LEAVE) {
        s->handler.leave(s->handler.ctx, c->request);
        sim_mark(MARK_leave);
        sim_call_answer(c, NULL);
    } else if (c->kind == CALL_CONTROL && node == 0) {
        peer_control(s, c);
    } else if (c->kind == CALL_SQUARES) {
        squares_request(s, c);
    }
}

/* Returns the present version of a chunk in the contribution's generation; -1: none. bucket: the
 * chunk, if it is a bucket. */
static int64_t version_of(struct server *s, const struct sim_msg *m, float *value,
                          const struct bucket **bucket)
{
    int ended, chunk = (int)m->piece.chunk;
    int64_t version = -1;
    struct run *r = __real_service_run(s->service, &ended);
    bool is_of = r && r->generation == m->head.generation;
    struct buf *b = NULL;
    *bucket = is_of && tables_is_bucket(chunk) ? bucket_at(r, chunk) : NULL;
    if (*bucket)
        version = (int64_t)(*bucket)->version;
    else if (is_of)
        b = store_read(r->store, chunk, &version);
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
                          .has_rate = m->piece.has_rate,
                          .rate = m->piece.rate,
                          .ask_taken = m->piece.ask_taken,
                          .rows = m->piece.rows,
                          .reads = m->piece.reads,
                          .crc32c = m->piece.crc32c,
                          .dtype = m->piece.dtype,
                          .memory = server_memory()};
    static const uint8_t mark = 1;
    const struct net_span marks = {&mark, 1};
    if (sim.node[node].is_closed)
        return;
    if (m->piece.lacks)
        p.lacking = (struct net_payload){&marks, 0, 1};
    if (m->bytes)
        p.payload = (struct net_payload){&span, 0, m->bytes};
    bool is_push = m->piece.kind == PIECE_PUSH;
    bool is_dense = !tables_is_bucket((int)m->piece.chunk);
    const struct bucket *bucket;
    int64_t was = is_push ? version_of(s, m, before, &bucket) : 0;
    bool is_refused = is_push && is_dense && m->bytes && !isfinite(*(const float *)m->data);
    if (is_push && !is_refused)
        oracle_pushing(node, m, was);
    s->handler.piece(s->handler.ctx, stream, &m->head, &p);
    if (!is_push)
        return;
    sim_mark(MARK_push);
    int64_t is = version_of(s, m, after, &bucket);
    if (is_refused && is != was)
        sim_fail("I3", "a contribution that is not finite counts for chunk %u", m->piece.chunk);
    if (bucket)
        oracle_rows_pushed(node, m, was, bucket);
    else if (!is_refused && is_dense)
        oracle_pushed(node, m, was, is, after);
    if (is > was)
        sim_mark(MARK_version);
}

static void on_closed(int node, struct net_stream *stream)
{
    if (!sim.node[node].is_closed)
        forget_stream(stream);
}

static void on_call_lost(int node, struct sim_call *c)
{
    if (c->kind == CALL_CONTROL && node == 0)
        on_control_closed(servers[node], c->id);
}

static void on_reply(int node, struct sim_call *c)
{
    if (c->kind == CALL_SQUARES)
        squares_reply(node, c);
    else
        peer_reply(c);
}

static void kill_late(int node)
{
    sim_kill(node, false);
    sim_post(sim_between(&sim.node[node].random, 10, 3000) * SIM_MS, EV_START, -1)->a = node;
}

/* Fails if the server has been running for `seconds` since SIGTERM; pauses do not count. */
static void check_ended(int node, int64_t seconds)
{
    struct server *s = servers[node];
    int64_t paused_ns = sim.node[node].paused_ns - s->paused_ns;
    s->paused_ns += paused_ns;
    if (paused_ns == 0)
        sim_fail("end", "%s has not ended %lld s after SIGTERM", sim.node[node].name,
                 (long long)seconds);
    sim_timer(node, paused_ns, TIMER_TERM, seconds);
}

static void on_timer(int node, int what, int64_t number)
{
    if (what == TIMER_FIBER)
        fiber_timer(number);
    else if (what == TIMER_EXIT)
        sim_ended(node, (int)number);
    else if (what == TIMER_KILL)
        kill_late(node);
    else if (what == TIMER_TERM)
        check_ended(node, number);
    else
        squares_timer(node, number);
}

/* Handles SIGTERM as ps/shutdown.c does: the first SIGTERM ends the process in order, the second
 * one at once. */
static void on_term(int node)
{
    struct server *s = servers[node];
    int64_t seconds = node == 0 ? FIRST_TERM_S : TERM_S;
    if (s->paused_ns < 0) {
        s->paused_ns = sim.node[node].paused_ns;
        sim_timer(node, seconds * SIM_S, TIMER_TERM, seconds);
    }
    if (!s->self || s->has_term || s->job_done || s->over || s->failed || s->refused)
        sim_timer(node, 0, TIMER_EXIT, SIM_TERM_STATUS);
    else
        set_flag(s, &s->has_term);
}

const struct sim_ops sim_server_ops = {.start = on_start,
                                       .die = on_die,
                                       .request = on_request,
                                       .message = on_message,
                                       .closed = on_closed,
                                       .call_lost = on_call_lost,
                                       .timer = on_timer,
                                       .reply = on_reply,
                                       .term = on_term};

uint64_t __wrap_process_incarnation(void);
uint64_t __wrap_process_incarnation(void)
{
    return sim.node[sim.running].incarnation;
}
