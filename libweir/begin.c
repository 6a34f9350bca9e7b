/* libweir/begin.c - creates the exchange from settings and parameters, and starts each generation;
 * see weir_impl.h. This code runs in a separate thread, the starter, since a start may wait without
 * end. */
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/process.h"
#include "base/threads.h"
#include "libweir/arrays.h"
#include "libweir/rates.h"
#include "libweir/tables.h"
#include "member/identity.h"
#include "member/job_query.h"
#include "member/updates_impl.h"
#include "net/rpc/environment.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets the identity (certificates, token) of the process. All handles share one identity. */
static enum status show_identity(const struct settings *s)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two variables below */
    static int started;
    static char shown[4 * 1024];
    char text[sizeof shown];
    const struct security_config c = settings_security(s);
    enum status st = ST_OK;
    int n = snprintf(text, sizeof text, "%s\n%s\n%s\n%s", c.cert, c.key, c.ca, c.token_file);
    pthread_mutex_lock(&lock);
    if (n < 0 || (size_t)n >= sizeof text) {
        LOG_E("tls_cert, tls_key, tls_ca, token_file: the paths are too long");
        st = ST_INVALID;
    } else if (started && strcmp(text, shown) != 0) {
        LOG_E(
            "tls_cert, tls_key, tls_ca, token_file: another handle of this process uses other files, but all handles of a process need the same files");
        st = ST_INVALID;
    } else if (!started) {
        static char kept[4][sizeof text]; /* net/security borrows the paths for ever */
        const char *const from[] = {c.cert, c.key, c.ca, c.token_file};
        for (int i = 0; i < 4; i++)
            snprintf(kept[i], sizeof kept[i], "%s", from[i]);
        const struct security_config own = {kept[0], kept[1], kept[2], kept[3], c.role};
        st = security_start(&own);
        started = st == ST_OK;
        snprintf(shown, sizeof shown, "%s", started ? text : "");
    }
    pthread_mutex_unlock(&lock);
    return st;
}

static int pause_query(void *ctx, int ms)
{
    struct weir *w = ctx;
    int64_t deadline = clock_deadline_ns(ms);
    pthread_mutex_lock(&w->lock);
    while (!w->cancelled && clock_cond_wait(&w->changed, &w->lock, deadline) == 0)
        ;
    int cancelled = w->cancelled;
    pthread_mutex_unlock(&w->lock);
    return cancelled;
}

/* Returns whether the job is over. The exchange calls it while ps 0 does not answer the first
 * start.
 */
static bool is_over(void *ctx)
{
    struct weir *w = ctx;
    w->is_over = job_over_look(&w->over);
    return w->is_over;
}

/* Sets the folder in which the servers record that the job is over. A member that joins has no such
 * folder, so it can only query the servers. */
static void set_up_job_over(struct weir *w, struct net_exchange_config *cfg)
{
    const char *folder = w->set.checkpoint_dir;
    w->joins_with = cfg->join;
    w->over = (struct job_over){.folder = folder && *folder && !w->set.join ? folder : NULL,
                                .ps0 = w->cluster.ps.addr[0],
                                .join = &w->joins_with};
    cfg->is_over = is_over;
}

static enum status make_updates(struct weir *w)
{
    struct net_exchange_config cfg = {
        .ps_hosts = &w->cluster.ps,
        .params = w->values,
        .first_values = weir_arrays_write_first,
        .ctx = w,
        .shared_memory = w->set.job.shared_memory == 0,
        .segment = w->segment,
        .step_ms = (int)w->set.job.wire_step_ms,
        .event_fd = w->event_fd > 0 ? w->event_fd : 0,
        .first_line_ms = WEIR_SILENT_MS,
        .join = {.member = w->set.join ? -1 : (int)w->set.task_index,
                 .job = w->job,
                 .chunks = w->chunks,
                 .address = w->set.address ? w->set.address : member_identity_address(w->host),
                 .incarnation = process_incarnation()},
    };
    if (w->cluster.ps.n > 0)
        set_up_job_over(w, &cfg);
    return w->set.own_local_steps ? updates_remote_create(&cfg, &w->updates)
                                  : updates_create(&cfg, &w->updates);
}

static enum status set_up(struct weir *w)
{
    enum status st = ST_OK;
    const struct settings *s = &w->set;
    if (w->updates.ops)
        return ST_OK;
    TRY(net_environment_check());
    TRY(settings_cluster(&w->set, &w->cluster));
    if (w->cluster.ps.n > 0) {
        TRY(descriptors_reserve(NET_GRPC_DESCRIPTORS + 1 + 2 * w->cluster.ps.n));
        TRY(threads_reserve(net_environment_threads() + NET_EXCHANGE_THREADS + 1)); /* waits.c's */
        TRY(show_identity(s));
    }
    if (s->join) {
        const struct job_query_request q = {
            .addr = w->cluster.ps.addr[0], .pause = pause_query, .ctx = w};
        TRY(job_query_ask(&q, &w->joined));
    }
    int n_servers = w->cluster.ps.n;
    TRY(settings_job(s, n_servers, w->n_elems, s->join ? &w->joined : NULL, &w->job));
    int64_t bytes = s->join ? w->joined.chunks->chunk_bytes
                    : s->job.chunk_bytes > 0
                        ? s->job.chunk_bytes
                        : chunks_default_bytes(w->n_elems, n_servers + !n_servers);
    TRY(weir_params_make_chunks(w, bytes));
    TRY(weir_rates_check(w));
    w->own_pace = !job_in_lockstep(&w->job);
    w->n_local = s->own_local_steps ? 1 : job_local_steps(&w->job);
    w->batch = w->job.batch / w->n_local;
    TRY(make_updates(w));
    TRY(weir_arrays_make_gradients(w));
    if (w->updates.ops->waits)
        st = weir_watch_waits(w);
done:
    return st;
}

static void *starter_main(void *arg)
{
    struct weir *w = arg;
    struct net_start start = {0};
    weir_errors_listen();
    enum status st = set_up(w);
    pthread_mutex_lock(&w->lock);
    w->made = w->known = w->updates.ops != NULL;
    pthread_cond_broadcast(&w->changed); /* wakes weir_leave_soon */
    while (w->n_within > 0)              /* these calls return soon, because their generation has
                                          * ended */
        pthread_cond_wait(&w->changed, &w->lock);
    if (st == ST_OK && w->cancelled)
        st = ST_CANCELLED;
    int leaves = w->leaves;
    pthread_mutex_unlock(&w->lock);
    if (st == ST_OK && leaves && w->updates.ops->leave_soon)
        w->updates.ops->leave_soon(w->updates.ctx, 0);
    if (st == ST_OK)
        st = w->updates.ops->start(w->updates.ctx, &start);
    if (st == ST_OK)
        waiting_set_member(w->waiting, start.place.member);
    pthread_mutex_lock(&w->lock);
    int code = weir_errors_code_of(st);
    /* a server has answered while is_over() looked into the folder */
    if (st == ST_OK)
        w->is_over = 0;
    if (st == ST_CANCELLED && !w->cancelled)
        code = w->leaves ? WEIR_LEFT : w->is_over ? WEIR_OVER : code;
    pthread_mutex_unlock(&w->lock);
    if (code < 0)
        weir_errors_fail_st(w, st);
    pthread_mutex_lock(&w->lock);
    w->start = start;
    w->start_code = code;
    w->start_over = 1;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    weir_events_signal(w);
    return NULL;
}

/* Creates the starter with all signals blocked. The threads that it creates inherit this, so only
 * the program's own threads handle signals. */
static int create_starter(struct weir *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&w->starter, NULL, starter_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

static int run_starter(struct weir *w)
{
    if (w->n_params == 0)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "there are no parameters; name them by weir_param");
    pthread_mutex_lock(&w->lock);
    w->state = HANDLE_STARTING;
    w->start_over = 0;
    pthread_mutex_unlock(&w->lock);
    int err = create_starter(w);
    if (err) {
        weir_errors_fail(w, WEIR_E_NOMEM, "no thread can be started: %s", threads_error(err));
        return weir_errors_stop(w, WEIR_E_NOMEM);
    }
    w->starter_runs = 1;
    return WEIR_OK;
}

void weir_begin_end_starter(struct weir *w)
{
    if (w->starter_runs)
        pthread_join(w->starter, NULL);
    w->starter_runs = 0;
}

/* Adopts the result of a start that succeeded. The caller holds the lock. */
static void adopt_start(struct weir *w)
{
    w->state = HANDLE_RUNNING;
    w->begun = 1;
    w->step = w->start.step;
    w->generation = (int64_t)w->start.generation;
    w->train_steps =
        w->start.place.train_steps > 0 ? w->start.place.train_steps : w->job.train_steps;
    w->in_step = w->ended = w->invalid = w->collecting = 0;
    w->began = w->tell_began = 1;
    for (int i = 0; i < w->n_params; i++)
        w->params[i].pushed = w->params[i].awaited = 0;
    weir_tables_begin(w);
}

int weir_begin(struct weir *w, int64_t deadline_ns)
{
    if (!w->starter_runs) {
        int code = run_starter(w);
        if (code != WEIR_OK)
            return code;
    }
    pthread_mutex_lock(&w->lock);
    while (!w->start_over && clock_now_ns() < deadline_ns) {
        if (deadline_ns == INT64_MAX)
            pthread_cond_wait(&w->changed, &w->lock);
        else
            clock_cond_wait(&w->changed, &w->lock, deadline_ns);
    }
    int over = w->start_over;
    pthread_mutex_unlock(&w->lock);
    if (!over)
        return WEIR_AGAIN;
    weir_begin_end_starter(w);
    if (w->start_code != WEIR_OK)
        return weir_errors_stop(w, w->start_code);
    pthread_mutex_lock(&w->lock);
    adopt_start(w);
    pthread_mutex_unlock(&w->lock);
    weir_events_signal(w);
    return WEIR_OK;
}
