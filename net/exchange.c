/* net/exchange.c - see exchange.h. The links (link.c) carry what the chunks ask for (request.c);
 * here they are made, kept alive, waited for and ended. */
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
    pthread_cond_broadcast(&x->ready);
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
        int go = x->st == ST_OK && !x->leaving && !x->rebased;
        for (int i = 0; i < x->n_links && !due && go; i++) {
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

/* Memory that servers on this host can read contributions from; without it they go by TCP. */
static void make_segment(struct net_exchange *x)
{
    char why[SHARED_WHY_BYTES];
    size_t bytes = (size_t)x->cfg.join.chunks->n_elems * dtype_size(x->push_dtype);
    if (!x->cfg.shared_memory)
        return;
    if (net_shared_create(bytes, &x->segment, why) == ST_OK)
        net_shared_name_of(x->segment, &x->cfg.join.segment);
    else
        LOG_D("no shared memory: %s", why);
}

static enum status make_staged(struct net_exchange *x)
{
    if (x->push_dtype == DTYPE_F32)
        return ST_OK;
    if (x->segment)
        x->staged = net_shared_data(x->segment);
    else
        x->staged = malloc((size_t)x->cfg.join.chunks->n_elems * dtype_size(x->push_dtype));
    return x->staged ? ST_OK : ST_NOMEM;
}

struct net_shared *net_exchange_gradients(struct net_exchange *x, enum dtype dtype)
{
    return x->segment && x->push_dtype == dtype ? net_shared_ref(x->segment) : NULL;
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
    clock_cond_init(&x->ready);
    clock_cond_init(&x->work);
    int n_links = cfg->ps_hosts->n;
    x->n_chunks = cfg->join.chunks->n_chunks;
    x->push_dtype = cfg->join.job.push_dtype;
    x->version_dtype = cfg->join.job.version_dtype;
    make_segment(x);
    TRY(make_staged(x));
    x->links = calloc((size_t)n_links, sizeof *x->links);
    x->chunks = calloc((size_t)x->n_chunks, sizeof *x->chunks);
    TRY(x->links && x->chunks ? ST_OK : ST_NOMEM);
    for (int i = 0; i < x->n_chunks; i++) {
        x->chunks[i].x = x;
        x->chunks[i].version = -1;
    }
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
        ; /* release_chunk tells when the last has come back */
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
    if (!x->segment)
        free(x->staged);
    net_shared_unref(x->segment);
    free(x->server);
    free(x->chunks);
    free(x->links);
    pthread_cond_destroy(&x->work);
    pthread_cond_destroy(&x->ready);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

void exchange_rebase(struct net_exchange *x, uint64_t generation)
{
    pthread_mutex_lock(&x->lock);
    x->generation = generation;
    x->rebased = 1;
    request_forget_all(x);
    for (int i = 0; i < x->n_links; i++)
        x->links[i].fetched = x->links[i].joined = 0;
    pthread_cond_broadcast(&x->changed);
    pthread_cond_broadcast(&x->ready);
    pthread_mutex_unlock(&x->lock);
    for (int i = 0; i < x->n_links; i++)
        link_cancel(&x->links[i]);
}

static int all_joined(const struct net_exchange *x)
{
    for (int i = 0; i < x->n_links; i++)
        if (!x->links[i].joined)
            return 0;
    return 1;
}

static int64_t lowest_version(struct net_exchange *x)
{
    int64_t lowest = INT64_MAX;
    pthread_mutex_lock(&x->lock);
    for (int i = 0; i < x->n_chunks; i++)
        if (x->chunks[i].version < lowest)
            lowest = x->chunks[i].version;
    pthread_mutex_unlock(&x->lock);
    return lowest;
}

/* In lockstep this member's last life may have ended in the middle of a step: chunks for which it
 * had pushed have gone on since. The step is redone from its beginning, so these are read again as
 * they were then (I4); nobody gets further than that without this member. */
static enum status go_back(struct net_exchange *x, int64_t step)
{
    enum status st = ST_OK;
    for (int i = 0; i < x->n_chunks; i++)
        if (net_exchange_version(x, i) > step)
            TRY(request_version(x, i, step, x->version_dtype));
    TRY(net_exchange_wait(x, 0, x->n_chunks, step));
    for (int i = 0; i < x->n_chunks; i++) {
        int64_t version = net_exchange_version(x, i);
        if (version == step)
            continue;
        LOG_E("chunk %d came at step %lld, not %lld, from which this worker has to go on; start "
              "all programs again",
              i, (long long)version, (long long)step);
        return ST_PROTOCOL;
    }
done:
    return st;
}

/* What stops requests and waits; under the lock. */
static enum status state_of(const struct net_exchange *x)
{
    return x->st == ST_OK && x->rebased ? ST_REBASED : x->st;
}

/* Until gRPC holds none of the caller's bytes and all servers are joined: ps 0 first, then, as it
 * brings the shard map, the others. */
static enum status join_all(struct net_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->rebased = 0;
    for (int i = 0; i < x->n_links && (i == 0 || x->server); i++) {
        if (x->links[i].state == LINK_HELD) {
            x->links[i].state = LINK_DOWN;
            x->links[i].retry_ns = 0;
        }
    }
    pthread_cond_signal(&x->work);
    while (state_of(x) == ST_OK && !(all_joined(x) && x->n_refs == 0))
        pthread_cond_wait(&x->changed, &x->lock);
    enum status st = state_of(x);
    pthread_mutex_unlock(&x->lock);
    return st;
}

/* A server that gives no places has members by their index. */
static void note_start(struct net_exchange *x, int64_t step, struct net_start *out)
{
    const struct net_join *join = &x->cfg.join;
    pthread_mutex_lock(&x->lock);
    *out = (struct net_start){step, x->generation, x->place};
    pthread_mutex_unlock(&x->lock);
    if (out->place.n_members == 0)
        out->place = (struct net_place){.member = join->member,
                                        .rank = join->member,
                                        .n_members = join->job.n_workers,
                                        .train_steps = join->job.train_steps};
}

enum status net_exchange_start(struct net_exchange *x, struct net_start *out)
{
    enum status st;
    do {
        st = join_all(x);
        if (st == ST_OK)
            st = net_exchange_wait(x, 0, x->n_chunks, 0);
        int64_t lowest = lowest_version(x);
        if (st == ST_OK && job_in_lockstep(&x->cfg.join.job))
            st = go_back(x, lowest);
        if (st == ST_OK)
            note_start(x, lowest, out);
    } while (st == ST_REBASED); /* while it started; once more */
    return st;
}

void net_exchange_flush(struct net_exchange *x)
{
    for (int i = 0; i < x->n_links; i++)
        link_pump(&x->links[i], 1);
}

/* From the last chunk to the first: answers come in about the order of the requests, so that a
 * thread that waits for the last finds the others there when it wakes. */
enum status net_exchange_wait(struct net_exchange *x, int first, int n, int64_t step)
{
    if (first < 0 || n < 0 || n > x->n_chunks - first)
        return ST_RANGE;
    net_exchange_flush(x);
    pthread_mutex_lock(&x->lock);
    for (int i = first + n - 1; i >= first && state_of(x) == ST_OK;) {
        struct chunk_state *c = &x->chunks[i];
        if (c->item.kind == PIECE_NONE && c->refs == 0 && c->version >= step) {
            i--;
            continue;
        }
        c->n_waiters++;
        pthread_cond_wait(&x->ready, &x->lock); /* woken by answers, failures and cancel */
        c->n_waiters--;
    }
    enum status st = state_of(x);
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
    struct net_leave leave = {x->cfg.join.member, x->cfg.join.incarnation, done, 0};
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
