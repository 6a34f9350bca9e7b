/* tests/sim/serve.c - the functions of net/rpc/server.h and net/exchange/fetch_client.h that
 * ps/service calls, on the simulated network (server.h). */
#include "checkpoint/restore.h"
#include "net/exchange/fetch_client.h"
#include "tests/sim/oracle.h"
#include "tests/sim/region.h"
#include "tests/sim/server.h"
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
    if (payload) {
        m->payload = buf_ref(payload);
        m->bytes = bytes;
        if (bytes > 0) /* without bytes the receiver already has the value (fragments.h) */
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
}

static enum status hand_over(int server, const struct net_fetch_request *request,
                             const struct net_fetch_item *i,
                             enum status (*take)(void *ctx, const struct net_fetched *chunk),
                             void *ctx)
{
    const struct net_fetched f = {.chunk = i->chunk,
                                  .version = i->version,
                                  .value = i->value->data,
                                  .slots = i->slots ? i->slots->data : NULL,
                                  .n_value = i->value_bytes / sizeof(float),
                                  .n_slots = i->slots_bytes / sizeof(float),
                                  .samples = i->samples,
                                  .n_samples = i->n_samples,
                                  .idle = i->idle ? i->idle->data : NULL,
                                  .n_idle = i->idle ? 1 : 0};
    oracle_version((struct oracle_place){server, request->generation, f.chunk}, f.version, f.value,
                   f.slots, "fetched");
    return take(ctx, &f);
}

enum status __wrap_fetch_client_run(struct fetch_client *c, const struct net_fetch_request *request,
                                    int64_t stall_ms,
                                    enum status (*take)(void *ctx, const struct net_fetched *chunk),
                                    void *ctx, char why[CONTROL_TEXT_BYTES])
{
    struct server *from = sim_server(c->server);
    struct net_fetch_reply reply = {.n = 0};
    enum status st = ST_OK;
    if (c->is_cancelled || (sim_is_server(sim.running) && !sim_server(sim.running)))
        return ST_CANCELLED;
    if (!from || from->is_dying || sim.node[c->server].state != NODE_UP ||
        !sim_net_is_reachable(sim_running(), c->server)) {
        snprintf(why, CONTROL_TEXT_BYTES, "ps %d cannot be reached", c->server);
        return ST_UNAVAILABLE;
    }
    from->handler.fetch(from->handler.ctx, request, &reply);
    if (reply.refused[0]) {
        snprintf(why, CONTROL_TEXT_BYTES, "%s", reply.refused);
        st = ST_REFUSED;
    }
    for (int i = 0; i < reply.n && st == ST_OK; i++)
        st = hand_over(c->server, request, &reply.item[i], take, ctx);
    net_fetch_reply_free(&reply);
    return st;
}
