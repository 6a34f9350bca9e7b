/* net/exchange.c - see exchange.h. The links (link.c) carry; here is what they carry: one request
 * per chunk at most, kept until it is answered, whatever happens to the streams below it.
 *
 * A chunk is ready when its request is answered and gRPC holds no slice of the caller's bytes. An
 * answer that brings nothing new (an older stream's, come late) is left alone. */
#include "net/exchange.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "net/exchange_impl.h"
#include "net/message.h"
#include <stdlib.h>
#include <string.h>

enum { EXCHANGE_WAIT_LINE_MS = 5000, EXCHANGE_RELEASE_MS = 5000 };

void exchange_fail(struct net_exchange *x, enum status st)
{
    pthread_mutex_lock(&x->lock);
    if (x->st == ST_OK)
        x->st = st;
    pthread_cond_broadcast(&x->changed);
    pthread_cond_broadcast(&x->work);
    pthread_mutex_unlock(&x->lock);
}

static void *keep_links(void *arg)
{
    struct net_exchange *x = arg;
    pthread_mutex_lock(&x->lock);
    while (!x->closing) {
        int64_t now = clock_now_ns(), next = INT64_MAX;
        struct link *due = NULL;
        for (int i = 0; i < x->n_links && !due && x->st == ST_OK && !x->leaving; i++) {
            struct link *l = &x->links[i];
            if (l->state != LINK_DOWN)
                continue;
            if (l->retry_ns <= now)
                due = l;
            else if (l->retry_ns < next)
                next = l->retry_ns;
        }
        if (due) {
            due->state = LINK_JOINING;
            pthread_mutex_unlock(&x->lock);
            link_join(due);
            pthread_mutex_lock(&x->lock);
        } else if (next == INT64_MAX) {
            pthread_cond_wait(&x->work, &x->lock);
        } else {
            clock_cond_wait(&x->work, &x->lock, next);
        }
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

static void release_chunk(void *owner)
{
    outq_take_back();
    struct chunk_state *c = owner;
    struct net_exchange *x = c->x;
    pthread_mutex_lock(&x->lock);
    c->refs--;
    x->n_refs--;
    if (c->refs == 0)
        pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

static void release_buf(void *owner)
{
    outq_take_back();
    buf_unref(owner);
}

void exchange_hold(struct net_exchange *x, struct net_out *item)
{
    struct chunk_state *c = &x->chunks[item->chunk];
    item->head = x->links[x->server[item->chunk]].head;
    x->stats.sent_bytes += item->bytes;
    item->release = NULL;
    if (item->bytes == 0)
        return;
    if (item->kind == PIECE_INIT) {
        item->owner = buf_ref(c->init_bytes);
        item->release = release_buf;
    } else {
        item->owner = c;
        item->release = release_chunk;
        c->refs++;
        x->n_refs++;
    }
}

static void queue_chunk(struct net_exchange *x, struct link *l, struct chunk_state *c)
{
    if (c->queued || c->item.kind == PIECE_NONE || l->state != LINK_STREAMING)
        return;
    c->item.head = l->head;
    c->queued = 1;
    outq_put(&l->queue, &c->item);
}

void exchange_queue_all(struct link *l)
{
    struct net_exchange *x = l->x;
    for (int i = 0; i < x->n_chunks; i++)
        if (x->server[i] == l->index)
            queue_chunk(x, l, &x->chunks[i]);
}

enum status exchange_take_map(struct net_exchange *x, int *server, int n_chunks)
{
    int wrong = n_chunks != x->n_chunks || !server;
    for (int i = 0; !wrong && i < n_chunks; i++)
        wrong = server[i] < 0 || server[i] >= x->n_links;
    pthread_mutex_lock(&x->lock);
    if (!wrong && x->server)
        wrong = memcmp(x->server, server, (size_t)n_chunks * sizeof *server) != 0;
    if (!wrong && !x->server) {
        x->server = server;
        server = NULL;
        for (int i = 1; i < x->n_links; i++) {
            x->links[i].state = LINK_DOWN;
            x->links[i].retry_ns = 0;
        }
        pthread_cond_broadcast(&x->work);
    }
    pthread_mutex_unlock(&x->lock);
    free(server);
    if (!wrong)
        return ST_OK;
    LOG_E("ps:0 (%s) sent a shard map that does not fit %d chunks on %d servers; do all programs "
          "have the same --ps_hosts?",
          x->cfg.ps_hosts->addr[0], x->n_chunks, x->n_links);
    return ST_PROTOCOL;
}

static const struct net_chunk *chunk_of(const struct net_exchange *x, int i)
{
    return &x->cfg.join.chunks->chunks[i];
}

static size_t chunk_bytes(const struct net_exchange *x, int i)
{
    return (size_t)chunk_of(x, i)->n_elems * sizeof(float);
}

/* INIT sends a copy, because its answer is written over the original. */
static enum status copy_first_value(struct net_exchange *x, int i)
{
    struct chunk_state *c = &x->chunks[i];
    if (c->init_bytes)
        return ST_OK;
    struct buf *b;
    enum status st = buf_create(chunk_bytes(x, i), &b);
    if (st != ST_OK)
        return st;
    memcpy(b->data, x->cfg.params + chunk_of(x, i)->first, b->bytes);
    c->init_bytes = b;
    return ST_OK;
}

enum status exchange_ask_first(struct link *l, int init)
{
    struct net_exchange *x = l->x;
    for (int i = 0; i < x->n_chunks; i++) {
        struct chunk_state *c = &x->chunks[i];
        if (x->server[i] != l->index)
            continue;
        struct net_out item = {.kind = PIECE_PULL, .chunk = (uint32_t)i};
        if (init) {
            enum status st = copy_first_value(x, i);
            if (st != ST_OK)
                return st;
            item.kind = PIECE_INIT;
            item.data = c->init_bytes->data;
            item.bytes = c->init_bytes->bytes;
            item.crc32c = digest_crc32c(0, item.data, item.bytes);
        }
        pthread_mutex_lock(&x->lock);
        c->item = item;
        pthread_mutex_unlock(&x->lock);
    }
    return ST_OK;
}

/* Whether the piece answers what the chunk has under way; under x->lock. */
static int is_answer(const struct chunk_state *c, const struct net_piece *p)
{
    switch (p->kind) {
    case PIECE_VERSION:
        return (c->item.kind == PIECE_PULL && p->step >= c->item.step) ||
               c->item.kind == PIECE_INIT;
    case PIECE_APPLIED:
    case PIECE_DUPLICATE:
    case PIECE_STALE:
        return c->item.kind == PIECE_PUSH && p->step > c->item.step;
    default:
        return 0;
    }
}

/* Answers that end everything. */
static enum status refuse_answer(struct link *l, const struct net_piece *p)
{
    switch (p->kind) {
    case PIECE_REFUSED:
        LOG_E("ps:%d (%s) refused chunk %u: %s", l->index, l->addr, p->chunk, p->why);
        return ST_REFUSED;
    case PIECE_WRONG_SHARD:
        LOG_E("ps:%d (%s) does not own chunk %u; do all programs have the same --ps_hosts?",
              l->index, l->addr, p->chunk);
        return ST_PROTOCOL;
    case PIECE_REBASE:
        LOG_E("ps:%d (%s) has gone on without this worker (its generation is over); start it again",
              l->index, l->addr);
        return ST_PROTOCOL;
    default:
        LOG_E("ps:%d (%s) sent a piece of kind %d, which is no answer", l->index, l->addr,
              (int)p->kind);
        return ST_PROTOCOL;
    }
}

/* The chunk's request is answered; under x->lock. */
static void complete(struct net_exchange *x, struct link *l, struct chunk_state *c,
                     const struct net_piece *p)
{
    c->version = (int64_t)p->step;
    c->item.kind = PIECE_NONE;
    x->stats.received_bytes += p->payload.bytes;
    x->stats.applied += p->kind == PIECE_APPLIED;
    x->stats.duplicate += p->kind == PIECE_DUPLICATE;
    x->stats.stale += p->kind == PIECE_STALE;
    pthread_cond_broadcast(&x->changed);
}

static int all_fetched(const struct link *l)
{
    const struct net_exchange *x = l->x;
    for (int i = 0; i < x->n_chunks; i++)
        if (x->server[i] == l->index && x->chunks[i].version < 0)
            return 0;
    return 1;
}

enum status exchange_answer(struct link *l, const struct net_piece *p)
{
    struct net_exchange *x = l->x;
    if (p->kind < PIECE_VERSION || p->kind > PIECE_STALE)
        return refuse_answer(l, p);
    if (p->chunk >= (uint32_t)x->n_chunks || x->server[p->chunk] != l->index ||
        p->payload.bytes != chunk_bytes(x, (int)p->chunk) || p->step > INT64_MAX) {
        LOG_E("ps:%d (%s) sent %zu bytes for chunk %u, step %llu, which the table of chunks does "
              "not allow",
              l->index, l->addr, p->payload.bytes, p->chunk, (unsigned long long)p->step);
        return ST_PROTOCOL;
    }
    struct chunk_state *c = &x->chunks[p->chunk];
    pthread_mutex_lock(&x->lock);
    int wanted = is_answer(c, p);
    int was_queued = c->queued; /* an answer to an earlier life of the same request */
    pthread_mutex_unlock(&x->lock);
    if (!wanted || was_queued) {
        LOG_D("ps:%d (%s): late answer for chunk %u left alone", l->index, l->addr, p->chunk);
        return ST_OK;
    }
    if (payload_crc32c(&p->payload) != p->crc32c) {
        LOG_W("ps:%d (%s): checksum of chunk %u, step %llu is wrong; asking again", l->index,
              l->addr, p->chunk, (unsigned long long)p->step);
        return ST_CORRUPT;
    }
    payload_copy(&p->payload, x->cfg.params + chunk_of(x, (int)p->chunk)->first);
    pthread_mutex_lock(&x->lock);
    struct buf *sent = c->init_bytes;
    c->init_bytes = NULL;
    complete(x, l, c, p);
    if (!l->fetched)
        l->fetched = all_fetched(l);
    pthread_mutex_unlock(&x->lock);
    buf_unref(sent);
    return ST_OK;
}

static enum status check_config(const struct net_exchange_config *cfg)
{
    if (cfg->ps_hosts && cfg->ps_hosts->n > 0 && cfg->join.chunks && cfg->params &&
        cfg->join.incarnation != 0)
        return ST_OK;
    LOG_E("an exchange needs at least one server, a table of chunks, parameters, an incarnation");
    return ST_INVALID;
}

enum status net_exchange_create(const struct net_exchange_config *cfg, struct net_exchange **out)
{
    enum status st = check_config(cfg);
    if (st != ST_OK)
        return st;
    struct net_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return ST_NOMEM;
    net_rt_init();
    x->cfg = *cfg;
    if (x->cfg.wait_line_ms <= 0)
        x->cfg.wait_line_ms = EXCHANGE_WAIT_LINE_MS;
    pthread_mutex_init(&x->lock, NULL);
    clock_cond_init(&x->changed);
    clock_cond_init(&x->work);
    int n_links = cfg->ps_hosts->n;
    x->n_chunks = cfg->join.chunks->n_chunks;
    x->links = calloc((size_t)n_links, sizeof *x->links);
    x->chunks = calloc((size_t)x->n_chunks, sizeof *x->chunks);
    if (!x->links || !x->chunks)
        TRY(ST_NOMEM);
    for (int i = 0; i < x->n_chunks; i++) {
        x->chunks[i].x = x;
        x->chunks[i].version = -1;
    }
    TRY(message_pack_join(&cfg->join, &x->join_bytes, &x->n_join_bytes));
    TRY(net_pollers_create(1, &x->pollers));
    for (; x->n_links < n_links; x->n_links++)
        TRY(link_open(x, x->n_links));
    int err = pthread_create(&x->keeper, NULL, keep_links, x);
    if (err) {
        LOG_E("network thread: %s", strerror(err));
        TRY(ST_INTERNAL);
    }
    x->keeper_runs = 1;
    *out = x;
done:
    if (st != ST_OK)
        net_exchange_destroy(x);
    return st;
}

static void wait_idle(struct net_exchange *x)
{
    for (int i = 0; i < x->n_links; i++) {
        link_cancel(&x->links[i]);
        pthread_mutex_lock(&x->lock);
        while (!link_idle(&x->links[i])) /* ends because its call was cancelled */
            pthread_cond_wait(&x->changed, &x->lock);
        pthread_mutex_unlock(&x->lock);
    }
}

void net_exchange_destroy(struct net_exchange *x)
{
    if (!x)
        return;
    pthread_mutex_lock(&x->lock);
    x->closing = 1;
    pthread_cond_broadcast(&x->work);
    pthread_mutex_unlock(&x->lock);
    if (x->keeper_runs)
        pthread_join(x->keeper, NULL);
    wait_idle(x);
    for (int i = 0; i < x->n_links; i++)
        link_close(&x->links[i]);
    /* gRPC may hold slices of the caller's bytes a little longer than the calls. */
    int64_t deadline = clock_deadline_ns(EXCHANGE_RELEASE_MS);
    pthread_mutex_lock(&x->lock);
    while (x->n_refs > 0 && clock_cond_wait(&x->changed, &x->lock, deadline) == 0)
        ;
    int64_t left = x->n_refs;
    pthread_mutex_unlock(&x->lock);
    net_pollers_destroy(x->pollers);
    net_rt_shutdown();
    if (left > 0) {
        LOG_E("%lld payloads are still held by gRPC; their memory is left alone", (long long)left);
        return;
    }
    for (int i = 0; x->chunks && i < x->n_chunks; i++)
        buf_unref(x->chunks[i].init_bytes);
    free(x->server);
    free(x->join_bytes);
    free(x->chunks);
    free(x->links);
    pthread_cond_destroy(&x->work);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

static int all_joined(const struct net_exchange *x)
{
    for (int i = 0; i < x->n_links; i++)
        if (!x->links[i].joined)
            return 0;
    return 1;
}

enum status net_exchange_start(struct net_exchange *x, int64_t *step)
{
    pthread_mutex_lock(&x->lock);
    if (x->links[0].state == LINK_HELD && !x->server) {
        x->links[0].state = LINK_DOWN;
        x->links[0].retry_ns = 0;
        pthread_cond_signal(&x->work);
    }
    while (x->st == ST_OK && !all_joined(x))
        pthread_cond_wait(&x->changed, &x->lock);
    pthread_mutex_unlock(&x->lock);
    enum status st = net_exchange_wait(x, 0, x->n_chunks, 0);
    if (st != ST_OK)
        return st;
    int64_t lowest = INT64_MAX;
    pthread_mutex_lock(&x->lock);
    for (int i = 0; i < x->n_chunks; i++)
        if (x->chunks[i].version < lowest)
            lowest = x->chunks[i].version;
    pthread_mutex_unlock(&x->lock);
    *step = lowest;
    return ST_OK;
}

/* Makes `item` the chunk's request and has it sent. */
static enum status request(struct net_exchange *x, int chunk, const struct net_out *item)
{
    if (chunk < 0 || chunk >= x->n_chunks || item->step > INT64_MAX)
        return ST_RANGE;
    struct chunk_state *c = &x->chunks[chunk];
    struct link *l = NULL;
    pthread_mutex_lock(&x->lock);
    enum status st = x->st;
    if (st == ST_OK && (!x->server || c->item.kind != PIECE_NONE))
        st = ST_BUSY;
    if (st == ST_OK) {
        l = &x->links[x->server[chunk]];
        c->item = *item;
        queue_chunk(x, l, c);
    }
    pthread_mutex_unlock(&x->lock);
    if (l)
        link_pump(l);
    return st;
}

enum status net_exchange_push(struct net_exchange *x, int chunk, int64_t step, const float *data,
                              float weight)
{
    if (chunk < 0 || chunk >= x->n_chunks)
        return ST_RANGE;
    struct net_out item = {.kind = PIECE_PUSH,
                           .chunk = (uint32_t)chunk,
                           .step = (uint64_t)step,
                           .weight = weight,
                           .data = data,
                           .bytes = chunk_bytes(x, chunk)};
    item.crc32c = digest_crc32c(0, data, item.bytes);
    return request(x, chunk, &item);
}

enum status net_exchange_pull(struct net_exchange *x, int chunk, int64_t step)
{
    struct net_out item = {.kind = PIECE_PULL, .chunk = (uint32_t)chunk, .step = (uint64_t)step};
    return request(x, chunk, &item);
}

enum status net_exchange_wait(struct net_exchange *x, int first, int n, int64_t step)
{
    if (first < 0 || n < 0 || n > x->n_chunks - first)
        return ST_RANGE;
    pthread_mutex_lock(&x->lock);
    for (int i = first; i < first + n && x->st == ST_OK;) {
        const struct chunk_state *c = &x->chunks[i];
        if (c->item.kind == PIECE_NONE && c->refs == 0 && c->version >= step)
            i++;
        else
            pthread_cond_wait(&x->changed, &x->lock); /* woken by answers, failures and cancel */
    }
    enum status st = x->st;
    pthread_mutex_unlock(&x->lock);
    return st;
}

int64_t net_exchange_version(struct net_exchange *x, int chunk)
{
    if (chunk < 0 || chunk >= x->n_chunks)
        return -1;
    pthread_mutex_lock(&x->lock);
    int64_t version = x->chunks[chunk].version;
    pthread_mutex_unlock(&x->lock);
    return version;
}

enum status net_exchange_leave(struct net_exchange *x, int done, int64_t deadline_ms)
{
    struct net_leave leave = {x->cfg.join.member, x->cfg.join.incarnation, done};
    uint8_t *data;
    size_t bytes;
    enum status st = message_pack_leave(&leave, &data, &bytes);
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&x->lock);
    x->leaving = 1;
    x->leave_st = ST_OK;
    pthread_mutex_unlock(&x->lock);
    for (int i = 0; i < x->n_links; i++) {
        pthread_mutex_lock(&x->lock);
        int joined = x->links[i].joined;
        pthread_mutex_unlock(&x->lock);
        if (joined)
            link_leave(&x->links[i], data, bytes, deadline_ms);
    }
    pthread_mutex_lock(&x->lock);
    while (x->n_leaves > 0) /* each ends at its deadline at the latest */
        pthread_cond_wait(&x->changed, &x->lock);
    st = x->leave_st;
    pthread_mutex_unlock(&x->lock);
    free(data);
    return st;
}

void net_exchange_cancel(struct net_exchange *x)
{
    exchange_fail(x, ST_CANCELLED);
}

void net_exchange_stats(struct net_exchange *x, struct net_exchange_stats *out)
{
    pthread_mutex_lock(&x->lock);
    *out = x->stats;
    pthread_mutex_unlock(&x->lock);
}
