/* ps/service.c - see service.h.
 *
 * A `run` (run.h) is one job with its store and members. A `caller` belongs to a stream: it
 * remembers, from one piece to the next, the run and the member that speaks, so that a piece on its
 * way to the store takes no lock that all share. The store knows streams by number (streams.h) and
 * says for which one an answer is.
 *
 * Locks: the service's guards runs' members and is never held over a call into the store's chunks
 * or the net. A stream's (in streams.h) may be held when the service's is taken, never the other
 * way round. */
#include "ps/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/match.h"
#include "ps/run.h"
#include "ps/streams.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One stream's; touched by the thread that handles its frames, one after the other. */
struct caller {
    uint64_t number;            /* in the table of streams */
    struct run *run;            /* the run it speaks to, a reference; NULL at first */
    struct net_frame_head head; /* the last that enter_run looked at */
};

struct ps_service {
    struct ps_service_config cfg;
    struct ps_streams *streams;
    pthread_mutex_t lock; /* guards run, the members in it, stopping */
    pthread_cond_t wake;
    struct run *_Atomic run; /* NULL before the first join; written under the lock */
    int stopping;
    int waits_for_resume;      /* as in the config, until ps_service_resume */
    struct ps_restore *resume; /* what the first run goes on from; NULL: nothing */
    uint64_t first_generation; /* its */
    pthread_t ticker;
    int has_ticker;
    _Atomic uint64_t received_bytes, sent_bytes;
};

static struct net_piece piece_of(const struct ps_answer *a)
{
    return (struct net_piece){.kind = a->kind,
                              .chunk = a->chunk,
                              .step = a->step,
                              .dtype = a->dtype,
                              .crc32c = a->crc32c};
}

static void count_sent(struct ps_service *s, const struct ps_answer *a)
{
    if (a->payload)
        atomic_fetch_add_explicit(&s->sent_bytes, a->payload->bytes, memory_order_relaxed);
}

/* The store's answer to an earlier piece. Without its stream it is lost: the member asks again. */
static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct ps_answer *a)
{
    struct ps_service *s = ctx;
    struct net_piece piece = piece_of(a);
    count_sent(s, a);
    ps_streams_send(s->streams, from, head, &piece, a->payload);
}

/* The run that the caller's piece belongs to; the caller keeps a reference. Notes over which stream
 * a member speaks. NULL: no job yet. Without a lock where nothing has changed since the last piece:
 * the caller's reference keeps its run's address from being used again. */
static struct run *enter_run(struct ps_service *s, const struct net_frame_head *head,
                             struct net_stream *stream, struct caller *c)
{
    if (c->run && c->run == s->run && frame_same_head(head, &c->head))
        return c->run;
    struct run *old = c->run;
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    if (r) {
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
        if (head->generation == r->generation && head->member < (uint32_t)r->job.n_workers) {
            struct member *m = &r->members[head->member];
            if (m->incarnation == head->incarnation)
                m->stream = c->number;
        }
    }
    c->run = r;
    c->head = *head;
    pthread_mutex_unlock(&s->lock);
    if (r && !net_stream_is_local(stream))
        ps_store_sum(r->store);
    if (r) /* of each chunk, an answer to a PUSH and one to a PULL may be on their way */
        net_stream_set_limit(stream, 2 * r->n_bytes);
    run_unref(old);
    return r;
}

static void fail_stream(struct net_stream *stream, const struct net_frame_head *head,
                        uint32_t chunk, const char *why)
{
    LOG_W("piece from member %" PRIu32 " at %s refused, its stream ends: %s", head->member,
          net_stream_peer(stream), why);
    net_stream_fail(stream, head, chunk, why);
}

/* What is kept of a stream, made at its first piece; NULL if it cannot be. */
static struct caller *caller_of(struct ps_service *s, struct net_stream *stream)
{
    struct caller *c = net_stream_user(stream);
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (c)
        c->number = ps_streams_open(s->streams, stream);
    if (c && !c->number) {
        free(c);
        c = NULL;
    }
    net_stream_set_user(stream, c);
    return c;
}

static void on_piece(void *ctx, struct net_stream *stream, const struct net_frame_head *head,
                     const struct net_piece *piece)
{
    struct ps_service *s = ctx;
    struct ps_answer now;
    struct caller *c = caller_of(s, stream);
    if (!c) {
        fail_stream(stream, head, piece->chunk, "the server is out of memory or of streams");
        return;
    }
    atomic_fetch_add_explicit(&s->received_bytes, piece->payload.bytes, memory_order_relaxed);
    struct run *r = enter_run(s, head, stream, c);
    if (!r) {
        fail_stream(stream, head, piece->chunk, "this server has no job yet; Join comes first");
        return;
    }
    ps_store_piece(r->store, head, piece, c->number, &now);
    if (now.kind == PIECE_REFUSED) {
        fail_stream(stream, head, piece->chunk, now.why);
    } else if (now.kind != PIECE_NONE) {
        struct net_piece answer = piece_of(&now);
        count_sent(s, &now);
        net_stream_send(stream, head, &answer, now.payload, 0,
                        now.payload ? now.payload->bytes : 0);
    }
    buf_unref(now.payload);
}

static void on_stream_closed(void *ctx, struct net_stream *stream)
{
    struct ps_service *s = ctx;
    struct caller *c = net_stream_user(stream);
    if (!c)
        return;
    ps_streams_close(s->streams, c->number);
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    for (int i = 0; r && i < r->job.n_workers; i++)
        if (r->members[i].stream == c->number)
            r->members[i].stream = 0;
    pthread_mutex_unlock(&s->lock);
    net_stream_set_user(stream, NULL);
    run_unref(c->run);
    free(c);
}

/* A run for the job that the first member brings: fresh, or from the checkpoint that it is to go on
 * from. Under the lock, and so long: whoever joins meanwhile waits, and asks again. */
static enum status start_run(struct ps_service *s, const struct net_join *req, char *why,
                             size_t why_bytes)
{
    struct run *r = NULL;
    const struct ps_manifest *m = s->resume ? ps_restore_manifest(s->resume) : NULL;
    if (m && ps_match_restored(m, req, why, why_bytes) != ST_OK)
        return ST_MISMATCH;
    uint64_t generation = s->run ? s->run->generation + 1 : s->first_generation;
    if (s->cfg.self > 0 && req->generation > generation)
        generation = req->generation; /* ps 0's */
    struct run_config cfg = {
        .first = req,
        .n_servers = s->cfg.n_servers,
        .generation = generation,
        .restore = s->resume,
        .store = {.self = s->cfg.self,
                  .max_bytes = s->cfg.max_model_bytes,
                  .worker_hosts = s->cfg.worker_hosts,
                  .straggler_ms = s->cfg.straggler_ms,
                  .shared_memory = s->cfg.shared_memory,
                  .answer = on_answer,
                  .ctx = s},
    };
    enum status st = run_create(&cfg, &r);
    if (st == ST_RANGE)
        snprintf(why, why_bytes, "the model passes this server's --max_model_bytes=%" PRId64,
                 s->cfg.max_model_bytes);
    else if (st != ST_OK)
        snprintf(why, why_bytes, "the server cannot take this model: %s", status_text(st));
    if (st != ST_OK)
        return st;
    run_unref(s->run);
    s->run = r;
    LOG_I("job: %d parameters, %" PRId64 " elements in %d chunks; %d workers, %s, %s, %" PRId64
          " steps",
          r->chunks->n_params, r->chunks->n_elems, r->chunks->n_chunks, r->job.n_workers,
          job_sync_mode_name(r->job.sync_mode), optim_name(r->job.optim.kind), r->job.train_steps);
    if (m)
        LOG_I("goes on from step %" PRId64 ", as generation %" PRIu64, m->step, r->generation);
    ps_restore_close(s->resume);
    s->resume = NULL;
    return ST_OK;
}

/* Decides on a join; on JOIN_WELCOME s->run is the member's. Under the lock. */
static enum join_answer judge(struct ps_service *s, const struct net_join *req, char *why,
                              size_t why_bytes)
{
    if (ps_match_first(req, s->cfg.worker_hosts->n, why, why_bytes) != ST_OK)
        return JOIN_REFUSED;
    struct run *r = s->run;
    int again = r && req->member < r->job.n_workers &&
                r->members[req->member].incarnation == req->incarnation;
    if (r && r->ended && !again) {
        if (!s->cfg.serve || req->member != 0) {
            snprintf(why, why_bytes,
                     s->cfg.serve ? "the job is done; worker 0 sets the next"
                                  : "the job is done; this server is stopping");
            return JOIN_RETRY;
        }
        r = NULL;
    }
    if (!r && s->waits_for_resume) {
        snprintf(why, why_bytes, "this server waits for ps:0 to say what to go on from");
        return JOIN_RETRY;
    }
    if (!r)
        return start_run(s, req, why, why_bytes) == ST_OK ? JOIN_WELCOME : JOIN_REFUSED;
    if (ps_match_job(&r->job, r->chunks, req, why, why_bytes) != ST_OK)
        return JOIN_REFUSED;
    if (req->member < 0 || req->member >= r->job.n_workers) {
        snprintf(why, why_bytes, "the job has no place for another worker");
        return JOIN_RETRY;
    }
    if (req->generation > r->generation) {
        snprintf(
            why, why_bytes,
            "this server was not started anew, as others were, and is not in generation %" PRIu64
            "; start it again, too",
            req->generation);
        return JOIN_RETRY;
    }
    return JOIN_WELCOME;
}

/* Makes the joiner its member's present incarnation; returns the old one's stream, to be failed.
 * Under the lock. */
static uint64_t admit(struct run *r, const struct net_join *req, const char *peer)
{
    struct member *m = &r->members[req->member];
    uint64_t old = 0;
    if (m->incarnation != req->incarnation) {
        old = m->stream;
        LOG_I("worker %d joined from %s%s", req->member, peer,
              m->incarnation ? ", in the place of an earlier one" : "");
        *m = (struct member){.incarnation = req->incarnation};
    }
    m->gone = 0;
    snprintf(m->peer, sizeof m->peer, "%s", peer);
    ps_store_admit(r->store, req->member, req->incarnation);
    return old;
}

static void fill_reply(struct ps_service *s, struct run *r, const struct net_join *req,
                       struct net_join_reply *reply)
{
    size_t bytes = (size_t)r->chunks->n_chunks * sizeof *reply->server;
    reply->generation = r->generation;
    reply->step = ps_store_step(r->store);
    ps_store_segment(r->store, &reply->segment);
    if (reply->step < 0 && req->member == 0)
        reply->answer = JOIN_INIT;
    if (s->cfg.self != 0)
        return;
    reply->server = malloc(bytes);
    if (!reply->server) {
        reply->answer = JOIN_RETRY;
        snprintf(reply->why, sizeof reply->why, "the server is out of memory");
        return;
    }
    memcpy(reply->server, r->server, bytes);
    reply->n_chunks = r->chunks->n_chunks;
}

static void on_join(void *ctx, const struct net_join *req, const char *peer,
                    struct net_join_reply *reply)
{
    struct ps_service *s = ctx;
    uint64_t old = 0;
    struct run *r = NULL;
    *reply = (struct net_join_reply){.step = -1};
    pthread_mutex_lock(&s->lock);
    const struct run *had_run = s->run;
    reply->answer = judge(s, req, reply->why, sizeof reply->why);
    if (reply->answer == JOIN_WELCOME) {
        r = s->run;
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
        old = admit(r, req, peer);
    }
    int first = r && !had_run;
    pthread_mutex_unlock(&s->lock);
    if (first && s->cfg.started)
        s->cfg.started(s->cfg.ctx);
    if (!r) {
        if (reply->answer == JOIN_REFUSED)
            LOG_W("worker %d from %s refused: %s", req->member, peer, reply->why);
        else /* it asks again and again, and names us on its own side */
            LOG_D("worker %d from %s has to wait: %s", req->member, peer, reply->why);
        return;
    }
    const struct net_frame_head head = {r->generation, (uint32_t)req->member, 0};
    if (old)
        ps_streams_fail(s->streams, old, &head, "another process has joined as this worker");
    fill_reply(s, r, req, reply);
    run_unref(r);
}

static void on_leave(void *ctx, const struct net_leave *leave)
{
    struct ps_service *s = ctx;
    struct run *left = NULL; /* the run that the member has left, a reference */
    const int member = leave->member, done = leave->done;
    int over = 0;
    if (leave->soon) /* until then it goes on */
        return;
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    if (r && !r->ended && member >= 0 && member < r->job.n_workers && leave->incarnation &&
        r->members[member].incarnation == leave->incarnation) {
        r->members[member].done = done != 0;
        r->members[member].gone = !done;
        LOG_I("worker %d left%s", member, done ? "" : " before the job's end");
        over = 1;
        for (int i = 0; i < r->job.n_workers; i++)
            over = over && r->members[i].done;
        r->ended = over;
        if (over)
            r->end_ns = clock_now_ns();
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
        left = r;
    }
    pthread_mutex_unlock(&s->lock);
    if (left)
        ps_store_leave(left->store, member);
    if (over) {
        ps_stragglers_log(ps_store_stragglers(left->store));
        s->cfg.done(s->cfg.ctx);
    }
    run_unref(left);
}

/* "worker 1 (10.0.0.7:2223), worker 3, and 5 more" */
struct names {
    char text[400];
    size_t at;
    int n;
};

static void add_name(struct names *l, struct ps_service *s, int member, const char *note)
{
    if (l->n++ >= 4)
        return;
    const char *sep = l->n > 1 ? ", " : "";
    int n =
        member < s->cfg.worker_hosts->n
            ? snprintf(l->text + l->at, sizeof l->text - l->at, "%sworker %d (%.60s)%s", sep,
                       member, s->cfg.worker_hosts->addr[member], note)
            : snprintf(l->text + l->at, sizeof l->text - l->at, "%sworker %d%s", sep, member, note);
    l->at += (size_t)n < sizeof l->text - l->at ? (size_t)n : 0;
}

static void end_names(struct names *l)
{
    if (l->n > 4)
        snprintf(l->text + l->at, sizeof l->text - l->at, ", and %d more", l->n - 4);
}

/* Before the first join all are waited for, later those that have not come or went away. */
static int name_absent(struct ps_service *s, struct run *r, struct names *l)
{
    int n = r ? r->job.n_workers : s->cfg.worker_hosts->n;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n; i++) {
        const struct member *m = r ? &r->members[i] : NULL;
        if (!m || m->incarnation == 0)
            add_name(l, s, i, "");
        else if (m->gone)
            add_name(l, s, i, ", which left");
    }
    pthread_mutex_unlock(&s->lock);
    end_names(l);
    return l->n > 0 || !r;
}

static void tell_who_is_missing(struct ps_service *s, struct run *r, int64_t wait_ns)
{
    struct names absent = {.n = 0}, late = {.n = 0};
    int64_t step = 0;
    if (name_absent(s, r, &absent)) {
        LOG_I("waiting for %s to join", absent.n ? absent.text : "the first worker");
        return;
    }
    int *missing = calloc((size_t)r->job.n_workers, sizeof *missing);
    if (!missing)
        return;
    int n = ps_store_missing(r->store, clock_now_ns() - wait_ns, missing, &step);
    for (int i = 0; n > 0 && i < r->job.n_workers; i++)
        if (missing[i])
            add_name(&late, s, i, "");
    end_names(&late);
    if (late.n > 0)
        LOG_W("step %" PRId64 " waits for %s", step, late.text);
    free(missing);
}

static void *ticker_main(void *arg)
{
    struct ps_service *s = arg;
    int64_t ms = s->cfg.wait_line_ms > 0 ? s->cfg.wait_line_ms : 5000;
    int64_t deadline = clock_deadline_ns(ms);
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        if (clock_cond_wait(&s->wake, &s->lock, deadline) == 0)
            continue;
        deadline = clock_deadline_ns(ms);
        struct run *r = s->run;
        if (r && r->ended)
            continue;
        if (r)
            atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
        pthread_mutex_unlock(&s->lock);
        tell_who_is_missing(s, r, ms * 1000000);
        run_unref(r);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

enum status ps_service_create(const struct ps_service_config *cfg, struct ps_service **out)
{
    struct ps_service *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->cfg = *cfg;
    s->waits_for_resume = cfg->waits_for_resume;
    s->first_generation = 1;
    if (ps_streams_create(&s->streams) != ST_OK) {
        free(s);
        return ST_NOMEM;
    }
    pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->wake);
    s->has_ticker = pthread_create(&s->ticker, NULL, ticker_main, s) == 0;
    if (!s->has_ticker) {
        LOG_E("no thread could be started; raise the limit on processes");
        ps_service_destroy(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

void ps_service_destroy(struct ps_service *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->has_ticker)
        pthread_join(s->ticker, NULL);
    run_unref(s->run);
    ps_restore_close(s->resume);
    ps_streams_destroy(s->streams);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void on_control(void *ctx, struct net_server *server, const struct net_control *request,
                       uint64_t call)
{
    struct ps_service *s = ctx;
    if (s->cfg.control)
        s->cfg.control(s->cfg.ctx, server, request, call);
    else
        net_server_control_reply(server, call, NULL);
}

struct net_server_handler ps_service_handler(struct ps_service *s)
{
    return (struct net_server_handler){.ctx = s,
                                       .join = on_join,
                                       .leave = on_leave,
                                       .control = on_control,
                                       .piece = on_piece,
                                       .stream_closed = on_stream_closed};
}

void ps_service_resume(struct ps_service *s, struct ps_restore *take, uint64_t generation)
{
    pthread_mutex_lock(&s->lock);
    s->first_generation = generation;
    s->waits_for_resume = 0;
    struct ps_restore *old = s->resume;
    s->resume = take;
    pthread_mutex_unlock(&s->lock);
    ps_restore_close(old);
}

struct run *ps_service_run(struct ps_service *s, int *ended)
{
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run ? run_ref(s->run) : NULL;
    *ended = r && r->ended;
    pthread_mutex_unlock(&s->lock);
    return r;
}

void ps_service_stats(struct ps_service *s, struct ps_service_stats *out)
{
    *out = (struct ps_service_stats){.steps = -1};
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    if (r) {
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
        int64_t end = r->ended ? r->end_ns : clock_now_ns();
        out->seconds = (double)(end - r->start_ns) * 1e-9;
    }
    pthread_mutex_unlock(&s->lock);
    out->received_bytes = atomic_load(&s->received_bytes);
    out->sent_bytes = atomic_load(&s->sent_bytes);
    if (r)
        out->steps = ps_store_step(r->store);
    run_unref(r);
}

enum status ps_service_late(struct ps_service *s, struct ps_late_total **out, int *n)
{
    *n = 0;
    *out = NULL;
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    if (r)
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&s->lock);
    if (!r)
        return ST_OK;
    struct ps_late_total *totals = calloc((size_t)r->job.n_workers, sizeof *totals);
    for (int i = 0; totals && i < r->job.n_workers; i++)
        ps_stragglers_total(ps_store_stragglers(r->store), i, &totals[i]);
    if (totals) {
        *n = r->job.n_workers;
        *out = totals;
    }
    run_unref(r);
    return totals ? ST_OK : ST_NOMEM;
}
