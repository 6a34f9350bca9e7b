/* ps/service/service.c - see service.h: receives pieces and keeps streams.
 *
 * A `caller` belongs to a stream: it stores, from one piece to the next, the run and the member
 * that sends, so that a piece needs no lock that all streams share. The store identifies streams by
 * number (stream_table.h), and names the stream of each answer. */
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "ps/service/service_impl.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

/* State of one stream; only the thread that handles its frames, one by one, uses it. */
struct caller {
    uint64_t number;            /* number of the stream in the table of streams */
    struct run *run;            /* run that the caller sends to, a reference; NULL at first */
    struct net_frame_head head; /* last head that enter_run checked */
    bool is_local;              /* the member is counted in `turns` */
};

static struct net_piece piece_of(const struct store_answer *a)
{
    return (struct net_piece){.kind = a->kind,
                              .chunk = a->chunk,
                              .step = a->step,
                              .dtype = a->dtype,
                              .crc32c = a->crc32c,
                              .placed = a->placed > 0,
                              .samples = a->samples,
                              .rows = a->rows};
}

static void count_sent(struct service *s, const struct store_answer *a)
{
    size_t bytes = a->payload ? a->payload->bytes : a->placed;
    atomic_fetch_add_explicit(&s->sent_bytes, bytes, memory_order_relaxed);
}

void service_roster_changed(void *ctx)
{
    struct service *s = ctx;
    if (s->cfg.roster_changed)
        s->cfg.roster_changed(s->cfg.ctx);
}

/* Returns a reference to the run that the caller's piece belongs to, or NULL if there is no job
 * yet. If the sender is a member, the caller struct keeps the reference, and the member's stream is
 * recorded; otherwise on_piece releases the reference. The function locks nothing if the run and
 * the head are those of the last piece. The reference ensures that no other run has the run's
 * address. */
static struct run *enter_run(struct service *s, const struct net_frame_head *head,
                             struct net_stream *stream, struct caller *c)
{
    if (c->run && c->run == s->run && frame_same_head(head, &c->head))
        return c->run;
    struct run *old = c->run;
    uint64_t before = 0; /* earlier stream of the member */
    int trusted = 0, news = 0;
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    if (r) {
        run_ref(r);
        if (head->generation == r->generation && head->member < (uint32_t)r->plan->n_members) {
            struct member *m = &r->members[head->member];
            if (m->incarnation == head->incarnation) {
                before = m->stream != c->number ? m->stream : 0;
                trusted = 1;
                news = m->missing_ns != 0;
                m->stream = c->number;
                m->missing_ns = 0;
                m->spoke = 1;
            }
        }
    }
    c->run = trusted ? r : NULL; /* a client that is no member must not keep a run after its end */
    c->head = *head;
    pthread_mutex_unlock(&s->lock);
    net_stream_trust(stream, trusted);
    if (before)
        stream_table_doubt(s->streams, before);
    if (news)
        service_roster_changed(s);
    if (r && net_stream_is_summed(stream))
        store_sum(r->store);
    if (r) /* an answer to a PUSH and an answer to a PULL may be in flight for each chunk */
        net_stream_set_limit(stream, 2 * r->n_bytes);
    run_unref(old);
    return r;
}

/* Ends the stream whose piece the store has refused. */
static void refuse_piece(struct net_stream *stream, const struct net_frame_head *head,
                         const struct store_answer *a)
{
    if (a->replaced) {
        net_stream_close(stream, a->why);
        return;
    }
    LOG_FEW("a piece from member %" PRIu32 " at %s was refused, and its stream ends: %s",
            head->member, net_stream_peer(stream), a->why);
    net_stream_fail(stream, head, a->chunk, a->why);
}

/* Sends the store's answer to an earlier piece. If the stream has closed, the answer is lost and
 * the member asks again. */
void service_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                    const struct store_answer *a)
{
    struct service *s = ctx;
    struct net_piece piece = piece_of(a);
    if (a->kind != PIECE_REFUSED) {
        count_sent(s, a);
        stream_table_send(s->streams, from, head, &piece, a->payload);
        return;
    }
    struct net_stream *stream = stream_table_ref(s->streams, from);
    if (!stream)
        return;
    refuse_piece(stream, head, a);
    net_stream_unref(stream);
}

/* Ends the stream so that the member joins again: the member had joined an earlier process of this
 * server, and has not detected yet that this process replaced it. */
static void close_stream(struct net_stream *stream, const struct net_frame_head *head,
                         const char *why)
{
    LOG_FEW("the stream of member %" PRIu32 " at %s ended: %s", head->member,
            net_stream_peer(stream), why);
    net_stream_close(stream, why);
}

/* Returns the state of a stream, created at its first piece, or NULL if that fails. */
static struct caller *caller_of(struct service *s, struct net_stream *stream)
{
    struct caller *c = net_stream_user(stream);
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (c)
        c->number = stream_table_open(s->streams, stream);
    if (c && !c->number) {
        free(c);
        c = NULL;
    }
    net_stream_set_user(stream, c);
    return c;
}

static void count_local(struct service *s, struct caller *c, int is_local)
{
    if (c->is_local == is_local)
        return;
    c->is_local = is_local;
    core_turns_busy(&s->turns, is_local ? 1 : -1);
}

static void on_piece(void *ctx, struct net_stream *stream, const struct net_frame_head *head,
                     const struct net_piece *piece)
{
    struct service *s = ctx;
    struct store_answer now;
    struct caller *c = caller_of(s, stream);
    if (!c) {
        const struct store_answer refusal = {.chunk = piece->chunk,
                                             .why = "the server is out of memory or of streams"};
        refuse_piece(stream, head, &refusal);
        return;
    }
    atomic_fetch_add_explicit(&s->received_bytes, piece->payload.bytes, memory_order_relaxed);
    struct run *r = enter_run(s, head, stream, c);
    if (!r) {
        close_stream(stream, head, "this server has no job yet; call Join first");
        return;
    }
    int64_t now_ns = clock_now_ns();
    if (r == c->run)
        atomic_store_explicit(&r->heard_ns[head->member], now_ns, memory_order_relaxed);
    count_local(s, c, net_stream_is_local(stream));
    store_piece(r->store, head, piece, c->number, now_ns, &now);
    if (now.kind == PIECE_REFUSED) {
        refuse_piece(stream, head, &now);
    } else if (now.kind != PIECE_NONE) {
        struct net_piece answer = piece_of(&now);
        count_sent(s, &now);
        net_stream_send(stream, head, &answer, now.payload, 0,
                        now.payload ? now.payload->bytes : 0);
    }
    buf_unref(now.payload);
    if (r != c->run)
        run_unref(r);
}

static void on_stream_closed(void *ctx, struct net_stream *stream)
{
    struct service *s = ctx;
    struct caller *c = net_stream_user(stream);
    if (!c)
        return;
    count_local(s, c, 0);
    stream_table_close(s->streams, c->number);
    membership_forget_stream(s, c->number);
    net_stream_set_user(stream, NULL);
    run_unref(c->run);
    free(c);
}

enum status service_create(const struct service_config *cfg, struct service **out)
{
    struct service *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->cfg = *cfg;
    if (!cfg->address)
        s->cfg.address = cfg->ps_hosts->addr[cfg->self];
    if (stream_table_create(&s->streams) != ST_OK || shard_fetch_create(&s->gather) != ST_OK) {
        stream_table_destroy(s->streams);
        free(s);
        return ST_NOMEM;
    }
    core_turns_init(&s->turns);
    pthread_mutex_init(&s->change, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->trained_on_lock, NULL);
    clock_cond_init(&s->wake);
    int err = cfg->no_ticker ? 0 : pthread_create(&s->ticker, NULL, wait_lines_main, s);
    s->has_ticker = !cfg->no_ticker && !err;
    if (err) {
        LOG_E("the thread that watches members cannot be started: %s", threads_error(err));
        service_destroy(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

void service_destroy(struct service *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->has_ticker)
        pthread_join(s->ticker, NULL);
    generation_release_runs(s->run);
    free(s->late);
    free(s->removed);
    admission_drop_formats(s);
    stream_table_destroy(s->streams);
    shard_fetch_destroy(s->gather);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->trained_on_lock);
    free(s->trained_on);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->change);
    free(s);
}

static void on_control(void *ctx, struct net_server *server, const struct net_control *request,
                       uint64_t call)
{
    struct service *s = ctx;
    if (s->cfg.control)
        s->cfg.control(s->cfg.ctx, server, request, call);
    else
        net_server_control_reply(server, call, NULL);
}

static void on_control_closed(void *ctx, uint64_t call)
{
    struct service *s = ctx;
    if (s->cfg.control_closed)
        s->cfg.control_closed(s->cfg.ctx, call);
}

static void on_gate(void *ctx, const struct net_gate *gate, struct net_squares_reply *reply)
{
    struct service *s = ctx;
    if (s->cfg.gate)
        s->cfg.gate(s->cfg.ctx, gate, reply);
}

struct net_server_handler service_handler(struct service *s)
{
    return (struct net_server_handler){.ctx = s,
                                       .join = service_join,
                                       .leave = membership_leave,
                                       .control = on_control,
                                       .control_closed = on_control_closed,
                                       .fetch = generation_fetch,
                                       .squares = generation_squares,
                                       .gate = on_gate,
                                       .piece = on_piece,
                                       .stream_closed = on_stream_closed};
}

struct run *service_run(struct service *s, int *ended)
{
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run ? run_ref(s->run) : NULL;
    *ended = r && r->ended;
    pthread_mutex_unlock(&s->lock);
    return r;
}

void service_stats(struct service *s, struct service_stats *out)
{
    *out = (struct service_stats){.steps = -1};
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    if (r) {
        run_ref(r);
        int64_t end = r->ended ? r->end_ns : clock_now_ns();
        out->seconds = (double)(end - r->start_ns) * 1e-9;
        out->began = r->began;
    }
    pthread_mutex_unlock(&s->lock);
    out->received_bytes = atomic_load(&s->received_bytes);
    out->sent_bytes = atomic_load(&s->sent_bytes);
    pthread_mutex_lock(&s->lock);
    out->no_chunks = r && r->n_bytes == 0 && !r->ended;
    pthread_mutex_unlock(&s->lock);
    if (r && !out->no_chunks)
        out->steps = store_step(r->store);
    run_unref(r);
}
