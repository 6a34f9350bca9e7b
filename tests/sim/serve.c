/* tests/sim/serve.c - the functions of net/rpc/server.h and net/exchange/fetch_client.h that
 * ps/service calls, on the simulated network (server.h). */
#include "checkpoint/restore.h"
#include "net/exchange/fetch_client.h"
#include "tests/sim/fiber.h"
#include "tests/sim/oracle_rows.h"
#include "tests/sim/region.h"
#include "tests/sim/server.h"
#include "tests/sim/tables.h"
#include <stdlib.h>
#include <string.h>

int sim_running(void)
{
    return sim.running;
}

static bool is_open(const struct net_stream *s)
{
    const struct server *server = sim_server(s->server);
    return server && !server->is_dying && s->open[UP];
}

void net_stream_send(struct net_stream *s, const struct net_frame_head *head,
                     const struct net_piece *piece, struct buf *payload, size_t offset,
                     size_t bytes)
{
    if (!sim_is_server(s->server))
        group_answer(s, piece, payload);
    if (!is_open(s))
        return;
    struct sim_msg *m = sim_alloc(sizeof *m);
    m->head = *head;
    m->piece.kind = piece->kind;
    m->piece.chunk = piece->chunk;
    m->piece.step = piece->step;
    m->piece.dtype = piece->dtype;
    m->piece.crc32c = piece->crc32c;
    m->piece.samples = piece->samples;
    m->piece.rows = piece->rows;
    if (payload) {
        m->payload = buf_ref(payload);
        m->bytes = bytes;
        if (bytes > 0 && !tables_is_bucket((int)piece->chunk)) /* without bytes the receiver already
                                                                  has the value (fragments.h) */
            oracle_version((struct oracle_place){s->server, head->generation, (int)piece->chunk},
                           (int64_t)piece->step, payload->data, NULL, "in an answer");
    }
    sim_stream_push(s, DOWN, m);
}

void net_stream_fail(struct net_stream *s, const struct net_frame_head *head, uint32_t chunk,
                     const char *why)
{
    if (!sim_is_server(s->server))
        group_ended(s, why);
    if (!is_open(s))
        return;
    STORY("%s ends a stream of %s: %s", sim.node[s->server].name, sim.node[s->client].name, why);
    struct sim_msg *m = sim_alloc(sizeof *m);
    m->head = *head;
    m->piece.kind = PIECE_REFUSED;
    m->piece.chunk = chunk;
    m->is_last = true;
    sim_stream_push(s, DOWN, m);
    s->open[UP] = false;
    sim_post(0, EV_CLOSED, s->server)->p = s;
}

void net_stream_close(struct net_stream *s, const char *why)
{
    if (!sim_is_server(s->server))
        group_ended(s, why);
    if (!is_open(s))
        return;
    STORY("%s closes a stream of %s: %s", sim.node[s->server].name, sim.node[s->client].name, why);
    struct sim_msg *m = sim_alloc(sizeof *m);
    m->is_last = true;
    sim_stream_push(s, DOWN, m);
    s->open[UP] = false;
    sim_post(0, EV_CLOSED, s->server)->p = s;
}

/* References do nothing: a stream's memory lasts as long as the run. */
void net_stream_ref(struct net_stream *s)
{
}

void net_stream_unref(struct net_stream *s)
{
}

void net_stream_set_limit(struct net_stream *s, size_t bytes)
{
}

void net_stream_trust(struct net_stream *s, bool trusted)
{
}

bool net_stream_is_local(const struct net_stream *s)
{
    return 0;
}

bool net_stream_is_summed(const struct net_stream *s)
{
    return true;
}

const char *net_stream_peer(const struct net_stream *s)
{
    return sim.node[s->client].name;
}

void net_stream_set_user(struct net_stream *s, void *user)
{
    s->user[UP] = user;
}

void *net_stream_user(struct net_stream *s)
{
    return s->user[UP];
}

/* --wrap: the other functions of fetch_client.h are production code. */
enum status __wrap_fetch_client_create(const char *addr, struct fetch_client **out);
void __wrap_fetch_client_destroy(struct fetch_client *c);
void __wrap_fetch_client_cancel(struct fetch_client *c);
enum status __wrap_fetch_client_run(struct fetch_client *c, const struct net_fetch_request *request,
                                    int64_t stall_ms,
                                    enum status (*take)(void *ctx, const struct net_fetched *chunk),
                                    void *ctx, char why[CONTROL_TEXT_BYTES]);

/* Reads a region's simulated checkpoint, or for a server the files. */
enum status __real_checkpoint_restore_read(const struct checkpoint_restore *r, int64_t first,
                                           int64_t n, float *value, float *slots, int64_t *version);
enum status __wrap_checkpoint_restore_read(const struct checkpoint_restore *r, int64_t first,
                                           int64_t n, float *value, float *slots, int64_t *version);
enum status __wrap_checkpoint_restore_read(const struct checkpoint_restore *r, int64_t first,
                                           int64_t n, float *value, float *slots, int64_t *version)
{
    const struct region_checkpoint *c = (const struct region_checkpoint *)r;
    size_t bytes = (size_t)n * sizeof(float);
    if (sim_is_server(sim.running))
        return __real_checkpoint_restore_read(r, first, n, value, slots, version);
    for (int k = 0; k < c->file.n; k++) {
        const struct oracle_state *s = &c->file.state[k];
        if (sim_chunks->chunks[c->file.chunk[k]].first != first)
            continue;
        memcpy(value, s->value, bytes);
        if (slots)
            memcpy(slots, s->slots, bytes * (size_t)optim_n_slots(&c->plan->job.optim));
        *version = s->version;
        return ST_OK;
    }
    return ST_CORRUPT;
}

/* Reports no idle updates for a region: its workers have all gradients. */
void __real_checkpoint_restore_idle(const struct checkpoint_restore *r, const struct chunks *chunks,
                                    int chunk, int64_t version, uint64_t *idle);
void __wrap_checkpoint_restore_idle(const struct checkpoint_restore *r, const struct chunks *chunks,
                                    int chunk, int64_t version, uint64_t *idle);
void __wrap_checkpoint_restore_idle(const struct checkpoint_restore *r, const struct chunks *chunks,
                                    int chunk, int64_t version, uint64_t *idle)
{
    idle[0] = 0;
    if (sim_is_server(sim.running))
        __real_checkpoint_restore_idle(r, chunks, chunk, version, idle);
}

enum status __real_checkpoint_restore_samples(const struct checkpoint_restore *r, uint64_t **list,
                                              size_t *n);
enum status __wrap_checkpoint_restore_samples(const struct checkpoint_restore *r, uint64_t **list,
                                              size_t *n);
enum status __wrap_checkpoint_restore_samples(const struct checkpoint_restore *r, uint64_t **list,
                                              size_t *n)
{
    if (sim_is_server(sim.running))
        return __real_checkpoint_restore_samples(r, list, n);
    *list = NULL;
    *n = 0;
    return ST_OK;
}

struct fetch_client {
    int server;
    bool is_cancelled;
};

enum status __wrap_fetch_client_create(const char *addr, struct fetch_client **out)
{
    *out = sim_alloc(sizeof **out);
    (*out)->server = sim_server_at(addr);
    return (*out)->server < 0 ? ST_INVALID : ST_OK;
}

void __wrap_fetch_client_destroy(struct fetch_client *c)
{
}

void __wrap_fetch_client_cancel(struct fetch_client *c)
{
    c->is_cancelled = true;
    fiber_wake(c);
}

static const void *data_of(const struct buf *b)
{
    return b ? b->data : NULL;
}

/* Checks a part of a bucket. */
static void check_part(int server, const struct net_fetch_request *request,
                       const struct net_fetched *f)
{
    struct oracle_part part = {.version = f->version, .has_more = f->has_more};
    part.entries = (struct bucket_entries){.n = f->n_rows,
                                           .keys = f->keys,
                                           .steps = f->steps,
                                           .values = f->value,
                                           .slots = f->slots,
                                           .n_pending = f->n_pending,
                                           .pending_keys = f->pending_keys,
                                           .pending_steps = f->pending_steps,
                                           .pending_counts = f->pending_counts};
    part.has_after = request->has_after && f->chunk == request->chunk[0];
    part.after = request->after;
    oracle_rows_part((struct oracle_place){server, request->generation, f->chunk}, &part,
                     "fetched");
}

/* Returns the highest key of a part. */
static uint64_t last_key(const struct net_fetch_item *i)
{
    size_t n = i->keys ? i->keys->bytes / sizeof(uint64_t) : 0;
    size_t m = i->pending ? i->pending->bytes / (3 * sizeof(uint64_t)) : 0;
    uint64_t row = n > 0 ? ((const uint64_t *)i->keys->data)[n - 1] : 0;
    uint64_t pending = m > 0 ? ((const uint64_t *)i->pending->data)[m - 1] : 0;
    return row > pending ? row : pending;
}

static struct net_fetched fetched_of(const struct net_fetch_item *i)
{
    struct net_fetched f = {.chunk = i->chunk,
                            .version = i->version,
                            .value = data_of(i->value),
                            .slots = data_of(i->slots),
                            .n_value = i->value_bytes / sizeof(float),
                            .n_slots = i->slots_bytes / sizeof(float),
                            .samples = i->samples,
                            .n_samples = i->n_samples,
                            .idle = data_of(i->idle),
                            .n_idle = i->idle ? 1 : 0};
    if (!i->is_bucket)
        return f;
    f.is_bucket = true;
    f.has_more = i->has_more;
    f.n_rows = i->keys ? i->keys->bytes / sizeof *f.keys : 0;
    f.keys = data_of(i->keys);
    f.steps = data_of(i->steps);
    f.n_pending = i->pending ? i->pending->bytes / (3 * sizeof *f.keys) : 0;
    f.pending_keys = data_of(i->pending);
    f.pending_steps = f.pending_keys + f.n_pending;
    f.pending_counts = f.pending_steps + f.n_pending;
    return f;
}

/* Checks a reply of a server's present life. */
static void check_reply(int server, const struct net_fetch_request *request,
                        const struct net_fetch_reply *reply)
{
    for (int i = 0; i < reply->n; i++) {
        struct net_fetched f = fetched_of(&reply->item[i]);
        if (f.is_bucket)
            check_part(server, request, &f);
        else
            oracle_version((struct oracle_place){server, request->generation, f.chunk}, f.version,
                           f.value, f.slots, "fetched");
    }
}

/* Passes the chunks of a reply on, and removes them from the request. */
static enum status take_reply(struct net_fetch_request *rest, const struct net_fetch_reply *reply,
                              enum status (*take)(void *ctx, const struct net_fetched *chunk),
                              void *ctx)
{
    enum status st = ST_OK;
    for (int i = 0; i < reply->n && st == ST_OK; i++) {
        const struct net_fetch_item *item = &reply->item[i];
        struct net_fetched f = fetched_of(item);
        st = take(ctx, &f);
        rest->has_after = item->has_more;
        rest->after = item->has_more ? last_key(item) : 0;
        rest->chunk += !item->has_more;
        rest->n -= !item->has_more;
    }
    return st;
}

enum fate { REPLY_ARRIVES, REPLY_IS_LOST, RUN_ENDS };

/* Draws the fate of a reply with a part of a bucket. Other events happen before the next
 * request. RUN_ENDS: the reply is the last one that arrives in time. */
static enum fate fate_of(const struct fetch_client *c, const struct net_fetch_reply *reply)
{
    struct sim_random *r = &sim.node[sim.running].random;
    if (reply->n == 0 || !reply->item[reply->n - 1].has_more)
        return REPLY_ARRIVES;
    fiber_wait(c, sim.now + sim_log(r, 1, 1000) * SIM_MS);
    int64_t percent = sim_below(r, 100);
    return percent < 10 ? REPLY_IS_LOST : percent < 35 ? RUN_ENDS : REPLY_ARRIVES;
}

enum status __wrap_fetch_client_run(struct fetch_client *c, const struct net_fetch_request *request,
                                    int64_t stall_ms,
                                    enum status (*take)(void *ctx, const struct net_fetched *chunk),
                                    void *ctx, char why[CONTROL_TEXT_BYTES])
{
    struct net_fetch_request rest = *request;
    enum status st = ST_OK;
    while (rest.n > 0 && st == ST_OK) {
        struct server *from = sim_server(c->server);
        struct net_fetch_reply reply = {.n = 0};
        if (c->is_cancelled || (sim_is_server(sim.running) && !sim_server(sim.running)))
            return ST_CANCELLED;
        if (!from || from->is_dying || sim.node[c->server].state != NODE_UP ||
            !sim_net_is_reachable(sim_running(), c->server)) {
            snprintf(why, CONTROL_TEXT_BYTES, "ps %d cannot be reached", c->server);
            return ST_UNAVAILABLE;
        }
        from->handler.fetch(from->handler.ctx, &rest, &reply);
        if (reply.refused[0]) {
            snprintf(why, CONTROL_TEXT_BYTES, "%s", reply.refused);
            st = ST_REFUSED;
        } else {
            uint32_t life = sim.node[c->server].life;
            check_reply(c->server, &rest, &reply);
            enum fate fate = fate_of(c, &reply);
            if (sim.node[c->server].life == life)
                check_reply(c->server, &rest, &reply);
            if (fate != REPLY_IS_LOST)
                st = take_reply(&rest, &reply, take, ctx);
            if (fate == RUN_ENDS && st == ST_OK) {
                snprintf(why, CONTROL_TEXT_BYTES, "no data since the last chunk");
                st = ST_DEADLINE;
            }
        }
        net_fetch_reply_free(&reply);
    }
    return st;
}
