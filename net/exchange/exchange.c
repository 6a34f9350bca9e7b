/* net/exchange/exchange.c - see exchange.h. Creates and destroys the links, keeps them alive and
 * waits for them. The links (link.c) send the requests of the chunks (exchange_requests.c). */
#include "net/exchange/exchange.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/threads.h"
#include "net/exchange/exchange_requests.h"
#include "net/exchange/residuals.h"
#include "net/exchange/rows_impl.h"
#include "net/exchange/wire_auto.h"
#include "net/wire/fragments.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXCHANGE_WAIT_LINE_MS = 5000, EXCHANGE_RELEASE_MS = 5000, RESUMED_MS = 1000 };

/* Removes a retired link that has no pending call from the list, and returns it; NULL: there is no
 * such link. The caller holds the lock. */
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

/* Sends the session a TIMER event at each time that it has requested, and destroys retired
 * links. */
static void *reconnect_main(void *arg)
{
    const struct session_event timer = {.kind = EVENT_TIMER};
    struct net_exchange *x = arg;
    pthread_mutex_lock(&x->lock);
    while (!x->closing) {
        struct link *gone = find_retired(x);
        int due = !gone && x->wake_ns <= clock_now_ns();
        if (gone || due) {
            pthread_mutex_unlock(&x->lock);
            if (gone)
                link_destroy(gone);
            else
                exchange_session_step(x, &timer);
            pthread_mutex_lock(&x->lock);
        } else if (x->wake_ns == INT64_MAX) {
            pthread_cond_wait(&x->work, &x->lock);
        } else {
            clock_cond_wait(&x->work, &x->lock, x->wake_ns);
        }
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* Makes the segment from which servers on this host read contributions; without a segment,
 * contributions are sent over TCP. */
static void make_segment(struct net_exchange *x)
{
    char why[SEGMENT_WHY_BYTES];
    if (!x->cfg.shared_memory)
        return;
    if (x->cfg.segment)
        x->segment = segment_ref(x->cfg.segment);
    else if (!(x->segment = exchange_rows_segment(x->cfg.join.chunks, x->push_dtype, why)))
        LOG_W("no shared memory: %s; payloads are sent by TCP", why);
    segment_name_of(x->segment, &x->cfg.join.segment);
    if (!x->segment || !x->cfg.values || x->version_dtype != DTYPE_F32)
        return;
    x->values = segment_ref(x->cfg.values);
    x->values_serial = 1;
    segment_name_of(x->values, &x->cfg.join.values);
}

struct segment *net_exchange_gradients(struct net_exchange *x, enum dtype dtype)
{
    bool is_own = x->segment && !x->cfg.segment;
    return is_own && x->push_dtype == dtype ? segment_ref(x->segment) : NULL;
}

static enum status check_config(const struct net_exchange_config *cfg)
{
    if (cfg->ps_hosts && cfg->ps_hosts->n > 0 && cfg->join.chunks && cfg->params &&
        cfg->join.incarnation != 0 &&
        (!cfg->values || segment_data(cfg->values) == (void *)cfg->params))
        return ST_OK;
    LOG_E(
        "an exchange needs at least one server, a table of chunks, parameters and an incarnation");
    return ST_INVALID;
}

static enum status make_session(struct net_exchange *x)
{
    const struct session_config cfg = {.max_servers = HOSTS_MAX,
                                       .member = x->cfg.join.member,
                                       .may_move = x->cfg.join.job.n_workers == 0,
                                       .can_renew = x->cfg.first_values != NULL,
                                       .wait_line_ms = x->cfg.wait_line_ms,
                                       .first_line_ms = x->cfg.first_line_ms};
    x->wake_ns = INT64_MAX;
    x->session = calloc(1, session_bytes(HOSTS_MAX));
    if (!x->session)
        return ST_NOMEM;
    session_init(x->session, &cfg);
    return ST_OK;
}

enum status net_exchange_create(const struct net_exchange_config *cfg, struct net_exchange **out)
{
    enum status st = check_config(cfg);
    if (st != ST_OK)
        return st;
    struct net_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return ST_NOMEM;
    grpc_runtime_init();
    x->cfg = *cfg;
    if (x->cfg.wait_line_ms <= 0)
        x->cfg.wait_line_ms = EXCHANGE_WAIT_LINE_MS;
    pthread_mutex_init(&x->lock, NULL);
    clock_cond_init(&x->changed);
    clock_cond_init(&x->ready);
    clock_cond_init(&x->work);
    x->n_chunks = cfg->join.chunks->n_chunks;
    x->n_dense = cfg->join.chunks->n_dense;
    x->push_dtype = cfg->join.job.push_dtype;
    x->version_dtype = cfg->join.job.version_dtype;
    atomic_init(&x->rate, 1);
    make_segment(x);
    TRY(make_session(x));
    TRY(wire_auto_make_staged(x));
    TRY(exchange_rows_create(x));
    TRY(fragments_create(&cfg->join.job, cfg->join.chunks, &x->fragment));
    x->links = calloc(1, sizeof *x->links);
    x->chunks = calloc((size_t)x->n_chunks, sizeof *x->chunks);
    x->lacking = malloc(lacking_total(cfg->join.chunks));
    TRY(x->links && x->chunks && x->lacking ? ST_OK : ST_NOMEM);
    for (int i = 0; i < x->n_chunks; i++) {
        x->chunks[i].x = x;
        x->chunks[i].version = -1;
    }
    TRY(grpc_runtime_pollers_create(1, &x->pollers));
    TRY(link_create(x, cfg->ps_hosts->addr[0], &x->links[0]));
    x->links[0]->index = 0;
    x->n_links = 1;
    int err = pthread_create(&x->reconnect_thread, NULL, reconnect_main, x);
    if (err) {
        LOG_E("the thread that reconnects cannot be started: %s", threads_error(err));
        TRY(ST_NOMEM);
    }
    x->reconnect_runs = 1;
    *out = x;
done:
    if (st != ST_OK)
        net_exchange_destroy(x);
    return st;
}

/* Returns true if no link has a call and no leave call is pending. The caller holds the lock. */
static bool all_idle(const struct net_exchange *x)
{
    bool idle = x->n_leaves == 0;
    for (int i = 0; x->links && i < x->n_links; i++)
        idle = idle && link_idle(x->links[i]);
    for (const struct link *l = x->retired; l; l = l->next_retired)
        idle = idle && link_idle(l);
    return idle;
}

/* Closes the links, so that no call begins. Their memory stays for callbacks that are about to
 * return. */
static void close_links(struct net_exchange *x)
{
    const struct session_event e = {.kind = EVENT_CLOSE};
    exchange_session_step(x, &e);
    pthread_mutex_lock(&x->lock);
    while (!all_idle(x)) /* ends: calls were cancelled, and leave messages have a deadline */
        pthread_cond_wait(&x->changed, &x->lock);
    pthread_mutex_unlock(&x->lock);
    for (int i = 0; i < x->n_links; i++)
        link_close(x->links[i]);
    for (struct link *l = x->retired; l; l = l->next_retired)
        link_close(l);
}

/* Frees the links. No callback runs any more. */
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
    if (x->reconnect_runs)
        pthread_join(x->reconnect_thread, NULL);
    if (x->n_links > 0)
        close_links(x);
    /* gRPC may hold slices of the caller's bytes a little longer than the calls. */
    int64_t deadline = clock_deadline_ns(EXCHANGE_RELEASE_MS);
    pthread_mutex_lock(&x->lock);
    while (x->n_refs > 0 && clock_cond_wait(&x->changed, &x->lock, deadline) == 0)
        ; /* release_chunk signals when gRPC has released the last slice */
    int64_t left = x->n_refs;
    pthread_mutex_unlock(&x->lock);
    grpc_runtime_pollers_destroy(x->pollers);
    free_links(x);
    grpc_runtime_shutdown();
    if (left > 0) {
        LOG_E("gRPC still holds %lld payloads; their memory is not freed", (long long)left);
        return;
    }
    for (int i = 0; x->chunks && i < x->n_chunks; i++)
        exchange_request_drop_late(&x->chunks[i]);
    if (!x->stages_in_segment)
        free(x->staged);
    segment_unref(x->segment);
    segment_unref(x->values);
    residuals_destroy(x->residuals);
    exchange_rows_destroy(x);
    free(x->session);
    free(x->server);
    free(x->fragment);
    free(x->chunks);
    free(x->lacking);
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

/* Waits for a change. Returns true when the deadline has passed. */
static bool wait_ready(struct net_exchange *x, int64_t deadline_ns) REQUIRES(x->lock)
{
    if (deadline_ns < INT64_MAX)
        return clock_cond_wait(&x->ready, &x->lock, deadline_ns) != 0;
    pthread_cond_wait(&x->ready, &x->lock);
    return false;
}

bool exchange_is_waiting(const struct net_exchange *x)
{
    return x->n_waiting > 0 ||
           (x->left_ns > 0 && clock_now_ns() - x->left_ns < RESUMED_MS * INT64_C(1000000));
}

int64_t exchange_lowest_version(const struct net_exchange *x)
{
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < x->n_chunks; i++)
        if (x->chunks[i].version < lowest)
            lowest = x->chunks[i].version;
    return lowest;
}

void exchange_begin_wait(struct net_exchange *x)
{
    if (!exchange_is_waiting(x))
        x->waits_ns = clock_now_ns();
    x->n_waiting++;
}

bool exchange_is_ready(const struct exchange_chunk *c, int64_t step)
{
    return c->item.kind == PIECE_NONE && c->refs == 0 && c->version >= step;
}

/* Waits from the last chunk to the first: answers arrive in about the order of the requests, so
 * when the last one wakes the thread the other chunks are usually ready. */
enum status net_exchange_wait_until(struct net_exchange *x, int first, int n, int64_t step,
                                    int64_t deadline_ns)
{
    if (first < 0 || n < 0 || n > x->n_chunks - first)
        return ST_RANGE;
    net_exchange_flush(x);
    pthread_mutex_lock(&x->lock);
    enum status st = exchange_session_status(x);
    exchange_begin_wait(x);
    for (int i = first + n - 1; i >= first && st == ST_OK;) {
        struct exchange_chunk *c = &x->chunks[i];
        if (c->ended) {
            st = ST_REBASED;
        } else if (exchange_is_ready(c, step)) {
            i--;
        } else {
            c->n_waiters++;
            /* returns after answers, failures and net_exchange_cancel */
            bool late = wait_ready(x, deadline_ns);
            c->n_waiters--;
            st = exchange_session_status(x);
            if (st == ST_OK && late && !exchange_is_ready(c, step))
                st = ST_DEADLINE;
        }
    }
    x->n_waiting--;
    x->left_ns = st == ST_DEADLINE ? clock_now_ns() : 0;
    pthread_mutex_unlock(&x->lock);
    return st;
}

enum status net_exchange_wait(struct net_exchange *x, int first, int n, int64_t step)
{
    return net_exchange_wait_until(x, first, n, step, INT64_MAX);
}

bool net_exchange_is_busy(struct net_exchange *x, int chunk)
{
    if (chunk < 0 || chunk >= x->n_chunks)
        return false;
    pthread_mutex_lock(&x->lock);
    const struct exchange_chunk *c = &x->chunks[chunk];
    /* the payload of a bucket's next request replaces the last one */
    bool held = chunk >= x->n_dense ? c->refs > 0 : c->late != NULL;
    bool busy =
        exchange_session_status(x) == ST_OK && !c->ended && (c->item.kind != PIECE_NONE || held);
    pthread_mutex_unlock(&x->lock);
    return busy;
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

uint64_t net_exchange_samples(struct net_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    uint64_t samples = x->samples;
    pthread_mutex_unlock(&x->lock);
    return samples;
}

enum status net_exchange_leave_failed(struct net_exchange *x, bool done, const char *error,
                                      int64_t deadline_ms)
{
    const struct session_event e = {.kind = EVENT_LEAVE, .done = done, .failed = error[0] != 0};
    pthread_mutex_lock(&x->lock);
    x->leave_ms = deadline_ms;
    snprintf(x->leave_error, sizeof x->leave_error, "%s", error);
    int left = x->n_left;
    pthread_mutex_unlock(&x->lock);
    exchange_session_step(x, &e);
    pthread_mutex_lock(&x->lock);
    /* Each leave call ends at its deadline at the latest. */
    while (x->n_left == left || x->n_leaves > 0)
        pthread_cond_wait(&x->changed, &x->lock);
    enum status st = x->leave_st;
    pthread_mutex_unlock(&x->lock);
    return st;
}

enum status net_exchange_leave(struct net_exchange *x, bool done, int64_t deadline_ms)
{
    return net_exchange_leave_failed(x, done, "", deadline_ms);
}

/* Returns true if the session left before it was a member, so that ps 0 needs no message. */
static bool is_out(const struct session *s)
{
    return s->generation == 0 && s->state == SESSION_REBASED;
}

enum status net_exchange_leave_soon(struct net_exchange *x, int64_t deadline_ms)
{
    const struct session_event e = {.kind = EVENT_LEAVE_SOON};
    const struct session *s = x->session;
    int64_t deadline = clock_deadline_ns(deadline_ms);
    exchange_session_step(x, &e);
    pthread_mutex_lock(&x->lock);
    while (s->leave != LEAVE_REPORTED && x->st == ST_OK && s->state < SESSION_LEAVING &&
           !is_out(s) && clock_cond_wait(&x->changed, &x->lock, deadline) == 0)
        ;
    int gone = s->leave == LEAVE_REPORTED || is_out(s);
    enum status st = x->st != ST_OK ? x->st : gone ? ST_OK : ST_DEADLINE;
    pthread_mutex_unlock(&x->lock);
    return st;
}

bool net_exchange_is_leaving(struct net_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    int leaving = x->session->leave == LEAVE_REPORTED;
    pthread_mutex_unlock(&x->lock);
    return leaving;
}

void net_exchange_cancel(struct net_exchange *x)
{
    exchange_session_fail(x, ST_CANCELLED);
}

int64_t net_exchange_silence_ms(struct net_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    int64_t ms = x->n_waiting > 0 ? x->links[0]->silent_ns / 1000000 : 0;
    pthread_mutex_unlock(&x->lock);
    return ms;
}

void net_exchange_stats(struct net_exchange *x, struct net_exchange_stats *out)
{
    pthread_mutex_lock(&x->lock);
    *out = x->stats;
    pthread_mutex_unlock(&x->lock);
}
