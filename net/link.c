/* net/link.c - one server as the exchange client sees it: join, stream, and again when it breaks.
 *
 * HELD -> DOWN -> JOINING -> STREAMING -> DOWN ... The keeper thread starts joins when their time
 * has come; everything else happens in the poller's callbacks. A new join starts only after the
 * last operation of the old stream has ended, so a link's callbacks never overlap with those of an
 * earlier life. */
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/trace.h"
#include "net/message.h"
#include "net/request.h"
#include "net/socket.h"
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINK_JOIN_MS = 10000,
    LINK_QUICK_MS = 5, /* servers change their generation: the pauses between joins begin so, */
    LINK_QUICK_MAX_MS = 20,
    LINK_QUICK_FOR_MS = 3000, /* and are short for so long */
    LINK_BACKOFF_MS = 100,
    LINK_MAX_BACKOFF_MS = 2000,
    LINK_FIRST_LINE_MS = 1000,
    LINK_SOON_MS = 5000,
};

static grpc_call *make_call(struct link *l, const char *path, int64_t deadline_ms)
{
    gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_REALTIME);
    if (deadline_ms > 0)
        deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
    return grpc_channel_create_call(l->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                    net_pollers_queue(l->x->pollers),
                                    grpc_slice_from_static_string(path), NULL, deadline, NULL);
}

/* Makes the link's call known, so that link_cancel finds it; 0 if nothing new may start. */
static int set_call(struct link *l, grpc_call *call)
{
    pthread_mutex_lock(&l->x->lock);
    int go = exchange_goes_on(l->x) && !l->retired;
    if (go)
        l->call = call;
    else
        l->state = LINK_HELD;
    pthread_cond_broadcast(&l->x->changed);
    pthread_mutex_unlock(&l->x->lock);
    if (!go)
        grpc_call_unref(call);
    return go;
}

static void forget_call(struct link *l)
{
    pthread_mutex_lock(&l->x->lock);
    grpc_call *call = l->call;
    l->call = NULL;
    pthread_mutex_unlock(&l->x->lock);
    grpc_call_unref(call);
    if (l->incoming)
        grpc_byte_buffer_destroy(l->incoming);
    l->incoming = NULL;
    grpc_metadata_array_destroy(&l->initial);
    grpc_metadata_array_destroy(&l->trailing);
    grpc_slice_unref(l->details);
}

static void set_received(struct link *l)
{
    grpc_metadata_array_init(&l->initial);
    grpc_metadata_array_init(&l->trailing);
    l->details = grpc_empty_slice();
    l->code = GRPC_STATUS_OK;
    l->incoming = NULL;
}

void link_hurry(struct link *l)
{
    const struct net_exchange *x = l->x;
    int64_t line_ms = x->cfg.wait_line_ms;
    if (x->generation == 0 && line_ms > LINK_FIRST_LINE_MS)
        line_ms = LINK_FIRST_LINE_MS;
    l->backoff_ms = 0;
    l->retry_ns = 0;
    l->down_ns = clock_now_ns();
    l->line_ns = l->down_ns + line_ms * 1000000;
    if (l->state == LINK_HELD)
        l->state = LINK_DOWN;
}

/* When the next join is due; `again`: the server is there, and says to ask again. */
static void plan_retry(struct link *l, int again, int64_t now)
{
    int quick = again && now - l->down_ns < LINK_QUICK_FOR_MS * (int64_t)1000000;
    int64_t most = quick ? LINK_QUICK_MAX_MS : LINK_MAX_BACKOFF_MS;
    l->retry_ns = now + (l->backoff_ms < most ? l->backoff_ms : most) * 1000000;
    l->backoff_ms = l->backoff_ms > 0 ? l->backoff_ms * 2 : LINK_QUICK_MS;
    if (l->backoff_ms > most)
        l->backoff_ms = most;
}

/* Another server cannot be reached, maybe for good: ps 0 is asked whether training goes on without
 * it, where nothing is under way that would bring its word. NULL: it need not be; under the lock.
 */
static struct link *doubted(struct net_exchange *x)
{
    struct link *l = x->links[0];
    if (l->state != LINK_STREAMING || request_is_under_way(l))
        return NULL;
    l->joined = 0; /* it is let go, to join anew */
    return l;
}

/* What a leaver stays for is the others' step, and ps 0 says when; if that is lost it goes. */
static void let_leaver_go(struct net_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    int out = x->soon == 2 && x->links[0]->state != LINK_STREAMING && exchange_goes_on(x);
    pthread_mutex_unlock(&x->lock);
    if (out)
        exchange_rebase(x);
}

/* The link's last life is over: plan the next one, and say what is missing when it is time to. A
 * stream that ends with its generation was not lost. */
static void plan_join(struct link *l, const char *reason, int asked_to)
{
    struct net_exchange *x = l->x;
    int64_t now = clock_now_ns(), down_ms = 0;
    int wait_line = 0, lost_line = 0;
    pthread_mutex_lock(&x->lock);
    int again = exchange_goes_on(x) && !l->retired;
    l->state = again ? LINK_DOWN : LINK_HELD;
    if (again && l->lost == 0 && l->joined && !x->ending) {
        l->lost = lost_line = 1;
        l->down_ns = now;
        l->line_ns = now + x->cfg.wait_line_ms * 1000000;
        x->stats.reconnects++;
    } else if (again && now >= l->line_ns) {
        wait_line = 1;
        l->line_ns = now + x->cfg.wait_line_ms * 1000000;
    }
    down_ms = (now - l->down_ns) / 1000000;
    plan_retry(l, asked_to, now);
    int index = l->index;
    struct link *first = wait_line && !asked_to && index > 0 ? doubted(x) : NULL;
    pthread_cond_signal(&x->work);
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    if (lost_line)
        LOG_W("connection to ps:%d (%s) lost: %s; trying again", index, l->addr, reason);
    if (wait_line)
        LOG_W("waiting for ps:%d (%s) since %lld s: %s", index, l->addr,
              (long long)(down_ms / 1000), reason);
    if (first)
        link_cancel(first);
    let_leaver_go(x);
}

static void op_finished(struct link *l)
{
    pthread_mutex_lock(&l->x->lock);
    int last = --l->n_ops == 0;
    int let_go = !l->joined; /* by this exchange, for a join that is due at once */
    if (last) {
        l->state = LINK_JOINING; /* nothing is queued any more */
        request_queue_clear(l);
        if (let_go)
            l->backoff_ms = 0;
    }
    pthread_mutex_unlock(&l->x->lock);
    if (!last)
        return;
    char text[LINK_REASON_BYTES];
    net_slice_text(l->details, text, sizeof text);
    int code = (int)l->code;
    forget_call(l);
    if (!text[0])
        snprintf(text, sizeof text, "the server ended the stream (status %d)", code);
    plan_join(l, text, let_go);
}

static void start_op(struct link *l, struct net_op *op, const grpc_op *ops, size_t n)
{
    if (!net_op_start(op, l->call, ops, n))
        op->done(op, 0);
}

static void on_meta(struct net_op *op, int ok)
{
    op_finished((struct link *)((char *)op - offsetof(struct link, meta_op)));
}

static void on_status(struct net_op *op, int ok)
{
    struct link *l = (struct link *)((char *)op - offsetof(struct link, status_op));
    pthread_mutex_lock(&l->x->lock);
    l->broken = 1;
    pthread_mutex_unlock(&l->x->lock);
    op_finished(l);
}

static void on_sent(struct net_op *op, int ok)
{
    struct link *l = (struct link *)((char *)op - offsetof(struct link, send_op));
    trace_span(l->send_begin_ns, TRACE_SEND, "send frame", l->index, l->send_chunk, l->send_step);
    grpc_byte_buffer_destroy(l->outgoing);
    pthread_mutex_lock(&l->x->lock);
    l->sending = 0;
    if (!ok)
        l->broken = 1;
    pthread_mutex_unlock(&l->x->lock);
    link_pump(l, 1);
    op_finished(l);
}

void link_pump(struct link *l, int eager)
{
    struct outq_batch batch;
    struct net_out items[OUTQ_FRAME_PIECES];
    pthread_mutex_lock(&l->x->lock);
    int go = l->state == LINK_STREAMING && !l->sending && !l->broken &&
             (eager || l->queue.bytes >= OUTQ_EAGER_BYTES) && request_take(l, &batch, items) > 0;
    if (go) {
        l->sending = 1;
        l->n_ops++;
    }
    pthread_mutex_unlock(&l->x->lock);
    if (!go)
        return;
    l->send_begin_ns = trace_begin();
    l->send_chunk = items[0].chunk;
    l->send_step = (int64_t)items[0].step;
    for (int i = 0; i < batch.n && !l->local; i++)
        if (!items[i].shared_offset)
            items[i].crc32c = digest_crc32c(0, items[i].data, items[i].bytes);
    l->outgoing = outq_frame(&batch);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = l->outgoing;
    start_op(l, &l->send_op, &op, 1);
}

static void start_recv(struct link *l)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &l->incoming;
    l->incoming = NULL;
    start_op(l, &l->recv_op, &op, 1);
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
        if (there.shared_offset <= SHARED_STAMP_BYTES ||
            (there.shared_offset - 1) % SHARED_STAMP_BYTES ||
            !payload_find(l->arena, &there, &span)) {
            LOG_E("ps:%d (%s) names %u bytes for chunk %u that do not lie in its memory", l->index,
                  l->addr, there.shared_bytes, there.chunk);
            return ST_PROTOCOL;
        }
    }
    enum status st = request_answer(l, piece);
    trace_end(begin, TRACE_RECEIVE, "receive chunk", NULL, piece->chunk, (int64_t)piece->step);
    return st;
}

static enum status handle_message(struct link *l)
{
    char why[256];
    size_t n = 0;
    struct net_frame_head head;
    enum status st = net_spans_of(l->incoming, &l->spans, &l->spans_room, &n);
    why[0] = 0;
    if (st == ST_OK)
        st = frame_decode(l->spans, n, &head, on_piece, l, why, sizeof why);
    grpc_byte_buffer_destroy(l->incoming);
    l->incoming = NULL;
    if (st == ST_PROTOCOL && why[0])
        LOG_E("ps:%d (%s) sent a frame that does not decode: %s; are both the same version?",
              l->index, l->addr, why);
    if (st == ST_PROTOCOL || st == ST_REFUSED || st == ST_NOMEM)
        exchange_fail(l->x, st);
    return st;
}

static void on_recv(struct net_op *op, int ok)
{
    struct link *l = (struct link *)((char *)op - offsetof(struct link, recv_op));
    if (!ok || !l->incoming) {
        op_finished(l);
        return;
    }
    if (handle_message(l) == ST_OK) {
        pthread_mutex_lock(&l->x->lock);
        l->backoff_ms = LINK_BACKOFF_MS;
        int stalled = l->stalled;
        pthread_mutex_unlock(&l->x->lock);
        if (stalled)
            link_pump(l, 1);
        start_recv(l);
        return;
    }
    grpc_call_cancel(l->call, NULL);
    op_finished(l);
}

static void look_at_socket(struct link *l)
{
    char *peer = grpc_call_get_peer(l->call);
    l->local = net_socket_tune(peer);
    l->is_near = l->local || net_socket_is_loopback(peer);
    gpr_free(peer);
}

static void open_stream(struct link *l)
{
    struct net_exchange *x = l->x;
    if (!set_call(l, make_call(l, "/weir.v1.Weir/Exchange", 0)))
        return;
    set_received(l);
    grpc_op meta[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                       {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    meta[1].data.recv_initial_metadata.recv_initial_metadata = &l->initial;
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &l->trailing;
    status.data.recv_status_on_client.status = &l->code;
    status.data.recv_status_on_client.status_details = &l->details;
    pthread_mutex_lock(&x->lock);
    l->n_ops = 4; /* three batches, and this function */
    l->sending = l->broken = 0;
    int back = l->lost;
    l->lost = 0;
    pthread_mutex_unlock(&x->lock);
    start_op(l, &l->meta_op, meta, 2);
    start_op(l, &l->status_op, &status, 1);
    start_recv(l);
    pthread_mutex_lock(&x->lock);
    l->joined = 1;
    l->state = LINK_STREAMING; /* from here on leave_soon itself asks */
    int soon = l->index == 0 && x->soon == 1;
    request_queue_all(l);
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    if (back)
        LOG_I("connected to ps:%d (%s) again", l->index, l->addr);
    if (soon)
        link_leave_soon(l);
    link_pump(l, 1);
    op_finished(l);
}

/* A server that names its memory has opened ours. */
static void open_arena(struct link *l, const struct net_shared_name *name)
{
    struct net_exchange *x = l->x;
    char why[SHARED_WHY_BYTES];
    int lends = x->segment && l->is_near && name->bytes > 0;
    net_shared_unref(l->arena);
    l->arena = NULL;
    if (lends && net_shared_open(name, &l->arena, why) != ST_OK)
        LOG_D("ps:%d (%s): its memory cannot be read here: %s", l->index, l->addr, why);
    pthread_mutex_lock(&x->lock);
    l->lends = lends;
    pthread_mutex_unlock(&x->lock);
    if (l->arena && !l->told)
        LOG_I("ps:%d (%s) is on this host: payloads through shared memory", l->index, l->addr);
    l->told |= l->arena != NULL;
}

/* What the generation that a join's reply names means for the link. */
enum standing {
    STANDING_IN_STEP, /* it is the one that this exchange is in */
    STANDING_NEXT,    /* it is the next one, and a start waits for it */
    STANDING_WAIT,    /* the server, or this worker, is not there yet */
    STANDING_AHEAD,   /* first news of a later one: the present one is over */
};

static enum standing standing_of(struct link *l, const struct net_join_reply *reply)
{
    struct net_exchange *x = l->x;
    enum standing standing = STANDING_WAIT;
    pthread_mutex_lock(&x->lock);
    if (!exchange_goes_on(x) || l->retired || reply->generation < x->generation)
        standing = STANDING_WAIT;
    else if (reply->generation > x->generation && x->starting && l->index == 0)
        standing = STANDING_NEXT;
    else if (reply->generation > x->generation)
        standing = reply->generation > x->heard ? STANDING_AHEAD : STANDING_WAIT;
    else if (!x->ending || request_is_under_way(l))
        standing = STANDING_IN_STEP;
    if (reply->generation > x->heard)
        x->heard = reply->generation;
    pthread_mutex_unlock(&x->lock);
    return standing;
}

/* ps 0 says where this member stands: a member that knows its index is that one, and one that does
 * not is told. Under the lock. */
static int place_fits(const struct net_exchange *x, const struct net_place *place)
{
    if (place->n_members == 0)
        return x->member >= 0;
    return x->member < 0 || place->member == x->member;
}

/* The exchange is in the server's generation, which sends its answer for the first time, or again.
 */
static enum status take_reply(struct link *l, const struct net_join_reply *reply)
{
    struct net_exchange *x = l->x;
    pthread_mutex_lock(&x->lock);
    int fits = l->index > 0 || place_fits(x, &reply->place);
    if (l->index == 0 && fits) {
        x->place = reply->place;
        if (reply->place.n_members > 0)
            x->member = reply->place.member;
    }
    int rank = x->place.n_members > 0 ? x->place.rank : x->cfg.join.member;
    l->head = (struct net_frame_head){reply->generation, (uint32_t)rank, x->cfg.join.incarnation};
    int fetched = l->fetched, init = reply->answer == JOIN_INIT;
    int lost = (fetched && (init || reply->step < 0)) ||
               (init && !x->has_first_values && !x->cfg.first_values);
    int renew = !lost && init && !fetched && !x->has_first_values;
    x->has_first_values |= renew;
    pthread_mutex_unlock(&x->lock);
    if (!fits) {
        LOG_E(
            "ps:0 (%s) gave this worker no index, or another worker's; are both the same version?",
            l->addr);
        return ST_PROTOCOL;
    }
    if (lost) {
        LOG_E("ps:%d (%s) was started anew and has lost the parameters; start all programs again",
              l->index, l->addr);
        return ST_UNAVAILABLE;
    }
    if (renew)
        x->cfg.first_values(x->cfg.ctx, x->cfg.params);
    open_arena(l, &reply->segment);
    return fetched ? ST_OK : request_first(l, init);
}

static void accept_join(struct link *l, struct net_join_reply *reply)
{
    struct net_exchange *x = l->x;
    enum status st = ST_OK;
    enum standing standing = standing_of(l, reply);
    if (standing == STANDING_AHEAD)
        exchange_rebase(x);
    if (standing == STANDING_AHEAD || standing == STANDING_WAIT) {
        plan_join(l, "the servers are changing to another generation", 1);
        return;
    }
    if (standing == STANDING_NEXT)
        st = exchange_begin(x, reply);
    else if (l->index == 0)
        st = exchange_check_map(x, reply);
    if (st == ST_OK)
        st = take_reply(l, reply);
    if (st == ST_OK) {
        open_stream(l);
        return;
    }
    if (st != ST_CANCELLED)
        exchange_fail(x, st);
    plan_join(l, "", 0);
}

static void handle_reply(struct link *l, grpc_byte_buffer *message)
{
    struct net_join_reply reply = {.server = NULL};
    char why[MESSAGE_WHY_BYTES] = "out of memory";
    uint8_t *data = NULL;
    size_t bytes = 0;
    enum status st = net_bytes_of(message, &data, &bytes);
    if (st == ST_OK)
        st = message_unpack_reply(data, bytes, &reply, why);
    free(data);
    if (st != ST_OK) {
        LOG_E("join at ps:%d (%s) failed: %s", l->index, l->addr, why);
        exchange_fail(l->x, st == ST_NOMEM ? st : ST_PROTOCOL);
        plan_join(l, why, 0);
    } else if (reply.answer == JOIN_REFUSED) {
        LOG_E("ps:%d (%s) refused this worker: %s", l->index, l->addr, reply.why);
        exchange_fail(l->x, ST_REFUSED);
        plan_join(l, reply.why, 0);
    } else if (reply.answer == JOIN_RETRY) {
        plan_join(l, reply.why, 1);
    } else {
        accept_join(l, &reply);
    }
    hosts_free(&reply.servers);
    free(reply.server);
}

static void on_join(struct net_op *op, int ok)
{
    struct link *l = (struct link *)((char *)op - offsetof(struct link, join_op));
    grpc_byte_buffer *message = l->incoming;
    grpc_status_code code = l->code;
    char text[LINK_REASON_BYTES];
    l->incoming = NULL;
    net_slice_text(l->details, text, sizeof text);
    if (l->outgoing)
        grpc_byte_buffer_destroy(l->outgoing);
    if (code == GRPC_STATUS_OK)
        look_at_socket(l);
    forget_call(l);
    if (code == GRPC_STATUS_OK && message) {
        handle_reply(l, message);
    } else if (code == GRPC_STATUS_INVALID_ARGUMENT) {
        LOG_E("ps:%d (%s) cannot read this worker's join: %s", l->index, l->addr, text);
        exchange_fail(l->x, ST_REFUSED);
        plan_join(l, text, 0);
    } else {
        plan_join(l, text[0] ? text : "no answer", 0);
    }
    if (message)
        grpc_byte_buffer_destroy(message);
}

static size_t unary_ops(grpc_op ops[6], grpc_byte_buffer *out, grpc_byte_buffer **in)
{
    memset(ops, 0, 6 * sizeof *ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = out;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = in;
    ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    return 6;
}

static grpc_byte_buffer *copy_message(const uint8_t *data, size_t bytes)
{
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)data, bytes);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return message;
}

static grpc_byte_buffer *join_message(struct net_exchange *x)
{
    struct net_join join = x->cfg.join;
    uint8_t *data = NULL;
    size_t bytes = 0;
    pthread_mutex_lock(&x->lock);
    join.generation = x->heard;
    join.member = x->member;
    pthread_mutex_unlock(&x->lock);
    if (message_pack_join(&join, &data, &bytes) != ST_OK)
        return NULL;
    grpc_byte_buffer *message = copy_message(data, bytes);
    free(data);
    return message;
}

void link_join(struct link *l)
{
    if (!set_call(l, make_call(l, "/weir.v1.Weir/Join", LINK_JOIN_MS)))
        return;
    set_received(l);
    l->outgoing = join_message(l->x);
    grpc_op ops[6];
    size_t n = unary_ops(ops, l->outgoing, &l->incoming);
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &l->initial;
    ops[5].data.recv_status_on_client.trailing_metadata = &l->trailing;
    ops[5].data.recv_status_on_client.status = &l->code;
    ops[5].data.recv_status_on_client.status_details = &l->details;
    if (!l->outgoing || !net_op_start(&l->join_op, l->call, ops, n)) {
        l->code = GRPC_STATUS_INTERNAL;
        on_join(&l->join_op, 0);
    }
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

int link_idle(const struct link *l)
{
    return !l->call && (l->state == LINK_HELD || l->state == LINK_DOWN);
}

/* Goodbye: a call of its own, beside the stream. */
struct leave_call {
    struct net_op op;
    struct link *link;
    int soon;
    grpc_call *call;
    grpc_byte_buffer *incoming, *outgoing;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details;
};

static void on_left(struct net_op *op, int ok)
{
    struct leave_call *c = (struct leave_call *)op;
    struct net_exchange *x = c->link->x;
    char text[LINK_REASON_BYTES];
    net_slice_text(c->details, text, sizeof text);
    if (c->code != GRPC_STATUS_OK)
        LOG_W("goodbye to ps:%d (%s) was not answered: %s", c->link->index, c->link->addr, text);
    grpc_byte_buffer_destroy(c->outgoing);
    if (c->incoming)
        grpc_byte_buffer_destroy(c->incoming);
    grpc_metadata_array_destroy(&c->initial);
    grpc_metadata_array_destroy(&c->trailing);
    grpc_slice_unref(c->details);
    grpc_call_unref(c->call);
    pthread_mutex_lock(&x->lock);
    if (c->soon && c->code == GRPC_STATUS_OK)
        x->soon = 2;
    if (!c->soon && c->code != GRPC_STATUS_OK)
        x->leave_st = c->code == GRPC_STATUS_DEADLINE_EXCEEDED ? ST_DEADLINE : ST_UNAVAILABLE;
    pthread_mutex_unlock(&x->lock);
    let_leaver_go(x);
    pthread_mutex_lock(&x->lock);
    x->n_leaves--;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    free(c);
}

void link_leave(struct link *l, const struct net_leave *leave, int64_t deadline_ms)
{
    struct leave_call *c = calloc(1, sizeof *c);
    uint8_t *data = NULL;
    size_t bytes = 0;
    if (!c || message_pack_leave(leave, &data, &bytes) != ST_OK) {
        LOG_W("no goodbye to ps:%d (%s): out of memory", l->index, l->addr);
        free(c);
        return;
    }
    c->link = l;
    c->soon = leave->soon;
    grpc_metadata_array_init(&c->initial);
    grpc_metadata_array_init(&c->trailing);
    c->details = grpc_empty_slice();
    c->call = make_call(l, "/weir.v1.Weir/Leave", deadline_ms > 0 ? deadline_ms : 1);
    c->outgoing = copy_message(data, bytes);
    free(data);
    grpc_op ops[6];
    size_t n = unary_ops(ops, c->outgoing, &c->incoming);
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &c->initial;
    ops[5].data.recv_status_on_client.trailing_metadata = &c->trailing;
    ops[5].data.recv_status_on_client.status = &c->code;
    ops[5].data.recv_status_on_client.status_details = &c->details;
    net_op_init(&c->op, on_left);
    pthread_mutex_lock(&l->x->lock);
    l->x->n_leaves++;
    pthread_mutex_unlock(&l->x->lock);
    if (!net_op_start(&c->op, c->call, ops, n)) {
        c->code = GRPC_STATUS_INTERNAL;
        on_left(&c->op, 0);
    }
}

void link_leave_soon(struct link *l)
{
    pthread_mutex_lock(&l->x->lock);
    struct net_leave leave = {l->x->member, l->x->cfg.join.incarnation, 0, 1};
    pthread_mutex_unlock(&l->x->lock);
    link_leave(l, &leave, LINK_SOON_MS);
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
    l->channel =
        l->addr && l->queue.bits ? net_channel_create(l->addr, RT_MAX_MESSAGE_BYTES) : NULL;
    if (!l->channel) {
        link_destroy(l);
        return ST_NOMEM;
    }
    net_op_init(&l->join_op, on_join);
    net_op_init(&l->meta_op, on_meta);
    net_op_init(&l->recv_op, on_recv);
    net_op_init(&l->send_op, on_sent);
    net_op_init(&l->status_op, on_status);
    *out = l;
    return ST_OK;
}

void link_close(struct link *l)
{
    if (l->channel)
        grpc_channel_destroy(l->channel);
    l->channel = NULL;
}

void link_destroy(struct link *l)
{
    link_close(l);
    net_shared_unref(l->arena);
    free(l->spans);
    free(l->queue.bits);
    free(l->addr);
    free(l);
}
