/* net/exchange/link.c - one server from the exchange client's view: carries out the session's
 * actions (exchange_session.c) and reports their results to the session. A join and the stream
 * after it are successive calls, so a link's callbacks never overlap with those of an earlier
 * call. */
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/trace.h"
#include "net/exchange/exchange_requests.h"
#include "net/exchange/wire_auto.h"
#include "net/security/security.h"
#include "net/wire/job_steps.h"
#include "net/wire/message.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINK_JOIN_MS = 10000, LINK_GAP_MS = 2 * LINK_JOIN_MS, LINK_SOON_MS = 5000 };

static grpc_call *make_call(struct link *l, const char *path, int64_t deadline_ms)
{
    return net_channel_call(l->channel, grpc_runtime_pollers_queue(l->x->pollers), path,
                            deadline_ms);
}

/* Stores the link's call, so that link_cancel finds it; cancels the call at once if link_cancel was
 * called before. */
static void set_call(struct link *l, grpc_call *call)
{
    grpc_call_ref(call);
    pthread_mutex_lock(&l->x->lock);
    l->call = call;
    bool cancelled = l->cancelled;
    pthread_mutex_unlock(&l->x->lock);
    if (cancelled)
        grpc_call_cancel(call, NULL);
}

static void forget_call(struct link *l)
{
    pthread_mutex_lock(&l->x->lock);
    grpc_call *call = l->call;
    l->call = NULL;
    pthread_mutex_unlock(&l->x->lock);
    grpc_call_unref(call);
}

void link_cancel(struct link *l)
{
    pthread_mutex_lock(&l->x->lock);
    grpc_call *call = l->call;
    if (call)
        grpc_call_ref(call);
    pthread_mutex_unlock(&l->x->lock);
    if (!call)
        return;
    grpc_call_cancel(call, NULL);
    grpc_call_unref(call);
}

bool link_idle(const struct link *l)
{
    return !l->calling && l->n_users == 0;
}

bool link_is_summed(const struct link *l)
{
    return !l->arena && !security_has_tls();
}

/* Returns true if the link may send a frame now and the queued requests are worth one; eager: even
 * a small frame is. The caller holds the lock. */
static bool can_send(const struct link *l, bool eager)
{
    return l->up && bidi_may_send(&l->stream) &&
           (eager || l->queue.bytes >= SEND_QUEUE_EAGER_BYTES);
}

void link_pump(struct link *l, bool eager)
{
    struct send_queue_batch batch;
    struct send_queue_item items[SEND_QUEUE_FRAME_PIECES];
    pthread_mutex_lock(&l->x->lock);
    bool go = can_send(l, eager) && exchange_request_next(l, &batch, items) > 0;
    if (go)
        bidi_begin_send(&l->stream);
    pthread_mutex_unlock(&l->x->lock);
    if (!go)
        return;
    l->send_begin_ns = trace_begin();
    l->send_chunk = items[0].chunk;
    l->send_step = (int64_t)items[0].step;
    for (int i = 0; i < batch.n && link_is_summed(l); i++)
        if (!items[i].shared_offset)
            items[i].crc32c = digest_crc32c(0, items[i].data, items[i].bytes);
    bidi_send(&l->stream, send_queue_frame(&batch));
}

static void on_written(void *ctx)
{
    const struct link *l = ctx;
    l->x->waits_ns = clock_now_ns(); /* bytes were sent: a slow line does not count as waiting */
    trace_span(l->send_begin_ns, TRACE_SEND, "send frame", l->index, l->send_chunk, l->send_step);
}

static void on_sent(void *ctx)
{
    link_pump(ctx, 1);
}

static enum status on_piece(void *ctx, const struct net_frame_head *head,
                            const struct net_piece *piece)
{
    struct link *l = ctx;
    struct net_piece there;
    struct net_span span;
    int64_t begin = trace_begin();
    if (piece->shared_offset) {
        there = *piece;
        piece = &there;
        if (there.shared_offset <= SEGMENT_STAMP_BYTES ||
            (there.shared_offset - 1) % SEGMENT_STAMP_BYTES ||
            !payload_find(l->arena, &there, &span)) {
            LOG_E(
                "ps:%d (%s) sent a reference to %u bytes for chunk %u that are outside its segment",
                l->index, l->addr, there.shared_bytes, there.chunk);
            return ST_PROTOCOL;
        }
    }
    enum status st = exchange_request_answer(l, piece);
    trace_end(begin, TRACE_RECEIVE, "receive chunk", NULL, piece->chunk, (int64_t)piece->step);
    return st;
}

static enum status handle_message(struct link *l, grpc_byte_buffer *message)
{
    char why[256];
    size_t n = 0;
    struct net_frame_head head;
    enum status st = grpc_runtime_spans_of(message, &l->spans, &l->spans_room, &n);
    why[0] = 0;
    if (st == ST_OK)
        st = frame_decode(l->spans, n, &head, on_piece, l, why, sizeof why);
    grpc_byte_buffer_destroy(message);
    if (st == ST_PROTOCOL && why[0])
        LOG_E(
            "ps:%d (%s) sent a frame that does not decode: %s; do both programs run the same version?",
            l->index, l->addr, why);
    if (st == ST_PROTOCOL || st == ST_REFUSED || st == ST_NOMEM)
        exchange_session_fail(l->x, st);
    return st;
}

static enum bidi_next on_received(void *ctx, grpc_byte_buffer *message)
{
    struct link *l = ctx;
    if (!message)
        return BIDI_PAUSE;
    pthread_mutex_lock(&l->x->lock);
    bool cancelled = l->cancelled;
    pthread_mutex_unlock(&l->x->lock);
    /* The offer may belong to an earlier generation, in which the server had other chunks. */
    if (cancelled) {
        grpc_byte_buffer_destroy(message);
        return BIDI_CANCEL;
    }
    if (handle_message(l, message) != ST_OK)
        return BIDI_CANCEL;
    pthread_mutex_lock(&l->x->lock);
    l->received = 1;
    int stalled = l->stalled;
    pthread_mutex_unlock(&l->x->lock);
    if (stalled)
        link_pump(l, 1);
    return BIDI_READ;
}

static void note_answered(struct link *l)
{
    pthread_mutex_lock(&l->x->lock);
    l->failed_ns = l->silent_ns = 0;
    pthread_mutex_unlock(&l->x->lock);
}

/* Notes a failed join. The time in which this process was stopped does not count as silence. */
static void note_failed(struct link *l)
{
    const int64_t most = LINK_GAP_MS * INT64_C(1000000);
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&l->x->lock);
    int64_t gap = l->failed_ns ? now - l->failed_ns : 0;
    l->silent_ns += gap < most ? gap : most;
    l->failed_ns = now;
    pthread_mutex_unlock(&l->x->lock);
}

static void on_ended(void *ctx, const char *reason)
{
    struct link *l = ctx;
    struct session_event e = {.kind = EVENT_STREAM_DOWN, .received = l->received};
    forget_call(l);
    exchange_session_end_call(l, &e, reason, NULL);
}

static const struct bidi_handler stream_handler = {on_received, on_written, on_sent, on_ended};

/* Maps the server's memory. If the server names its memory in its answer, it has mapped this
 * program's memory. Two programs that have mapped each other's memory are on one host, so payloads
 * need no checksum. Equal addresses would not prove that they are on one host, because the
 * connection may pass through a tunnel. A server of a generation that ends does not write to
 * params, because the next generation uses the same memory. */
static void open_arena(struct link *l, const struct session_action *a)
{
    struct net_exchange *x = l->x;
    char why[SEGMENT_WHY_BYTES];
    int lends = x->segment && l->offered.bytes > 0;
    segment_unref(l->arena);
    l->arena = NULL;
    if (lends && segment_open(&l->offered, &l->arena, why) != ST_OK)
        LOG_D("the segment of ps:%d (%s) cannot be read: %s", l->index, l->addr, why);
    pthread_mutex_lock(&x->lock);
    l->lends = lends;
    l->places = l->arena && l->opened > 0 && l->opened == x->values_serial &&
                a->generation == x->session->generation &&
                (x->session->state == SESSION_JOINING || x->session->state == SESSION_RUNNING);
    pthread_mutex_unlock(&x->lock);
    if (l->arena && !l->told)
        LOG_I("ps:%d (%s) is on this host: payloads are sent through shared memory", l->index,
              l->addr);
    l->told |= l->arena != NULL;
}

void link_open(struct link *l, const struct session_action *a)
{
    struct net_exchange *x = l->x;
    struct session_event up = {.kind = EVENT_STREAM_UP};
    enum status st =
        a->first == FIRST_RENEW_AND_INIT ? x->cfg.first_values(x->cfg.ctx, x->cfg.params) : ST_OK;
    open_arena(l, a);
    if (st != ST_OK)
        exchange_session_fail(x, st);
    else if (a->first != FIRST_NOTHING)
        exchange_request_first(l, a->first != FIRST_PULL);
    grpc_call *call = make_call(l, "/weir.v1.Weir/Exchange", 0);
    set_call(l, call);
    bidi_open(&l->stream, call);
    pthread_mutex_lock(&x->lock);
    l->head = (struct net_frame_head){a->generation, (uint32_t)a->rank, x->cfg.join.incarnation};
    l->up = 1;
    l->received = 0;
    exchange_request_queue_all(l);
    pthread_mutex_unlock(&x->lock);
    exchange_session_step_link(l, &up);
    exchange_session_report_busy(l);
    link_pump(l, 1);
    bidi_release(&l->stream);
}

/* Copies the job's number of steps, and its optimizer of rounds, to this member's later joins, if
 * the member's steps follow the job's (job_steps_follow). */
static void adopt_job(struct net_exchange *x, const struct net_place *place)
{
    struct net_job *job = &x->cfg.join.job;
    pthread_mutex_lock(&x->lock);
    if (place->asked_steps > 0 && job_steps_follow(job, job))
        job_set_steps(job, place->asked_steps);
    if (place->has_outer && job_steps_follow(job, job))
        job->optim = job_follow_outer(job, &place->outer);
    pthread_mutex_unlock(&x->lock);
}

/* Notes whether the server has opened the values that the join named. */
static void note_opened(struct link *l, bool opened)
{
    pthread_mutex_lock(&l->x->lock);
    l->opened = opened ? l->named : 0;
    pthread_mutex_unlock(&l->x->lock);
}

/* Returns true if the join of this answer was made only for the last answers of a generation, and
 * the server has begun the next one already. The link joins again, to lend the memory of params. */
static bool is_late_for_last_answers(struct link *l, const struct net_join_reply *reply)
{
    struct net_exchange *x = l->x;
    pthread_mutex_lock(&x->lock);
    bool late = x->values && l->named == 0 && reply->generation > x->session->generation;
    pthread_mutex_unlock(&x->lock);
    return late;
}

/* Reports a server's answer to the session. */
static void report_answer(struct link *l, const struct net_join_reply *reply)
{
    struct session_event e = {.kind = EVENT_JOIN_ANSWER,
                              .answer = reply->answer,
                              .generation = reply->generation,
                              .ps0 = reply->ps0,
                              .step = reply->step,
                              .place = reply->place};
    struct server_set set = {.links = NULL};
    const char *reason = reply->why;
    int welcome = reply->answer == JOIN_WELCOME || reply->answer == JOIN_INIT;
    if (welcome && is_late_for_last_answers(l, reply)) {
        e.answer = JOIN_RETRY;
        welcome = 0;
    }
    if (welcome) {
        reason = "the servers are changing to another generation";
        l->offered = reply->segment;
        note_opened(l, reply->values);
        adopt_job(l->x, &reply->place);
    }
    enum status st = welcome ? wire_auto_adopt(l->x, &reply->place) : ST_OK;
    if (st == ST_OK && welcome && l->index == 0)
        st = server_set_make(l->x, reply, &e, &set);
    if (st != ST_OK) {
        set = (struct server_set){.links = NULL};
        e = (struct session_event){.kind = EVENT_JOIN_FAILED, .st = ST_NOMEM};
    }
    exchange_session_end_call(l, &e, reason, &set);
    server_set_free(&set);
}

static void handle_reply(struct link *l, grpc_byte_buffer *message)
{
    struct net_join_reply reply = {.server = NULL};
    char why[MESSAGE_WHY_BYTES] = "out of memory";
    uint8_t *data = NULL;
    size_t bytes = 0;
    enum status st = grpc_runtime_bytes_of(message, &data, &bytes);
    if (st == ST_OK)
        st = message_reply_unpack(data, bytes, &reply, why);
    free(data);
    if (st == ST_OK) {
        report_answer(l, &reply);
    } else {
        struct session_event e = {.kind = EVENT_JOIN_FAILED,
                                  .st = st == ST_NOMEM ? st : ST_PROTOCOL};
        LOG_E("join at ps:%d (%s) failed: %s", l->index, l->addr, why);
        exchange_session_end_call(l, &e, why, NULL);
    }
    hosts_free(&reply.servers);
    free(reply.server);
}

static void report_failed(struct link *l, grpc_status_code code, const char *text)
{
    struct session_event e = {.kind = EVENT_JOIN_FAILED, .st = ST_UNAVAILABLE};
    if (code == GRPC_STATUS_INVALID_ARGUMENT) {
        LOG_E("ps:%d (%s) cannot read this worker's 'Join' request: %s", l->index, l->addr, text);
        e.st = ST_REFUSED;
    } else if (code == GRPC_STATUS_PERMISSION_DENIED || code == GRPC_STATUS_UNAUTHENTICATED) {
        LOG_E("ps:%d (%s) refuses this worker: %s", l->index, l->addr, text);
        e.st = ST_REFUSED;
    }
    exchange_session_end_call(l, &e, text[0] ? text : "no answer", NULL);
}

static void note_near(struct link *l, bool is_near)
{
    pthread_mutex_lock(&l->x->lock);
    l->is_near = is_near;
    l->n_acked = 0;
    pthread_mutex_unlock(&l->x->lock);
}

static void on_join(struct grpc_runtime_op *op, bool ok)
{
    struct link *l = (struct link *)((char *)op - offsetof(struct link, join_op));
    grpc_byte_buffer *message = l->join.incoming;
    int answered = l->join.code == GRPC_STATUS_OK;
    char text[BIDI_REASON_BYTES];
    unary_batch_end(&l->join, text, sizeof text);
    if (answered)
        note_near(l, net_channel_answered(l->channel, l->call));
    grpc_call_unref(l->call); /* the reference of the operations */
    forget_call(l);
    if (answered)
        note_answered(l);
    else
        note_failed(l);
    if (answered && message)
        handle_reply(l, message);
    else
        report_failed(l, l->join.code, text);
    if (message)
        grpc_byte_buffer_destroy(message);
}

/* Returns true if the link joins again only to receive the last answers of a generation that ends;
 * false if a server has begun a newer one. The caller holds x->lock. */
static bool is_for_last_answers(const struct link *l)
{
    const struct session *s = l->x->session;
    return s->state == SESSION_ASKING && s->heard <= s->generation && !l->retired &&
           s->link[l->index].busy;
}

void link_join(struct link *l, const struct session_action *a)
{
    pthread_mutex_lock(&l->x->lock);
    struct net_join join = l->x->cfg.join; /* adopt_job writes to it on another link's thread */
    bool lends = !is_for_last_answers(l);  /* the servers of the next generation open params */
    l->named = lends ? l->x->values_serial : 0;
    pthread_mutex_unlock(&l->x->lock);
    grpc_op ops[UNARY_BATCH_OPS];
    uint8_t *data = NULL;
    size_t bytes = 0;
    join.generation = a->generation;
    join.ps0 = a->ps0;
    join.member = a->member;
    if (!lends)
        join.values.bytes = 0;
    enum status st = message_join_pack(&join, &data, &bytes);
    unary_batch_init(&l->join, data, bytes, ops);
    free(data);
    set_call(l, make_call(l, "/weir.v1.Weir/Join", LINK_JOIN_MS));
    if (st != ST_OK || !grpc_runtime_op_start(&l->join_op, l->call, ops, UNARY_BATCH_OPS))
        on_join(&l->join_op, 0);
}

/* A leave call that is active. */
struct leave_call {
    struct grpc_runtime_op op; /* must be the first field, because on_left casts */
    struct link *link;
    int soon;
    grpc_call *call;
    struct unary_batch batch;
};

static void end_leave(struct link *l, int soon, enum status st)
{
    struct net_exchange *x = l->x;
    struct session_event e = {.kind = EVENT_LEAVE_ANSWER, .soon = soon, .st = st};
    exchange_session_step_link(l, &e);
    pthread_mutex_lock(&x->lock);
    x->n_leaves--;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    exchange_session_unuse_link(l);
}

static enum status leave_status(grpc_status_code code)
{
    if (code == GRPC_STATUS_OK)
        return ST_OK;
    return code == GRPC_STATUS_DEADLINE_EXCEEDED ? ST_DEADLINE : ST_UNAVAILABLE;
}

static void on_left(struct grpc_runtime_op *op, bool ok)
{
    struct leave_call *c = (struct leave_call *)op;
    struct link *l = c->link;
    char text[BIDI_REASON_BYTES];
    enum status st = leave_status(c->batch.code);
    int soon = c->soon;
    unary_batch_end(&c->batch, text, sizeof text);
    if (st != ST_OK)
        LOG_W("ps:%d (%s) did not answer this worker's 'Leave' message: %s", l->index, l->addr,
              text);
    if (c->batch.incoming)
        grpc_byte_buffer_destroy(c->batch.incoming);
    grpc_call_unref(c->call);
    free(c);
    end_leave(l, soon, st);
}

void link_leave(struct link *l, const struct session_action *a)
{
    struct net_exchange *x = l->x;
    struct leave_call *c = calloc(1, sizeof *c);
    uint8_t *data = NULL;
    size_t bytes = 0;
    pthread_mutex_lock(&x->lock);
    l->n_users++; /* end_leave decrements it */
    struct net_leave leave = {
        x->session->member, x->cfg.join.incarnation, a->done, a->soon, x->session->generation, ""};
    if (!a->soon)
        memcpy(leave.error, x->leave_error, sizeof leave.error);
    int64_t deadline_ms = a->soon ? LINK_SOON_MS : x->leave_ms > 0 ? x->leave_ms : 1;
    pthread_mutex_unlock(&x->lock);
    if (!c || message_leave_pack(&leave, &data, &bytes) != ST_OK) {
        LOG_W("cannot send the 'Leave' message to ps:%d (%s): out of memory", l->index, l->addr);
        free(c);
        end_leave(l, a->soon, ST_NOMEM);
        return;
    }
    grpc_op ops[UNARY_BATCH_OPS];
    c->link = l;
    c->soon = a->soon;
    c->call = make_call(l, "/weir.v1.Weir/Leave", deadline_ms);
    unary_batch_init(&c->batch, data, bytes, ops);
    free(data);
    grpc_runtime_op_init(&c->op, on_left);
    if (!grpc_runtime_op_start(&c->op, c->call, ops, UNARY_BATCH_OPS))
        on_left(&c->op, 0);
}

enum status link_create(struct net_exchange *x, const char *addr, struct link **out)
{
    struct link *l = calloc(1, sizeof *l);
    if (!l)
        return ST_NOMEM;
    l->x = x;
    l->index = -1;
    l->addr = strdup(addr);
    l->queue.bits = calloc((size_t)x->n_chunks / 64 + 1, sizeof *l->queue.bits);
    if (!l->addr || !l->queue.bits ||
        net_channel_create(l->addr, GRPC_RUNTIME_MAX_MESSAGE_BYTES, &l->channel) != ST_OK) {
        link_destroy(l);
        return ST_NOMEM;
    }
    grpc_runtime_op_init(&l->join_op, on_join);
    bidi_init(&l->stream, &stream_handler, l, &x->lock);
    *out = l;
    return ST_OK;
}

void link_close(struct link *l)
{
    net_channel_destroy(l->channel);
    l->channel = NULL;
}

void link_destroy(struct link *l)
{
    link_close(l);
    segment_unref(l->arena);
    free(l->spans);
    free(l->change);
    free(l->queue.bits);
    free(l->addr);
    free(l);
}
