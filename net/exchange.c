/* net/exchange.c - see exchange.h. The links (link.c) carry what the chunks ask for (request.c);
 * here they are made, kept alive, waited for and ended. */
#include "net/exchange.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/exchange_impl.h"
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

int exchange_goes_on(const struct net_exchange *x)
{
    return !x->closing && !x->leaving && !x->rebased && x->st == ST_OK;
}

enum status exchange_state(const struct net_exchange *x)
{
    return x->st == ST_OK && x->rebased ? ST_REBASED : x->st;
}

/* The link whose join is due, or NULL and when the next is; under the lock. */
static struct link *find_due(const struct net_exchange *x, int64_t *next)
{
    int64_t now = clock_now_ns();
    *next = INT64_MAX;
    for (int i = 0; i < x->n_links && exchange_goes_on(x); i++) {
        struct link *l = x->links[i];
        if (l->state != LINK_DOWN)
            continue;
        if (l->retry_ns <= now)
            return l;
        if (l->retry_ns < *next)
            *next = l->retry_ns;
    }
    return NULL;
}

/* Takes one off the list that nothing is under way on; under the lock. */
static struct link *find_retired(struct net_exchange *x)
{
    for (struct link **at = &x->retired; *at; at = &(*at)->next_retired) {
        struct link *l = *at;
        if (!link_idle(l))
            continue;
        *at = l->next_retired;
        return l;
    }
    return NULL;
}

static void *keep_links(void *arg)
{
    struct net_exchange *x = arg;
    pthread_mutex_lock(&x->lock);
    while (!x->closing) {
        int64_t next;
        struct link *gone = find_retired(x), *due = gone ? NULL : find_due(x, &next);
        if (gone) {
            pthread_mutex_unlock(&x->lock);
            link_destroy(gone);
            pthread_mutex_lock(&x->lock);
        } else if (due) {
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
    x->member = cfg->join.member;
    if (x->cfg.wait_line_ms <= 0)
        x->cfg.wait_line_ms = EXCHANGE_WAIT_LINE_MS;
    pthread_mutex_init(&x->lock, NULL);
    clock_cond_init(&x->changed);
    clock_cond_init(&x->ready);
    clock_cond_init(&x->work);
    x->n_chunks = cfg->join.chunks->n_chunks;
    x->push_dtype = cfg->join.job.push_dtype;
    x->version_dtype = cfg->join.job.version_dtype;
    make_segment(x);
    TRY(make_staged(x));
    x->links = calloc(1, sizeof *x->links);
    x->chunks = calloc((size_t)x->n_chunks, sizeof *x->chunks);
    TRY(x->links && x->chunks ? ST_OK : ST_NOMEM);
    for (int i = 0; i < x->n_chunks; i++) {
        x->chunks[i].x = x;
        x->chunks[i].version = -1;
    }
    TRY(net_pollers_create(1, &x->pollers));
    TRY(link_create(x, cfg->ps_hosts->addr[0], &x->links[0]));
    x->links[0]->index = 0;
    x->n_links = 1;
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

/* Nothing new begins any more; the link's memory stays, for callbacks that are about to return. */
static void close_link(struct link *l)
{
    struct net_exchange *x = l->x;
    link_cancel(l);
    pthread_mutex_lock(&x->lock);
    while (!link_idle(l)) /* ends because its call was cancelled */
        pthread_cond_wait(&x->changed, &x->lock);
    pthread_mutex_unlock(&x->lock);
    link_close(l);
}

/* The first one last: its callbacks may put others on the list of the retired. */
static void close_links(struct net_exchange *x)
{
    for (int i = x->n_links - 1; i >= 0; i--)
        close_link(x->links[i]);
    pthread_mutex_lock(&x->lock);
    while (x->n_leaves > 0) /* each ends at its deadline at the latest */
        pthread_cond_wait(&x->changed, &x->lock);
    pthread_mutex_unlock(&x->lock);
    for (struct link *l = x->retired; l; l = l->next_retired)
        close_link(l);
}

/* No callback runs any more. */
static void free_links(struct net_exchange *x)
{
    for (int i = 0; i < x->n_links; i++)
        link_destroy(x->links[i]);
    while (x->retired) {
        struct link *l = x->retired;
        x->retired = l->next_retired;
        link_destroy(l);
    }
    free(x->links);
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
    close_links(x);
    /* gRPC may hold slices of the caller's bytes a little longer than the calls. */
    int64_t deadline = clock_deadline_ns(EXCHANGE_RELEASE_MS);
    pthread_mutex_lock(&x->lock);
    while (x->n_refs > 0 && clock_cond_wait(&x->changed, &x->lock, deadline) == 0)
        ; /* release_chunk tells when the last has come back */
    int64_t left = x->n_refs;
    pthread_mutex_unlock(&x->lock);
    net_pollers_destroy(x->pollers);
    free_links(x);
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
    pthread_cond_destroy(&x->work);
    pthread_cond_destroy(&x->ready);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

void net_exchange_flush(struct net_exchange *x)
{
    for (int i = 0; i < x->n_links; i++)
        link_pump(x->links[i], 1);
}

/* From the last chunk to the first: answers come in about the order of the requests, so that a
 * thread that waits for the last finds the others there when it wakes. */
enum status net_exchange_wait(struct net_exchange *x, int first, int n, int64_t step)
{
    if (first < 0 || n < 0 || n > x->n_chunks - first)
        return ST_RANGE;
    net_exchange_flush(x);
    pthread_mutex_lock(&x->lock);
    enum status st = exchange_state(x);
    for (int i = first + n - 1; i >= first && st == ST_OK;) {
        struct chunk_state *c = &x->chunks[i];
        if (c->over) {
            st = ST_REBASED;
        } else if (c->item.kind == PIECE_NONE && c->refs == 0 && c->version >= step) {
            i--;
        } else {
            c->n_waiters++;
            pthread_cond_wait(&x->ready, &x->lock); /* woken by answers, failures and cancel */
            c->n_waiters--;
            st = exchange_state(x);
        }
    }
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
    pthread_mutex_lock(&x->lock);
    struct net_leave leave = {x->member, x->cfg.join.incarnation, done, 0};
    x->leaving = 1;
    x->leave_st = ST_OK;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    for (int i = 0; i < x->n_links; i++) {
        pthread_mutex_lock(&x->lock);
        int joined = x->links[i]->joined || x->soon;
        pthread_mutex_unlock(&x->lock);
        if (joined)
            link_leave(x->links[i], &leave, deadline_ms);
    }
    pthread_mutex_lock(&x->lock);
    while (x->n_leaves > 0) /* each ends at its deadline at the latest */
        pthread_cond_wait(&x->changed, &x->lock);
    enum status st = x->leave_st;
    pthread_mutex_unlock(&x->lock);
    return st;
}

/* Where ps 0 cannot be asked now, its link asks when it is up again. A start asks it all the time,
 * and may have to for long: where training waits for somebody, whoever wants to can go. */
enum status net_exchange_leave_soon(struct net_exchange *x, int64_t deadline_ms)
{
    int64_t deadline = clock_deadline_ns(deadline_ms);
    pthread_mutex_lock(&x->lock);
    x->soon = 1;
    struct link *first = x->links[0];
    int ask = first->state == LINK_STREAMING || (x->starting && x->ending);
    pthread_mutex_unlock(&x->lock);
    if (ask)
        link_leave_soon(first);
    pthread_mutex_lock(&x->lock);
    while (x->soon == 1 && x->st == ST_OK && !x->leaving &&
           clock_cond_wait(&x->changed, &x->lock, deadline) == 0)
        ;
    enum status st = x->st != ST_OK ? x->st : x->soon == 2 ? ST_OK : ST_DEADLINE;
    pthread_mutex_unlock(&x->lock);
    return st;
}

int net_exchange_is_leaving(struct net_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    int leaving = x->soon == 2;
    pthread_mutex_unlock(&x->lock);
    return leaving;
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
