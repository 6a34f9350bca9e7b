/* ps/region/region.c - see region.h: what a region's store asks and tells, and who waits for it.
 * Locks: a chunk's (the store's), then the region's. */
#include "base/aligned.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "kernels/vector/dtype.h"
#include "ps/region/region_impl.h"
#include "ps/service/service.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ps_adoption as_computed = {.to = NULL};
enum { GRACE_MS = 5000, DRIFT_WAIT_MS = 500, LEAVE_MS = 5000, WHY_BYTES = 512 };

/* The last version is one, and none so shortly before it that its exchange would not be over. */
int ps_region_is_gate(const struct ps_region_config *cfg, int64_t version, int64_t train_steps)
{
    return version == train_steps ||
           (version > 0 && version % cfg->steps == 0 && version < train_steps - cfg->overlap);
}

int64_t ps_region_gates(const struct ps_region_config *cfg, int64_t version, int64_t train_steps)
{
    int64_t before_last = train_steps - cfg->overlap - 1;
    int64_t most = before_last > 0 ? before_last / cfg->steps : 0;
    if (version >= train_steps)
        return most + 1;
    return version / cfg->steps < most ? version / cfg->steps : most;
}

int64_t ps_region_gate_version(const struct ps_region_config *cfg, int64_t n, int64_t train_steps)
{
    return n >= ps_region_gates(cfg, train_steps, train_steps) ? train_steps : n * cfg->steps;
}

static int waits(void *ctx, int64_t version, int64_t train_steps)
{
    struct ps_region *r = ctx;
    if (ps_region_is_gate(&r->cfg, version, train_steps))
        return 1;
    pthread_mutex_lock(&r->lock);
    int must = r->is_alone;
    for (int i = 0; r->pieces && i < r->chunks->n_chunks; i++) /* made again: adopted again */
        must |= r->pieces[i].adopted == version;
    pthread_mutex_unlock(&r->lock);
    return must;
}

/* A contribution is of the version that the gate less the overlap has, or of the first one after
 * it that is seen: of the gate itself at the latest, also while the parent is not known yet. */
static void made(void *ctx, int chunk, int64_t version, int waits_now, struct buf *value)
{
    struct ps_region *r = ctx;
    pthread_mutex_lock(&r->lock);
    struct piece *p = &r->pieces[chunk];
    if (waits_now) {
        p->waiting = version;
        p->since_ns = clock_now_ns();
    }
    int is_new = version > p->adopted; /* else a generation that ended has it made again */
    if (is_new && !p->sent && (waits_now || (p->due >= 0 && version >= p->due - r->cfg.overlap))) {
        p->sent = buf_ref(value);
        p->sent_at = version;
    }
    if (waits_now && p->due >= 0 && version >= r->train_steps) {
        buf_unref(p->last);
        p->last = buf_ref(value);
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void first(void *ctx, int chunk, const struct net_payload *value)
{
    struct ps_region *r = ctx;
    pthread_mutex_lock(&r->lock);
    if (!r->pieces[chunk].proposed)
        payload_copy(value, r->base + r->chunks->chunks[chunk].first);
    r->pieces[chunk].proposed = 1;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static int64_t slots_since(void *ctx)
{
    struct ps_region *r = ctx;
    pthread_mutex_lock(&r->lock);
    int64_t since = r->slots_since;
    pthread_mutex_unlock(&r->lock);
    return since;
}

struct run *region_run(const struct ps_region *r)
{
    int ended;
    struct run *run = ps_service_run(r->service, &ended);
    if (!run || run->self >= 0)
        return run;
    run_unref(run);
    return NULL;
}

/* Has the version of the chunk made that waits; 0: it does not wait any more. */
static int adopt_now(struct ps_region *r, int chunk, int64_t version, const struct ps_adoption *how)
{
    struct run *run = region_run(r);
    pthread_mutex_lock(&r->lock);
    if (r->pieces[chunk].waiting == version)
        r->pieces[chunk].waiting = -1; /* a generation that ended there comes to it again */
    pthread_mutex_unlock(&r->lock);
    int made_now = run && ps_store_adopt(run->store, chunk, version, how);
    if (run)
        run_unref(run);
    return made_now;
}

int region_is_held(const struct ps_region *r, const struct piece *p)
{
    return p->waiting > p->adopted && p->waiting > r->let_go;
}

void region_make_own(struct ps_region *r, int chunk, int64_t version)
{
    adopt_now(r, chunk, version, &as_computed);
}

/* A generation of the region's has ended after the chunk was adopted, and before all were: it waits
 * again, with a version that it had. Under the lock, which is given away meanwhile. */
static void adopt_again(struct ps_region *r, int chunk)
{
    struct piece *p = &r->pieces[chunk];
    int64_t version = p->waiting;
    int same = version == p->adopted, kept = same && p->kept;
    struct buf *used = same && p->used ? buf_ref(p->used) : NULL;
    const struct ps_adoption how = {kept ? NULL : r->base + r->chunks->chunks[chunk].first,
                                    used ? (const float *)used->data : NULL, p->mixed,
                                    r->cfg.overlap_mix};
    pthread_mutex_unlock(&r->lock);
    adopt_now(r, chunk, version, &how);
    buf_unref(used);
    pthread_mutex_lock(&r->lock);
}

/* Under the lock: until something has changed, or a chunk was adopted again. Whatever is waited
 * for, it may need any of them: workers go on only with all chunks. */
static void await_change(struct ps_region *r)
{
    int again = 0;
    while (again < r->chunks->n_chunks &&
           (r->pieces[again].waiting < 0 || r->pieces[again].waiting > r->pieces[again].adopted))
        again++;
    if (again < r->chunks->n_chunks)
        adopt_again(r, again);
    else
        pthread_cond_wait(&r->changed, &r->lock);
}

/* Waits until the chunk has something to contribute (wants_sent), or is held; under the lock. */
static enum status await_piece(struct ps_region *r, int chunk, int wants_sent)
{
    const struct piece *p = &r->pieces[chunk];
    while (!r->stopping && !(wants_sent ? p->sent != NULL : region_is_held(r, p)))
        await_change(r);
    return r->stopping ? ST_CANCELLED : ST_OK;
}

void region_linger(struct ps_region *r)
{
    pthread_mutex_lock(&r->lock);
    while (!r->stopping)
        await_change(r);
    pthread_mutex_unlock(&r->lock);
}

static int64_t next_gate(const struct ps_region *r, int64_t version)
{
    int64_t gate = ps_region_gates(&r->cfg, version, r->train_steps);
    return gate < r->n_gates ? ps_region_gate_version(&r->cfg, gate + 1, r->train_steps) : -1;
}

/* A reference to what the chunk's change is counted from: what was contributed, or a copy. */
static enum status keep_from(const struct piece *p, const float *from, size_t bytes,
                             struct buf **out)
{
    enum status st = ST_OK;
    if (p->sent && from == (const float *)p->sent->data) {
        *out = buf_ref(p->sent);
        return ST_OK;
    }
    TRY(buf_create(bytes, out));
    memcpy((*out)->data, from, bytes);
done:
    return st;
}

/* Under the lock: what the chunk makes from now on is for the next gate. */
static void retire(struct ps_region *r, struct piece *p, int64_t version, struct buf *used)
{
    buf_unref(p->used);
    p->used = used ? buf_ref(used) : NULL;
    buf_unref(p->sent);
    p->sent = NULL;
    p->sent_at = -1;
    p->due = next_gate(r, version);
    p->adopted = version;
    p->answered = 0;
    r->is_alone = 0; /* all chunks have been answered */
}

void region_adopts(struct ps_region *r, int64_t version)
{
    size_t bytes = (size_t)r->chunks->n_elems * sizeof(float);
    uint32_t crc32c = digest_crc32c(0, r->base, bytes);
    pthread_mutex_lock(&r->lock);
    r->adopting = (struct ps_parent_version){1, version, crc32c, r->slots_since};
    pthread_mutex_unlock(&r->lock);
}

void region_note(struct ps_region *r, int64_t from, const struct ps_parent_version *parent)
{
    if (r->n_adoptions > 0 && r->adoptions[r->n_adoptions - 1].from == from)
        return; /* another chunk of it */
    if (r->n_adoptions == N_ADOPTIONS)
        memmove(r->adoptions, r->adoptions + 1, (N_ADOPTIONS - 1) * sizeof *r->adoptions);
    r->n_adoptions -= r->n_adoptions == N_ADOPTIONS;
    r->adoptions[r->n_adoptions++] = (struct adoption){from, *parent};
}

void ps_region_parent_at(struct ps_region *r, int64_t version, struct ps_parent_version *out)
{
    pthread_mutex_lock(&r->lock);
    *out = r->restored; /* until the parent has been reached, and of versions before the list */
    for (int i = 0; i < r->n_adoptions && r->adoptions[i].from <= version; i++)
        *out = r->adoptions[i].parent;
    pthread_mutex_unlock(&r->lock);
}

enum status region_adopt(struct ps_region *r, int chunk, const float *to, const float *from)
{
    struct piece *p = &r->pieces[chunk];
    struct buf *used = NULL;
    size_t bytes = (size_t)r->chunks->chunks[chunk].n_elems * sizeof(float);
    pthread_mutex_lock(&r->lock);
    p->answered = 1;
    enum status st = await_piece(r, chunk, 0);
    if (st == ST_OK && from)
        st = keep_from(p, from, bytes, &used);
    if (st != ST_OK) {
        pthread_mutex_unlock(&r->lock);
        return st;
    }
    int64_t version = p->waiting;
    /* where what was contributed is what waits it becomes the parent's, whose bits the sum of
     * differences need not have; and so it is for all regions at the end */
    int last = version >= r->train_steps;
    int counted = p->sent && from == (const float *)p->sent->data;
    int whole = last || (counted && version == p->sent_at);
    to = last ? r->base + r->chunks->chunks[chunk].first : to;
    r->gate_since_ns = p->since_ns > r->gate_since_ns ? p->since_ns : r->gate_since_ns;
    retire(r, p, version, whole ? NULL : used);
    p->kept = !to;
    p->mixed = counted && r->cfg.overlap_mix >= 0;
    const struct ps_adoption how = {to, whole ? NULL : from, p->mixed, r->cfg.overlap_mix};
    region_note(r, version, &r->adopting); /* before there is such a version */
    pthread_mutex_unlock(&r->lock);
    /* where it does not wait any more, its next generation comes to it again */
    adopt_now(r, chunk, version, &how);
    buf_unref(used);
    return ST_OK;
}

enum status region_hold(struct ps_region *r)
{
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->chunks->n_chunks; i++)
        r->pieces[i].answered = 1;
    enum status st = ST_OK;
    for (int i = 0; i < r->chunks->n_chunks && st == ST_OK; i++)
        st = await_piece(r, i, 0);
    pthread_mutex_unlock(&r->lock);
    return st;
}

void region_contribute_rest(struct ps_region *r, int chunk)
{
    const struct net_chunk *c = &r->chunks->chunks[chunk];
    struct piece *p = &r->pieces[chunk];
    pthread_mutex_lock(&r->lock);
    if (p->last && p->sent && p->sent_at < r->train_steps) {
        if (p->counted) /* else the next contribution has both */
            memcpy(r->before + c->first, p->sent->data, (size_t)c->n_elems * sizeof(float));
        buf_unref(p->sent);
        p->sent = buf_ref(p->last);
        p->sent_at = r->train_steps;
        p->counted = 0;
    }
    pthread_mutex_unlock(&r->lock);
}

void region_name_parents(const struct ps_region *r, char text[REGION_NAME_BYTES])
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < r->cfg.parents->n && n < REGION_NAME_BYTES; i++)
        n += (size_t)snprintf(text + n, REGION_NAME_BYTES - n, "%s%s", i > 0 ? "," : "",
                              r->cfg.parents->addr[i]);
}

int region_at_end(struct ps_region *r)
{
    pthread_mutex_lock(&r->lock);
    int is_last = r->due == r->train_steps;
    for (int i = 0; i < r->chunks->n_chunks; i++)
        is_last |= r->pieces[i].waiting == r->train_steps;
    pthread_mutex_unlock(&r->lock);
    return is_last;
}

enum status region_contribution(struct ps_region *r, int chunk, const float **value)
{
    struct piece *p = &r->pieces[chunk];
    pthread_mutex_lock(&r->lock);
    enum status st = await_piece(r, chunk, 1);
    *value = p->sent ? (const float *)p->sent->data : NULL;
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* Under the lock; a chunk may have waited before the time began. */
static int64_t waited_since(const struct ps_region *r, int64_t since_ns)
{
    return clock_now_ns() - (since_ns > r->began_ns ? since_ns : r->began_ns);
}

void region_forget(struct ps_region *r)
{
    int64_t version = r->train_steps;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->chunks->n_chunks; i++)
        version = r->pieces[i].adopted < version ? r->pieces[i].adopted : version;
    r->gate = ps_region_gates(&r->cfg, version, r->train_steps);
    r->due = next_gate(r, version);
    /* from the moment when all chunks waited, which workers need of all, to the last one's answer
     */
    if (r->gate_since_ns > 0)
        r->waited_ns += waited_since(r, r->gate_since_ns);
    r->gate_since_ns = 0;
    pthread_mutex_unlock(&r->lock);
}

/* Under the lock: a chunk that waits for the parent longer than it should, at a version that may be
 * made without; -1: none does. */
static int find_drifting(const struct ps_region *r, int64_t *version)
{
    int64_t now = clock_now_ns();
    for (int i = 0; r->pieces && i < r->chunks->n_chunks; i++) {
        const struct piece *p = &r->pieces[i];
        int long_enough = r->is_alone || now - p->since_ns >= GRACE_MS * INT64_C(1000000);
        int may_go = !p->answered && r->due >= 0 && long_enough &&
                     p->waiting < r->due + r->cfg.max_drift && p->waiting < r->train_steps;
        /* when one chunk of a version has gone, so do the others */
        if (p->waiting > p->adopted && (may_go || p->waiting <= r->let_go)) {
            *version = p->waiting;
            return i;
        }
    }
    return -1;
}

static void *drift_main(void *ctx)
{
    struct ps_region *r = ctx;
    pthread_mutex_lock(&r->lock);
    while (!r->stopping) {
        int64_t version;
        int chunk = find_drifting(r, &version);
        if (chunk < 0) {
            clock_cond_wait(&r->changed, &r->lock, clock_deadline_ns(DRIFT_WAIT_MS));
            continue;
        }
        if (!r->is_alone)
            LOG_W("region %d: no answer of the parent group at step %" PRId64
                  ": the region goes on alone, for %" PRId64 " steps at most",
                  r->cfg.index, version, r->cfg.max_drift);
        if (!r->is_alone)
            r->waited_ns += waited_since(r, r->pieces[chunk].since_ns);
        r->is_alone = 1;
        r->let_go = version > r->let_go ? version : r->let_go;
        pthread_mutex_unlock(&r->lock);
        adopt_now(r, chunk, version, &as_computed);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

enum status ps_region_create(const struct ps_region_config *cfg, struct ps_region **out)
{
    struct ps_region *r = calloc(1, sizeof *r);
    if (!r)
        return ST_NOMEM;
    r->cfg = *cfg;
    r->outer = (struct ps_outer){waits, made, first, slots_since, r};
    r->due = -1;
    pthread_mutex_init(&r->lock, NULL);
    clock_cond_init(&r->changed);
    *out = r;
    return ST_OK;
}

const struct ps_outer *ps_region_outer(struct ps_region *r)
{
    return &r->outer;
}

/* Under the lock. */
static void free_job(struct ps_region *r)
{
    for (int i = 0; r->pieces && i < r->chunks->n_chunks; i++) {
        buf_unref(r->pieces[i].sent);
        buf_unref(r->pieces[i].used);
        buf_unref(r->pieces[i].last);
    }
    chunks_destroy(r->chunks);
    free(r->pieces);
    free(r->base);
    free(r->before);
    free(r->change);
    free(r->fragment);
    r->fragment = NULL;
    r->chunks = NULL;
    r->pieces = NULL;
    r->base = r->before = r->change = NULL;
}

/* Under the lock: what the job that comes needs. */
static enum status take_job(struct ps_region *r, const struct chunks *c)
{
    enum status st = ST_OK;
    size_t bytes = (size_t)c->n_elems * sizeof(float);
    char differs[WHY_BYTES];
    if (r->chunks && chunks_compare(r->chunks, c, differs, sizeof differs) == ST_OK)
        return ST_OK; /* its first worker's values may have come already */
    free_job(r);
    TRY(chunks_create(c->params, c->n_params, c->chunk_bytes, &r->chunks));
    r->pieces = calloc((size_t)c->n_chunks, sizeof *r->pieces);
    r->base = aligned_take(bytes);
    r->before = aligned_take(bytes);
    r->change = aligned_take(bytes);
    TRY(r->pieces && r->base && r->before && r->change ? ST_OK : ST_NOMEM);
    for (int i = 0; i < c->n_chunks; i++)
        r->pieces[i].waiting = r->pieces[i].sent_at = r->pieces[i].due = -1;
done:
    if (st != ST_OK)
        free_job(r);
    return st;
}

enum status ps_region_check(struct ps_region *r, const struct net_join *join, char *why,
                            size_t why_bytes)
{
    const struct net_job *job = &join->job;
    const char *wrong = NULL;
    if (!job_in_lockstep(job))
        wrong = "a region trains with --sync_mode=sync without backup workers";
    else if (job_sends_changes(job))
        wrong = "in a region servers send whole parameters: --wire_dtype=int8,fp32 sends "
                "gradients alone in int8";
    else if (job->validation.patience > 0)
        wrong = "--early_stopping would end the job in one region alone";
    else if (job->train_steps > 0 && job->train_steps <= r->cfg.overlap)
        wrong = "the job has no more steps than --overlap_steps";
    if (!wrong && r->cfg.fragments > 1 && r->cfg.fragments > join->chunks->n_chunks) {
        snprintf(why, why_bytes,
                 "--fragments=%d of the region's server, but the model has %d chunk(s) of %" PRId64
                 " bytes at most: give fewer fragments there, or a smaller --chunk_bytes here",
                 r->cfg.fragments, join->chunks->n_chunks, join->chunks->chunk_bytes);
        return ST_INVALID;
    }
    if (wrong) {
        snprintf(why, why_bytes, "%s", wrong);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status ps_region_take(struct ps_region *r, const struct chunks *chunks,
                           const struct ps_parent_version *restored)
{
    pthread_mutex_lock(&r->lock);
    r->restored = *restored;
    r->slots_since = restored->known ? restored->slots_since : 0;
    enum status st = take_job(r, chunks);
    pthread_mutex_unlock(&r->lock);
    return st;
}

enum status ps_region_start(struct ps_region *r, struct ps_service *service)
{
    r->service = service;
    r->has_thread = pthread_create(&r->thread, NULL, region_exchange_main, r) == 0;
    r->has_watch_thread = pthread_create(&r->watch_thread, NULL, region_watch_main, r) == 0;
    if (r->cfg.max_drift > 0)
        r->has_drift_thread = pthread_create(&r->drift_thread, NULL, drift_main, r) == 0;
    if (r->has_thread && r->has_watch_thread && (r->has_drift_thread || r->cfg.max_drift <= 0))
        return ST_OK;
    LOG_E("no thread to be had for the exchange with the parent group");
    return ST_NOMEM;
}

void ps_region_wake(struct ps_region *r)
{
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* All steps are made: the exchange comes to its end by itself, also where this process was started
 * with them, and has only just begun to join. Cancelled now, it would leave the parent without a
 * goodbye; one that is not there is not waited for longer than for that. */
static void await_end(struct ps_region *r)
{
    int64_t deadline = clock_deadline_ns(LEAVE_MS);
    struct run *run = r->has_thread ? region_run(r) : NULL;
    int complete = run && ps_store_step(run->store) >= run->job.train_steps;
    if (run)
        run_unref(run);
    pthread_mutex_lock(&r->lock);
    while (complete && !r->ended && clock_cond_wait(&r->changed, &r->lock, deadline) == 0)
        ;
    pthread_mutex_unlock(&r->lock);
}

void ps_region_stop(struct ps_region *r, const char *error)
{
    if (!r)
        return;
    if (!error)
        await_end(r);
    pthread_mutex_lock(&r->lock);
    r->stopping = 1;
    struct net_exchange *x = r->done ? NULL : r->x;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (x)
        net_exchange_cancel(x);
    if (r->has_thread)
        pthread_join(r->thread, NULL);
    if (r->has_drift_thread)
        pthread_join(r->drift_thread, NULL);
    if (r->has_watch_thread)
        pthread_join(r->watch_thread, NULL);
    r->has_thread = r->has_drift_thread = r->has_watch_thread = 0;
    if ((r->done || error) && r->x)
        net_exchange_leave_failed(r->x, r->done && r->step >= r->n_gates, error ? error : "",
                                  LEAVE_MS);
    net_exchange_destroy(r->x);
    r->x = NULL;
}

void ps_region_destroy(struct ps_region *r)
{
    if (!r)
        return;
    ps_region_stop(r, NULL);
    free_job(r);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    free(r);
}
