/* tests/sim/client.c - see client.h. This file defines struct grpc_call. Its operations are those
 * that unary_batch.c and bidi.c start: a unary call is one batch of six; a stream starts with its
 * metadata, then has one receive, one send and one wait for its status in flight.
 *
 * The linker replaces the functions of gRPC and of net/rpc (--wrap). The byte buffer of a frame to
 * send keeps references to its payloads until it is destroyed, as in gRPC; their bytes must not
 * have changed by then. */
#include "tests/sim/client.h"
#include "base/digest.h"
#include "net/exchange/exchange_requests.h"
#include "net/exchange/rows.h"
#include "net/wire/message.h"
#include "tests/sim/job.h"
#include "tests/sim/region.h"
#include <stdlib.h>
#include <string.h>

enum { FRAME_MESSAGES = SIM_PIECES };

struct net_channel {
    int to;
};

/* An operation that has ended: an event for it was posted. */
struct completion {
    struct completion *next;
    struct grpc_runtime_op *op;
    bool ok, is_done;
};

struct grpc_call {
    struct grpc_call *next; /* next call of the node */
    int node, to;
    bool is_over; /* the call has its status */
    enum sim_call_kind kind;
    int64_t deadline_ms;
    struct sim_call *call;     /* unary call; NULL: not started */
    struct net_stream *stream; /* stream of the call; NULL: no stream is open */
    /* pending operation: the unary call, or the wait for the stream's status */
    struct grpc_runtime_op *op;
    struct grpc_runtime_op *receive; /* pending receive operation; NULL: none */
    grpc_byte_buffer **incoming;     /* results of these two operations */
    grpc_status_code *code;
};

/* A message. Production code has only its address, which it treats as the address of a byte
 * buffer. */
struct message {
    const void *request;                /* unary request to send */
    const struct net_join_reply *reply; /* unary reply that was received */
    struct sim_msg *piece;              /* piece received from a stream */
    int n;                              /* number of pieces to send on a stream */
    struct sim_msg *pieces[FRAME_MESSAGES];
    struct {
        void (*release)(void *owner);
        void *owner;
        const void *data;
        size_t bytes;
        uint32_t crc;
    } borrowed[FRAME_MESSAGES];
};

/* Returns an empty message without memory for pieces to send. */
static struct message *make_message(void)
{
    return sim_alloc(offsetof(struct message, pieces));
}

static struct {
    struct grpc_call *calls;
    struct completion *first, **end; /* completions whose events are posted */
    uint32_t life;                   /* life of the node to which these completions belong */
    bool is_dying;
    struct {
        uint64_t identity, position;
    } contribution[SIM_PIECES];
} nodes[SIM_NODES];
static struct sim_msg *received; /* piece that frame_decode() decodes next */

void clients_reset(void)
{
    memset(nodes, 0, sizeof nodes);
}

static void renew(int node)
{
    if (nodes[node].life == sim.node[node].life)
        return;
    memset(&nodes[node], 0, sizeof nodes[node]);
    nodes[node].life = sim.node[node].life;
    nodes[node].end = &nodes[node].first;
}

static void complete(int node, struct grpc_runtime_op *op, bool ok)
{
    struct completion *c = sim_alloc(sizeof *c);
    *c = (struct completion){.op = op, .ok = ok};
    if (nodes[node].is_dying) {
        op->done(op, ok);
        return;
    }
    *nodes[node].end = c;
    nodes[node].end = &c->next;
    sim_post(sim_below(&sim.node[node].random, 100) * 1000, EV_OPERATION, node)->p = c;
}

static void run_completion(struct completion *c)
{
    if (c->is_done)
        return;
    c->is_done = true;
    c->op->done(c->op, c->ok);
}

void client_operation(void *completion)
{
    struct completion *c = completion;
    int node = sim.running;
    run_completion(c);
    while (nodes[node].first && nodes[node].first->is_done)
        nodes[node].first = nodes[node].first->next;
    if (!nodes[node].first)
        nodes[node].end = &nodes[node].first;
}

/* Ends the stream: its pending operations complete. */
static void end_stream(struct grpc_call *c)
{
    struct grpc_runtime_op *receive = c->receive, *op = c->op;
    if (c->is_over)
        return;
    c->is_over = true;
    c->receive = c->op = NULL;
    if (receive)
        complete(c->node, receive, false);
    if (c->code)
        *c->code = GRPC_STATUS_UNAVAILABLE;
    if (op)
        complete(c->node, op, true);
}

static void cancel_call(struct grpc_call *c)
{
    if (c->kind == CALL_EXCHANGE) {
        if (c->stream && !c->is_over && !nodes[c->node].is_dying)
            sim_stream_cancel(c->stream);
        end_stream(c);
    } else if (!c->is_over && c->call) {
        c->is_over = true;
        if (!nodes[c->node].is_dying)
            sim_call_cancel(c->call);
        *c->code = GRPC_STATUS_CANCELLED;
        complete(c->node, c->op, true);
    }
}

void client_die(int node)
{
    renew(node);
    nodes[node].is_dying = true;
    for (struct completion *c = nodes[node].first; c; c = c->next)
        run_completion(c);
    for (struct grpc_call *c = nodes[node].calls; c; c = c->next)
        cancel_call(c);
}

static enum sim_call_kind kind_of(const char *method)
{
    const char *name = strrchr(method, '/') + 1;
    return *name == 'J' ? CALL_JOIN : *name == 'L' ? CALL_LEAVE : CALL_EXCHANGE;
}

/* --wrap: net/rpc/channel.h. */
enum status __wrap_net_channel_create(const char *addr, int max_receive_bytes,
                                      struct net_channel **out);
grpc_call *__wrap_net_channel_call(struct net_channel *c, grpc_completion_queue *queue,
                                   const char *method, int64_t deadline_ms);
bool __wrap_net_channel_answered(struct net_channel *c, grpc_call *call);
void __wrap_net_channel_destroy(struct net_channel *c);

enum status __wrap_net_channel_create(const char *addr, int max_receive_bytes,
                                      struct net_channel **out)
{
    *out = sim_alloc(sizeof **out);
    (*out)->to = sim_server_at(addr);
    if ((*out)->to < 0)
        sim_fail("I5", "a plan names a server at %s, which the job does not have", addr);
    return ST_OK;
}

grpc_call *__wrap_net_channel_call(struct net_channel *c, grpc_completion_queue *queue,
                                   const char *method, int64_t deadline_ms)
{
    struct grpc_call *call = sim_alloc_list(sizeof *call);
    renew(sim.running);
    while (nodes[sim.running].calls && nodes[sim.running].calls->is_over)
        nodes[sim.running].calls = nodes[sim.running].calls->next;
    *call = (struct grpc_call){.next = nodes[sim.running].calls,
                               .node = sim.running,
                               .to = c->to,
                               .kind = kind_of(method),
                               .deadline_ms = deadline_ms};
    return nodes[sim.running].calls = call;
}

bool __wrap_net_channel_answered(struct net_channel *c, grpc_call *call)
{
    return false;
}

void __wrap_net_channel_destroy(struct net_channel *c)
{
}

/* --wrap: net/rpc/unary_batch.h, and the messages of its calls. */
void __wrap_unary_batch_init(struct unary_batch *b, const uint8_t *data, size_t bytes,
                             grpc_op ops[UNARY_BATCH_OPS]);
void __wrap_unary_batch_end(struct unary_batch *b, char *text, size_t room);
enum status __wrap_message_join_pack(const struct net_join *j, uint8_t **data, size_t *bytes);
enum status __wrap_message_pack(const struct message_type *type, const void *plain, uint8_t **data,
                                size_t *bytes);
enum status __wrap_message_unpack(const struct message_type *type, const uint8_t *data,
                                  size_t bytes, void *plain, char why[MESSAGE_WHY_BYTES]);

void __wrap_unary_batch_init(struct unary_batch *b, const uint8_t *data, size_t bytes,
                             grpc_op ops[UNARY_BATCH_OPS])
{
    struct message *m = make_message();
    memcpy(&m->request, data, sizeof m->request);
    b->outgoing = (grpc_byte_buffer *)m;
    b->incoming = NULL;
    b->code = GRPC_STATUS_INTERNAL;
    ops[1].data.send_message.send_message = b->outgoing;
    ops[4].data.recv_message.recv_message = &b->incoming;
    ops[5].data.recv_status_on_client.status = &b->code;
}

void __wrap_unary_batch_end(struct unary_batch *b, char *text, size_t room)
{
    text[0] = 0;
    if (b->code != GRPC_STATUS_OK)
        snprintf(text, room, "the server cannot be reached");
}

/* Encodes a message as its address. */
static enum status pack(const void *message, uint8_t **data, size_t *bytes)
{
    *data = malloc(sizeof message);
    CHECK(*data);
    memcpy(*data, &message, sizeof message);
    *bytes = sizeof message;
    return ST_OK;
}

enum status __wrap_message_join_pack(const struct net_join *j, uint8_t **data, size_t *bytes)
{
    return pack(sim_copy(j, sizeof *j), data, bytes);
}

enum status __wrap_message_pack(const struct message_type *type, const void *plain, uint8_t **data,
                                size_t *bytes)
{
    CHECK(type == &message_leave);
    return pack(sim_copy(plain, sizeof(struct net_leave)), data, bytes);
}

enum status __wrap_message_unpack(const struct message_type *type, const uint8_t *data,
                                  size_t bytes, void *plain, char why[MESSAGE_WHY_BYTES])
{
    struct net_join_reply *r = plain;
    CHECK(type == &message_reply);
    const struct net_join_reply *sent;
    memcpy(&sent, data, sizeof sent);
    *r = *sent;
    const struct hosts *h = &r->servers;
    if (r->server) {
        const int *map = r->server;
        size_t map_bytes = (size_t)r->n_chunks * sizeof *map;
        r->server = malloc(map_bytes);
        CHECK(r->server);
        memcpy(r->server, map, map_bytes);
    }
    return h->n > 0 ? hosts_copy((const char *const *)h->addr, (size_t)h->n, &r->servers) : ST_OK;
}

/* --wrap: net/rpc/grpc_runtime.h and gRPC. */
void __wrap_grpc_runtime_init(void);
void __wrap_grpc_runtime_shutdown(void);
enum status __wrap_grpc_runtime_pollers_create(int n, struct grpc_runtime_pollers **out);
grpc_completion_queue *__wrap_grpc_runtime_pollers_queue(struct grpc_runtime_pollers *p);
void __wrap_grpc_runtime_pollers_destroy(struct grpc_runtime_pollers *p);
int __wrap_grpc_runtime_op_start(struct grpc_runtime_op *op, grpc_call *call, const grpc_op *ops,
                                 size_t n);
enum status __wrap_grpc_runtime_spans_of(grpc_byte_buffer *message, struct net_span **spans,
                                         size_t *room, size_t *n);
enum status __wrap_grpc_runtime_bytes_of(grpc_byte_buffer *message, uint8_t **data, size_t *bytes);
void __wrap_grpc_call_ref(grpc_call *call);
void __wrap_grpc_call_unref(grpc_call *call);
grpc_call_error __wrap_grpc_call_cancel(grpc_call *call, void *reserved);
void __wrap_grpc_byte_buffer_destroy(grpc_byte_buffer *message);

void __wrap_grpc_runtime_init(void)
{
}

void __wrap_grpc_runtime_shutdown(void)
{
}

enum status __wrap_grpc_runtime_pollers_create(int n, struct grpc_runtime_pollers **out)
{
    *out = NULL;
    return ST_OK;
}

grpc_completion_queue *__wrap_grpc_runtime_pollers_queue(struct grpc_runtime_pollers *p)
{
    return NULL;
}

void __wrap_grpc_runtime_pollers_destroy(struct grpc_runtime_pollers *p)
{
}

static void start_unary(struct grpc_runtime_op *op, struct grpc_call *c, const grpc_op *ops)
{
    const struct message *m = (const struct message *)ops[1].data.send_message.send_message;
    c->op = op;
    c->incoming = ops[4].data.recv_message.recv_message;
    c->code = ops[5].data.recv_status_on_client.status;
    c->call = sim_call(c->node, c->to, c->kind, (void *)m->request, c->deadline_ms * SIM_MS);
    c->call->user = c;
}

static void open_stream(struct grpc_runtime_op *op, struct grpc_call *c)
{
    c->stream = sim_stream_open(c->node, c->to);
    if (c->stream)
        c->stream->user[DOWN] = c;
    c->is_over |= !c->stream;
    complete(c->node, op, c->stream != NULL);
}

static void send_frame(struct grpc_runtime_op *op, struct grpc_call *c, const struct message *m)
{
    for (int i = 0; i < m->n && !c->is_over; i++)
        sim_stream_push(c->stream, UP, m->pieces[i]);
    complete(c->node, op, !c->is_over);
}

int __wrap_grpc_runtime_op_start(struct grpc_runtime_op *op, grpc_call *call, const grpc_op *ops,
                                 size_t n)
{
    if (nodes[call->node].is_dying)
        return 0;
    if (n == UNARY_BATCH_OPS) {
        start_unary(op, call, ops);
    } else if (ops[0].op == GRPC_OP_SEND_INITIAL_METADATA) {
        open_stream(op, call);
    } else if (ops[0].op == GRPC_OP_SEND_MESSAGE) {
        send_frame(op, call, (const struct message *)ops[0].data.send_message.send_message);
    } else if (ops[0].op == GRPC_OP_RECV_STATUS_ON_CLIENT) {
        call->code = ops[0].data.recv_status_on_client.status;
        *call->code = GRPC_STATUS_UNAVAILABLE;
        call->op = call->is_over ? NULL : op;
        if (call->is_over)
            complete(call->node, op, true);
    } else {
        call->incoming = ops[0].data.recv_message.recv_message;
        call->receive = call->is_over ? NULL : op;
        if (call->is_over)
            complete(call->node, op, false);
    }
    return 1;
}

enum status __wrap_grpc_runtime_spans_of(grpc_byte_buffer *message, struct net_span **spans,
                                         size_t *room, size_t *n)
{
    received = ((struct message *)message)->piece;
    return ST_OK;
}

enum status __wrap_grpc_runtime_bytes_of(grpc_byte_buffer *message, uint8_t **data, size_t *bytes)
{
    return pack(((struct message *)message)->reply, data, bytes);
}

void __wrap_grpc_call_ref(grpc_call *call)
{
}

void __wrap_grpc_call_unref(grpc_call *call)
{
}

grpc_call_error __wrap_grpc_call_cancel(grpc_call *call, void *reserved)
{
    cancel_call(call);
    return GRPC_CALL_OK;
}

void __wrap_grpc_byte_buffer_destroy(grpc_byte_buffer *message)
{
    struct message *m = (struct message *)message;
    for (int i = 0; i < m->n; i++) {
        if (!m->borrowed[i].release)
            continue;
        if (digest_crc32c(0, m->borrowed[i].data, m->borrowed[i].bytes) != m->borrowed[i].crc)
            sim_fail("borrow", "%s changes its contribution to chunk %u while it is in flight",
                     sim.node[sim.running].name, m->pieces[i]->piece.chunk);
        m->borrowed[i].release(m->borrowed[i].owner);
    }
    m->n = 0;
}

/* --wrap: the coding of frames. */
grpc_byte_buffer *__wrap_send_queue_frame(const struct send_queue_batch *batch);
enum status
__wrap_frame_decode(const struct net_span *spans, size_t n_spans, struct net_frame_head *head,
                    enum status (*on_piece)(void *ctx, const struct net_frame_head *head,
                                            const struct net_piece *piece),
                    void *ctx, char *why, size_t why_bytes);

static struct sim_msg *make_piece(int node, const struct send_queue_item *item)
{
    struct sim_msg *m = sim_alloc(sizeof *m);
    m->head = item->head;
    m->piece.kind = item->kind;
    m->piece.chunk = item->chunk;
    m->piece.step = item->step;
    m->piece.dtype = item->dtype;
    m->piece.weight = item->weight;
    m->piece.has_rate = item->has_rate;
    m->piece.rate = item->rate;
    m->piece.crc32c = item->crc32c;
    m->piece.lacks = item->lacking != NULL;
    m->piece.ask_taken = item->ask_taken;
    m->piece.rows = item->rows;
    m->piece.reads = item->reads;
    m->bytes = item->data ? item->bytes : 0;
    m->data = m->bytes ? sim_copy(item->data, m->bytes) : NULL;
    m->identity = nodes[node].contribution[item->chunk].identity;
    m->position = nodes[node].contribution[item->chunk].position;
    return m;
}

grpc_byte_buffer *__wrap_send_queue_frame(const struct send_queue_batch *batch)
{
    struct message *m = sim_alloc(sizeof *m);
    CHECK(batch->n <= FRAME_MESSAGES);
    for (m->n = 0; m->n < batch->n; m->n++) {
        const struct send_queue_item *item = batch->items[m->n];
        m->pieces[m->n] = make_piece(sim.running, item);
        m->borrowed[m->n].release = item->release;
        m->borrowed[m->n].owner = item->owner;
        m->borrowed[m->n].data = item->data;
        m->borrowed[m->n].bytes = item->bytes;
        m->borrowed[m->n].crc = item->release ? digest_crc32c(0, item->data, item->bytes) : 0;
    }
    return (grpc_byte_buffer *)m;
}

enum status
__wrap_frame_decode(const struct net_span *spans, size_t n_spans, struct net_frame_head *head,
                    enum status (*on_piece)(void *ctx, const struct net_frame_head *head,
                                            const struct net_piece *piece),
                    void *ctx, char *why, size_t why_bytes)
{
    struct sim_msg *m = received;
    struct net_span span = {m->payload ? m->payload->data : NULL, m->bytes};
    struct net_piece p = {.kind = m->piece.kind,
                          .chunk = m->piece.chunk,
                          .step = m->piece.step,
                          .crc32c = m->piece.crc32c,
                          .dtype = m->piece.dtype,
                          .samples = m->piece.samples,
                          .rows = m->piece.rows,
                          .payload = {&span, 0, m->bytes}};
    if (m->payload && m->bytes && m->piece.crc32c && m->piece.crc32c != m->crc_sent)
        sim_fail("I1", "the checksum of an answer does not match its payload");
    *head = m->head;
    return on_piece(ctx, head, &p);
}

void client_reply(int node, struct sim_call *c)
{
    struct grpc_call *call = c->user;
    if (call->is_over)
        return;
    call->is_over = true;
    *call->code = c->st == ST_OK         ? GRPC_STATUS_OK
                  : c->st == ST_DEADLINE ? GRPC_STATUS_DEADLINE_EXCEEDED
                                         : GRPC_STATUS_UNAVAILABLE;
    if (c->st == ST_OK && c->reply) {
        struct message *m = make_message();
        m->reply = c->reply;
        *call->incoming = (grpc_byte_buffer *)m;
    }
    call->op->done(call->op, 1);
}

void client_message(int node, struct net_stream *s, struct sim_msg *piece)
{
    struct grpc_call *call = s->user[DOWN];
    struct grpc_runtime_op *op = call->receive;
    if (call->is_over)
        return;
    CHECK(op); /* the exchange always has a receive operation pending */
    struct message *m = make_message();
    m->piece = piece;
    *call->incoming = (grpc_byte_buffer *)m;
    call->receive = NULL;
    op->done(op, 1);
}

void client_closed(int node, struct net_stream *s)
{
    end_stream(s->user[DOWN]);
}

/* --wrap: net/exchange. */
void client_set_position(int node, int chunk, uint64_t position)
{
    renew(node);
    nodes[node].contribution[chunk].position = position;
}

/* Sets a new identity for the node's next contribution to the chunk. Returns the one before. */
static uint64_t renew_identity(int node, int chunk)
{
    uint64_t before = nodes[node].contribution[chunk].identity;
    nodes[node].contribution[chunk].identity = sim_draw(&sim.node[node].random) | 1;
    return before;
}

enum status __real_net_exchange_push_lacking(struct net_exchange *x, int chunk, int64_t step,
                                             const float *data, float weight,
                                             const uint8_t *lacking);
enum status __wrap_net_exchange_push_lacking(struct net_exchange *x, int chunk, int64_t step,
                                             const float *data, float weight,
                                             const uint8_t *lacking);
enum status __wrap_net_exchange_push_lacking(struct net_exchange *x, int chunk, int64_t step,
                                             const float *data, float weight,
                                             const uint8_t *lacking)
{
    int node = sim.running;
    uint64_t before = renew_identity(node, chunk);
    enum status st = __real_net_exchange_push_lacking(x, chunk, step, data, weight, lacking);
    if (st != ST_OK)
        nodes[node].contribution[chunk].identity = before;
    return st;
}

enum status __real_net_exchange_push_rows(struct net_exchange *x, int chunk, int64_t step,
                                          const struct net_rows *rows, float weight);
enum status __wrap_net_exchange_push_rows(struct net_exchange *x, int chunk, int64_t step,
                                          const struct net_rows *rows, float weight);
enum status __wrap_net_exchange_push_rows(struct net_exchange *x, int chunk, int64_t step,
                                          const struct net_rows *rows, float weight)
{
    int node = sim.running;
    uint64_t before = renew_identity(node, chunk);
    enum status st = __real_net_exchange_push_rows(x, chunk, step, rows, weight);
    if (st != ST_OK)
        nodes[node].contribution[chunk].identity = before;
    return st;
}

enum status __wrap_net_exchange_push(struct net_exchange *x, int chunk, int64_t step,
                                     const float *data, float weight);
enum status __wrap_net_exchange_push(struct net_exchange *x, int chunk, int64_t step,
                                     const float *data, float weight)
{
    return __wrap_net_exchange_push_lacking(x, chunk, step, data, weight, NULL);
}

enum status __real_exchange_request_answer(struct link *l, const struct net_piece *p);
enum status __wrap_exchange_request_answer(struct link *l, const struct net_piece *p);
enum status __wrap_exchange_request_answer(struct link *l, const struct net_piece *p)
{
    const struct net_exchange *x = l->x;
    const struct exchange_chunk *c = &x->chunks[p->chunk];
    if (x->server[p->chunk] != l->index && !l->retired)
        sim_fail("I5", "ps %d answers for a chunk of another server", l->index);
    bool waits = c->item.kind != PIECE_NONE;
    enum status st = __real_exchange_request_answer(l, p);
    if (opt(OPT_regions) && st == ST_OK && waits && c->item.kind == PIECE_NONE &&
        c->version == (int64_t)p->step && !c->ended)
        region_received(x, (int)p->chunk, c->version);
    return st;
}

uint64_t client_generation(const struct net_exchange *x, uint64_t *ps0)
{
    *ps0 = x->session->ps0;
    return x->session->generation;
}

const float *client_params(const struct net_exchange *x, int chunk)
{
    return x->cfg.params + sim_chunks->chunks[chunk].first;
}

/* Lowers the number of servers for which a session has space: for 4,096 servers, its memory would
 * be slow to clear. */
size_t __real_session_bytes(int max_servers);
size_t __wrap_session_bytes(int max_servers);
size_t __wrap_session_bytes(int max_servers)
{
    return __real_session_bytes(SIM_SERVERS);
}

void __real_session_init(struct session *s, const struct session_config *cfg);
void __wrap_session_init(struct session *s, const struct session_config *cfg);
void __wrap_session_init(struct session *s, const struct session_config *cfg)
{
    struct session_config few = *cfg;
    few.max_servers = SIM_SERVERS;
    __real_session_init(s, &few);
}
