/* tests/sim/exchange.c - see worker.h: what net/exchange does, by its rules, without threads. */
#include "base/digest.h"
#include "tests/sim/oracle.h"
#include "tests/sim/region.h"
#include "tests/sim/worker.h"
#include <string.h>

enum {
    JOIN_MS = 10000,
    QUICK_MS = 5,
    QUICK_MAX_MS = 20,
    QUICK_FOR_MS = 3000,
    MAX_BACKOFF_MS = 2000,
    BACKOFF_MS = 100,
    SOON_MS = 5000,
    LEAVE_MS = 5000,
    LINE_MS = 5000
};

static void link_timer(struct worker *w, struct link *l, int64_t ms)
{
    sim_timer(w->node, ms * SIM_MS, l->node, ++l->timer);
}

static void link_hurry(struct worker *w, struct link *l)
{
    l->backoff_ms = 0;
    l->down_ns = sim.now;
    l->line_ns = sim.now + LINE_MS * SIM_MS;
    if (l->state == LINK_HELD)
        l->state = LINK_DOWN;
    if (l->state == LINK_DOWN)
        link_timer(w, l, 0);
}

static int number_of(const struct worker *w, int node)
{
    for (int i = 0; i < w->n_links; i++)
        if (w->link_of[i] == node)
            return i;
    return -1;
}

static int under_way(const struct worker *w, const struct link *l)
{
    int number = number_of(w, l->node);
    for (int i = 0; w->has_map && i < sim_chunks->n_chunks; i++)
        if (w->server[i] == number && w->chunk[i].kind != PIECE_NONE)
            return 1;
    return 0;
}

/* Ends what the link has open; it will join anew. */
static void link_cancel(struct worker *w, struct link *l)
{
    if (l->call)
        sim_call_cancel(l->call);
    if (l->stream)
        sim_stream_cancel(l->stream);
    if (!l->call && !l->stream)
        return;
    l->call = NULL;
    l->stream = NULL;
    for (int i = 0; w->has_map && i < sim_chunks->n_chunks; i++)
        if (w->server[i] == number_of(w, l->node))
            w->chunk[i].sent = 0;
    l->state = l->in_job ? LINK_DOWN : LINK_HELD;
    if (l->in_job)
        link_timer(w, l, l->joined ? BACKOFF_MS : 0);
}

static void forget_all(struct worker *w)
{
    int64_t lowest = exchange_lowest(w);
    if (lowest >= 0)
        w->reached = lowest;
    for (int i = 0; i < sim_chunks->n_chunks; i++) {
        w->chunk[i].kind = PIECE_NONE;
        w->chunk[i].version = -1;
        w->chunk[i].over = w->chunk[i].sent = 0;
    }
    for (int i = 0; i < SIM_SERVERS; i++)
        w->link[i].fetched = w->link[i].joined = 0;
}

static void rebase(struct worker *w)
{
    STORY("%s: the generation is over", sim.node[w->node].name);
    w->rebased = w->ending = 1;
    forget_all(w);
    for (int i = 0; i < SIM_SERVERS; i++) { /* ps 0 says which servers there are */
        w->link[i].in_job = i == w->link_of[0];
        link_cancel(w, &w->link[i]);
        if (!w->link[i].in_job)
            w->link[i].state = LINK_HELD;
    }
}

void exchange_give_up(struct worker *w)
{
    for (int i = 0; i < SIM_SERVERS; i++) {
        w->link[i].in_job = 0;
        link_cancel(w, &w->link[i]);
    }
}

static void plan_join(struct worker *w, struct link *l, int asked_to)
{
    l->call = NULL;
    l->stream = NULL;
    int quick = asked_to && sim.now - l->down_ns < QUICK_FOR_MS * SIM_MS;
    int64_t most = quick ? QUICK_MAX_MS : MAX_BACKOFF_MS, wait;
    l->state = l->in_job ? LINK_DOWN : LINK_HELD;
    if (!l->in_job)
        return;
    if (!l->lost && l->joined && !w->ending) {
        l->lost = 1;
        l->down_ns = sim.now;
        l->line_ns = sim.now + LINE_MS * SIM_MS;
    } else if (sim.now >= l->line_ns) {
        l->line_ns = sim.now + LINE_MS * SIM_MS;
        struct link *first = &w->link[w->link_of[0]];
        if (l != first && !l->idle && first->state == LINK_STREAMING && !under_way(w, first)) {
            first->joined = 0;
            link_cancel(w, first);
        }
    }
    wait = l->backoff_ms < most ? l->backoff_ms : most;
    l->backoff_ms = l->backoff_ms > 0 ? l->backoff_ms * 2 : QUICK_MS;
    if (l->backoff_ms > most)
        l->backoff_ms = most;
    link_timer(w, l, wait);
}

int64_t exchange_lowest(const struct worker *w)
{
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        if (w->chunk[i].version < lowest)
            lowest = w->chunk[i].version;
    return lowest;
}

int exchange_is_out(const struct worker *w)
{
    return w->soon == 2 && (w->ending || w->generation == 0);
}

int exchange_all_joined(struct worker *w)
{
    if (!w->has_map || w->ending)
        return 0;
    for (int i = 0; i < w->n_links; i++)
        if (!w->link[w->link_of[i]].joined && !w->link[w->link_of[i]].idle)
            return 0;
    w->starting = 0;
    return 1;
}

/* While a generation ends, ps 0 is asked for the next as soon as nothing is under way there. */
void exchange_ask_again(struct worker *w)
{
    struct link *l = &w->link[w->link_of[0]];
    if (!w->starting || !w->ending || exchange_is_out(w) || !l->joined ||
        l->state != LINK_STREAMING || under_way(w, l))
        return;
    l->joined = 0;
    link_cancel(w, l);
}

void exchange_begin_start(struct worker *w)
{
    if (w->n_links == 0) {
        w->n_links = 1;
        w->link_of[0] = 0;
        w->link[0].in_job = 1;
    }
    w->starting = 1;
    w->rebased = 0;
    for (int i = 0; i < w->n_links; i++) {
        struct link *l = &w->link[w->link_of[i]];
        if (i == 0 || l->state != LINK_HELD)
            link_hurry(w, l);
    }
    exchange_ask_again(w);
}

int exchange_is_over(const struct worker *w)
{
    int over = w->rebased;
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        over |= w->chunk[i].over;
    return over;
}

int exchange_quiet(const struct worker *w, int64_t step)
{
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        if (w->chunk[i].kind != PIECE_NONE || w->chunk[i].version < step)
            return 0;
    return 1;
}

/* What the request brings; of a region's contribution, as it is now. */
static const float *data_of(const struct worker *w, const struct worker_chunk *c)
{
    if (c->kind == PIECE_INIT)
        return c->value;
    return w->x ? c->data : c->gradient;
}

static void send_request(struct worker *w, struct link *l, int i)
{
    struct worker_chunk *c = &w->chunk[i];
    if (c->sent || c->kind == PIECE_NONE || l->state != LINK_STREAMING)
        return;
    struct sim_msg *m = sim_alloc(sizeof *m);
    m->head = l->head;
    m->piece.kind = c->kind;
    m->piece.chunk = (uint32_t)i;
    m->piece.step = (uint64_t)c->step;
    m->piece.dtype = DTYPE_F32;
    m->identity = c->identity;
    if (c->kind != PIECE_PULL) {
        const float *from = data_of(w, c);
        m->bytes = from ? (size_t)sim_chunks->chunks[i].n_elems * sizeof(float) : 0;
        float *data = sim_alloc(m->bytes);
        if (from)
            memcpy(data, from, m->bytes);
        m->data = data;
        m->piece.crc32c = from ? digest_crc32c(0, data, m->bytes) : 0;
        m->piece.weight = w->x ? c->weight : (float)sim_job.batch;
        m->position = c->position;
    }
    c->sent = 1;
    sim_stream_push(l->stream, UP, m);
}

static void send_all(struct worker *w, struct link *l)
{
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        if (w->server[i] == number_of(w, l->node))
            send_request(w, l, i);
}

void exchange_request(struct worker *w, int chunk, enum piece_kind kind, int64_t step)
{
    struct worker_chunk *c = &w->chunk[chunk];
    if (w->rebased || c->over || c->kind != PIECE_NONE)
        return;
    c->kind = kind;
    c->step = kind == PIECE_PULL ? step + 1 : step;
    c->sent = 0;
    c->identity = sim_draw(&sim.node[w->node].random) | 1;
    send_request(w, &w->link[w->link_of[w->server[chunk]]], chunk);
}

static void link_join(struct worker *w, struct link *l)
{
    struct net_join *j = sim_alloc(sizeof *j);
    *j = (struct net_join){.member = w->member,
                           .incarnation = w->incarnation,
                           .address = sim.node[w->node].name + 7,
                           .job = w->x ? *parent_job(w) : sim_job,
                           .chunks = sim_chunks,
                           .generation = w->heard,
                           .ps0 = w->heard_ps0};
    if (w->node - SIM_SERVERS >= sim_job.n_workers)
        j->job.n_workers = 0;
    l->state = LINK_JOINING;
    l->call = sim_call(w->node, l->node, CALL_JOIN, j, JOIN_MS * SIM_MS);
    l->call->cookie = l->node;
}

void exchange_timer(struct worker *w, int link, int64_t number)
{
    struct link *l = &w->link[link];
    if (number == l->timer && l->state == LINK_DOWN && l->in_job && !w->leaving)
        link_join(w, l);
}

/* The servers and the shard map of the generation that ps 0 tells of. */
static void install(struct worker *w, const struct net_join_reply *r)
{
    STORY("%s is in generation %llx: rank %d of %d, from step %lld", sim.node[w->node].name,
          (unsigned long long)r->generation, r->place.rank, r->place.n_members,
          (long long)r->place.first_step);
    forget_all(w);
    for (int i = 0; i < SIM_SERVERS; i++)
        w->link[i].in_job = i == 0;
    w->n_links = r->servers.n > 0 ? r->servers.n : 1;
    for (int i = 0; i < w->n_links; i++) {
        w->link_of[i] = i == 0 ? 0 : sim_server_at(r->servers.addr[i]);
        if (w->link_of[i] < 0)
            sim_fail("I5", "a server that nobody knows is in the plan");
        w->link[w->link_of[i]].in_job = 1;
        w->link[w->link_of[i]].idle = i > 0 && r->ps0;
    }
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        w->link[w->link_of[r->server[i]]].idle = 0;
    for (int i = 0; i < SIM_SERVERS; i++)
        if (i != 0)
            link_cancel(w, &w->link[i]);
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        w->server[i] = r->server[i];
    w->has_map = 1;
    w->has_first = w->generation == 0;
    w->generation = r->generation;
    w->ps0 = r->ps0;
    w->ending = 0;
    for (int i = 1; i < w->n_links; i++)
        link_hurry(w, &w->link[w->link_of[i]]);
}

static void exchange_request_first(struct worker *w, struct link *l, int init)
{
    if (w->x && init && !w->has_first)
        parent_renew(w);
    for (int i = 0; i < sim_chunks->n_chunks; i++) {
        struct worker_chunk *c = &w->chunk[i];
        if (w->server[i] != number_of(w, l->node))
            continue;
        c->kind = init ? PIECE_INIT : PIECE_PULL;
        c->step = 0;
        c->sent = 0;
        if (init && w->x)
            memcpy(c->value, parent_params(w, i),
                   (size_t)sim_chunks->chunks[i].n_elems * sizeof(float));
        else if (init)
            sim_first_value(i, c->value);
    }
}

static void open_stream(struct worker *w, struct link *l, const struct net_join_reply *r)
{
    l->call = NULL;
    l->stream = sim_stream_open(w->node, l->node);
    if (!l->stream) {
        plan_join(w, l, 0);
        return;
    }
    l->stream->cookie = l->node;
    l->head = (struct net_frame_head){r->generation, (uint32_t)w->place.rank, w->incarnation};
    l->joined = 1;
    l->lost = 0;
    l->state = LINK_STREAMING;
    if (!l->fetched)
        exchange_request_first(w, l, r->answer == JOIN_INIT);
    send_all(w, l);
    if (l == &w->link[w->link_of[0]] && w->soon == 1)
        exchange_leave_soon(w);
}

static void hear(struct worker *w, const struct net_join_reply *r)
{
    if (r->generation <= w->heard)
        return;
    w->heard = r->generation;
    w->heard_ps0 = r->ps0;
}

static void accept_join(struct worker *w, struct link *l, const struct net_join_reply *r)
{
    int first = l->node == w->link_of[0];
    enum { WAIT, NEXT, AHEAD, SAME } standing = WAIT;
    if (r->generation > w->generation && w->starting && first)
        standing = NEXT;
    else if (r->generation > w->generation)
        standing = r->generation > w->heard ? AHEAD : WAIT;
    else if (r->generation == w->generation && (!w->ending || under_way(w, l)))
        standing = SAME;
    hear(w, r);
    if (standing == AHEAD) {
        l->call = NULL;
        rebase(w);
    }
    if (standing == AHEAD || standing == WAIT) {
        plan_join(w, l, 1);
        return;
    }
    if (standing == NEXT)
        install(w, r);
    if (first) {
        w->place = r->place;
        w->member = r->place.member;
    }
    if (l->fetched && (r->answer == JOIN_INIT || r->step < 0)) {
        worker_fail(w, EXIT_RETRY, "a server has lost the parameters");
        return;
    }
    open_stream(w, l, r);
}

void exchange_reply(struct worker *w, struct sim_call *c)
{
    const struct net_join_reply *r = c->reply;
    if (c->kind == CALL_LEAVE) {
        const struct net_leave *leave = c->request;
        if (leave->soon)
            w->soon = c->st == ST_OK ? 2 : w->soon;
        else
            w->n_leaves--;
        return;
    }
    struct link *l = &w->link[c->cookie];
    if (l->call != c)
        return;
    if (c->st != ST_OK || r->answer == JOIN_RETRY) {
        if (c->st == ST_OK && strncmp(l->said, r->why, sizeof l->said - 1) != 0) {
            STORY("%s: ps %d says: %s", sim.node[w->node].name, l->node, r->why);
            snprintf(l->said, sizeof l->said, "%.127s", r->why);
        }
        if (c->st == ST_OK && r->generation > w->generation && r->generation > w->heard &&
            w->generation) {
            hear(w, r);
            l->call = NULL;
            rebase(w);
        }
        if (c->st == ST_OK && w->generation && r->generation == w->generation && r->ps0 == w->ps0)
            w->ending = 1; /* it has stopped there */
        plan_join(w, l, c->st == ST_OK);
    } else if (r->answer == JOIN_REFUSED) {
        worker_fail(w, EXIT_PERMANENT, r->why);
    } else {
        accept_join(w, l, r);
    }
}

static int is_answer(const struct worker_chunk *c, const struct sim_msg *m)
{
    int64_t step = (int64_t)m->piece.step;
    if (!c->sent)
        return 0;
    if (m->piece.kind == PIECE_VERSION)
        return (c->kind == PIECE_PULL && step + 1 >= c->step) || c->kind == PIECE_INIT;
    return c->kind == PIECE_PUSH && step > c->step;
}

void exchange_message(struct worker *w, struct net_stream *s, struct sim_msg *m)
{
    struct link *l = &w->link[s->cookie];
    struct worker_chunk *c = &w->chunk[m->piece.chunk];
    if (l->stream != s || m->piece.kind == PIECE_TAKEN || m->piece.kind == PIECE_NONE)
        return;
    l->backoff_ms = BACKOFF_MS;
    if (m->piece.kind == PIECE_REBASE) {
        if (c->sent && c->kind != PIECE_NONE) {
            c->kind = PIECE_NONE;
            c->over = w->ending = 1;
        }
        return;
    }
    if (m->piece.kind == PIECE_REFUSED || m->piece.kind == PIECE_WRONG_SHARD) {
        worker_fail(w, EXIT_PERMANENT, "a piece was refused");
        return;
    }
    if (w->server[m->piece.chunk] != number_of(w, l->node))
        sim_fail("I5", "%s answers for a chunk that is another's", sim.node[l->node].name);
    if (!is_answer(c, m))
        return;
    if (m->payload && m->piece.crc32c && m->piece.crc32c != m->crc_sent)
        sim_fail("I1", "an answer's checksum is not its payload's");
    memcpy(c->value, m->payload->data, m->bytes);
    c->version = (int64_t)m->piece.step;
    c->kind = PIECE_NONE;
    if (w->x)
        parent_got(w, (int)m->piece.chunk);
    w->samples = m->piece.samples ? m->piece.samples : w->samples;
    int all = 1;
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        all &= w->server[i] != number_of(w, l->node) || w->chunk[i].version >= 0;
    l->fetched |= all;
}

void exchange_closed(struct worker *w, struct net_stream *s)
{
    struct link *l = &w->link[s->cookie];
    if (l->stream != s)
        return;
    for (int i = 0; i < sim_chunks->n_chunks; i++)
        if (w->server[i] == number_of(w, l->node))
            w->chunk[i].sent = 0;
    plan_join(w, l, 0);
    if (w->soon == 2 && l->node == w->link_of[0])
        rebase(w);
}

void exchange_leave_soon(struct worker *w)
{
    struct net_leave *leave = sim_alloc(sizeof *leave);
    *leave = (struct net_leave){w->member, w->incarnation, 0, 1, w->generation, ""};
    w->soon = w->soon ? w->soon : 1;
    if (w->member >= 0)
        sim_call(w->node, w->link_of[0], CALL_LEAVE, leave, SOON_MS * SIM_MS);
}

void exchange_leave(struct worker *w, int done)
{
    w->leaving = 1;
    for (int i = 0; i < w->n_links; i++) {
        struct net_leave *leave = sim_alloc(sizeof *leave);
        *leave = (struct net_leave){w->member, w->incarnation, done, 0, w->generation, ""};
        snprintf(leave->error, sizeof leave->error, "%s", w->failed ? "it diverged" : "");
        sim_call(w->node, w->link_of[i], CALL_LEAVE, leave, LEAVE_MS * SIM_MS);
        w->n_leaves++;
    }
}
