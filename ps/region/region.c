/* ps/region/region.c - see region.h: the hooks of a region's store, and the waits for its chunks.
 * Locks:   a chunk's (of the store), then the region's. */
#include "base/aligned.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/threads.h"
#include "kernels/vector/dtype.h"
#include "ps/region/region_chunks.h"
#include "ps/service/service.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRACE_MS = 5000, DRIFT_WAIT_MS = 500, LEAVE_MS = 5000, WHY_BYTES = 512 };

static struct net_gates gates_of(const struct ps_region_config *cfg)
{
    return (struct net_gates){.steps = cfg->steps, .overlap = cfg->overlap};
}

bool ps_region_is_gate(const struct ps_region_config *cfg, int64_t version, int64_t train_steps)
{
    const struct net_gates g = gates_of(cfg);
    return net_plan_gates_has(&g, version, train_steps);
}

int64_t ps_region_gates(const struct ps_region_config *cfg, int64_t version, int64_t train_steps)
{
    const struct net_gates g = gates_of(cfg);
    return net_plan_gates_up_to(&g, version, train_steps);
}

int64_t ps_region_gate_version(const struct ps_region_config *cfg, int64_t n, int64_t train_steps)
{
    const struct net_gates g = gates_of(cfg);
    return net_plan_gates_version(&g, n, train_steps);
}

bool region_must_wait(struct ps_region *r, int64_t version, int64_t train_steps)
{
    const struct piece *pieces = region_rewind_pieces(r);
    int must = r->is_alone || ps_region_is_gate(&r->cfg, version, train_steps);
    /* a chunk that adopted this version before a generation ended makes the version again */
    for (int i = 0; pieces && i < r->chunks->n_chunks; i++)
        must |= pieces[i].adopted == version;
    return must;
}

static int on_waits(void *ctx, int64_t version, int64_t train_steps)
{
    struct ps_region *r = ctx;
    pthread_mutex_lock(&r->lock);
    bool must = region_must_wait(r, version, train_steps);
    pthread_mutex_unlock(&r->lock);
    return must;
}

/* Records that a version was made. The contribution to a gate is the first version of the chunk
 * that is made in the last `overlap` versions before the gate, or at the latest the gate's
 * version. While the parent's step is unknown, the contribution is the version that waits. */
void region_made(struct ps_region *r, int chunk, int64_t version, int waits_now, struct buf *value)
{
    struct piece *p = &region_rewind_pieces(r)[chunk];
    if (waits_now) {
        p->waiting = version;
        p->since_ns = clock_now_ns();
    }
    /* false: a version that the chunk has adopted before is made again */
    bool is_new = version > p->adopted;
    if (is_new && !p->sent && (waits_now || (p->due >= 0 && version >= p->due - r->cfg.overlap))) {
        p->sent = buf_ref(value);
        p->sent_at = version;
    }
    if (waits_now && p->due >= 0 && version >= r->train_steps) {
        buf_unref(p->last);
        p->last = buf_ref(value);
    }
    pthread_cond_broadcast(&r->changed);
}

static void on_made(void *ctx, int chunk, int64_t version, int waits_now, struct buf *value)
{
    struct ps_region *r = ctx;
    pthread_mutex_lock(&r->lock);
    region_made(r, chunk, version, waits_now, value);
    pthread_mutex_unlock(&r->lock);
}

/* Stores the initial value of a chunk: in `base`, or in the chunk's `proposal` while the exchange
 * that is ending still uses `base`. */
void region_first(struct ps_region *r, int chunk, const struct net_payload *value)
{
    struct piece *p = &region_rewind_pieces(r)[chunk];
    if (p->proposed)
        return;
    if (!r->next)
        payload_copy(value, r->base + r->chunks->chunks[chunk].first);
    else if (buf_create(value->bytes, &p->proposal) == ST_OK)
        payload_copy(value, p->proposal->data);
    else
        region_chunks_no_memory(r);
    p->proposed = 1;
    pthread_cond_broadcast(&r->changed);
}

static void on_first(void *ctx, int chunk, const struct net_payload *value)
{
    struct ps_region *r = ctx;
    pthread_mutex_lock(&r->lock);
    region_first(r, chunk, value);
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
    struct run *run = service_run(r->service, &ended);
    if (!run || run->self >= 0)
        return run;
    run_unref(run);
    return NULL;
}

/* Completes the chunk's version that waits for the parent's values. Returns false if the version no
 * longer waits. The function clears `waiting` before it looks up the present run: if a generation
 * begins at the same time, its store may reach the version again and set `waiting` again, and this
 * second wait must stay. */
static bool adopt_now(struct ps_region *r, const struct region_chunk_adoption *w)
{
    pthread_mutex_lock(&r->lock);
    if (!r->next && r->pieces[w->chunk].waiting == w->version)
        r->pieces[w->chunk].waiting = -1;
    pthread_mutex_unlock(&r->lock);
    struct run *run = region_run(r);
    pthread_mutex_lock(&r->lock);
    /* true: the region goes back to a checkpoint. `next` is set before the run exists that
     * begins there, and whose versions must not change here */
    int over = r->next != NULL;
    pthread_mutex_unlock(&r->lock);
    int made_now = run && !over && region_chunks_adopt(r, run, w);
    if (run)
        run_unref(run);
    return made_now;
}

bool region_is_held(const struct ps_region *r, const struct piece *p)
{
    return p->waiting > p->adopted && p->waiting > r->let_go;
}

void region_make_own(struct ps_region *r, int chunk, int64_t version)
{
    adopt_now(r, &(struct region_chunk_adoption){.chunk = chunk, .version = version});
}

/* Adopts the parent's version again for a chunk. This is needed if a generation of the region ended
 * when only some chunks had adopted it: the next generation resumes before that version, and the
 * chunk waits again. The caller holds the lock, which is released during the adoption. */
static void adopt_again(struct ps_region *r, int chunk) REQUIRES(r->lock)
{
    struct piece *p = &r->pieces[chunk];
    int64_t version = p->waiting;
    int same = version == p->adopted, kept = same && p->kept;
    struct buf *used = same && p->used ? buf_ref(p->used) : NULL;
    const struct outer_adoption how = {kept ? NULL : r->base + r->chunks->chunks[chunk].first,
                                       used ? (const float *)used->data : NULL, p->mixed,
                                       r->cfg.overlap_mix};
    pthread_mutex_unlock(&r->lock);
    adopt_now(r, &(struct region_chunk_adoption){chunk, version, how, 0});
    buf_unref(used);
    pthread_mutex_lock(&r->lock);
}

/* Waits until something has changed, or a chunk was adopted again. A wait for one chunk also adopts
 * other chunks again, because workers continue only when they have all chunks. The caller holds the
 * lock. */
static void await_change(struct ps_region *r) REQUIRES(r->lock)
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

/* Waits until the chunk has a contribution, if wants_sent is set; otherwise until the chunk is held
 * (region_is_held). */
static enum status await_piece(struct ps_region *r, int chunk, int wants_sent) REQUIRES(r->lock)
{
    const struct piece *p = &r->pieces[chunk];
    while (!region_rewind_is_due(r) && !(wants_sent ? p->sent != NULL : region_is_held(r, p)))
        await_change(r);
    return region_rewind_is_due(r) ? ST_CANCELLED : ST_OK;
}

void region_linger(struct ps_region *r)
{
    pthread_mutex_lock(&r->lock);
    while (!region_rewind_is_due(r))
        await_change(r);
    pthread_mutex_unlock(&r->lock);
}

static int64_t next_gate(const struct ps_region *r, int64_t version)
{
    int64_t gate = ps_region_gates(&r->cfg, version, r->train_steps);
    return gate < r->n_gates ? ps_region_gate_version(&r->cfg, gate + 1, r->train_steps) : -1;
}

/* Returns a reference to the value that the chunk's change is counted from: the contribution, or a
 * copy. */
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

/* Ends the round of the chunk; later versions of the chunk belong to the next gate. The caller
 * holds the lock. */
static void retire_value(struct ps_region *r, struct piece *p, int64_t version, struct buf *used)
{
    buf_unref(p->used);
    p->used = used ? buf_ref(used) : NULL;
    buf_unref(p->sent);
    p->sent = NULL;
    p->sent_at = -1;
    p->due = next_gate(r, version);
    p->adopted = version;
    p->answered = 0;
    r->is_alone = 0; /* the parent has answered for all chunks */
}

void region_adopts(struct ps_region *r, int64_t version)
{
    size_t bytes = (size_t)r->chunks->n_elems * sizeof(float);
    uint32_t crc32c = digest_crc32c(0, r->base, bytes);
    pthread_mutex_lock(&r->lock);
    r->adopting = (struct checkpoint_parent_version){1, version, crc32c, r->slots_since};
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
    /* Two versions become exactly the parent's version: the contributed one, and the job's last
     * one. For these the difference is not added to the computed value, since rounding could
     * result in other bits. */
    int last = version >= r->train_steps;
    int counted = p->sent && from == (const float *)p->sent->data;
    int whole = last || (counted && version == p->sent_at);
    to = last ? r->base + r->chunks->chunks[chunk].first : to;
    r->gate_since_ns = p->since_ns > r->gate_since_ns ? p->since_ns : r->gate_since_ns;
    retire_value(r, p, version, whole ? NULL : used);
    p->kept = !to;
    p->mixed = counted && r->cfg.overlap_mix >= 0;
    const struct outer_adoption how = {to, whole ? NULL : from, p->mixed, r->cfg.overlap_mix};
    region_rewind_note(r, version, &r->adopting); /* recorded before the version exists */
    pthread_mutex_unlock(&r->lock);
    /* If the version no longer waits, the next generation computes it again. */
    adopt_now(r, &(struct region_chunk_adoption){chunk, version, how, 0});
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
        if (p->counted) /* false: the next contribution includes the changes of this one */
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

bool region_at_end(struct ps_region *r)
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

/* Returns the time that has passed since `since_ns`, but not more than the time since the job
 * began. The caller holds the lock. */
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
    /* waited_ns counts from the time when all chunks waited (until then workers still compute) to
     * the last answer */
    if (r->gate_since_ns > 0)
        r->waited_ns += waited_since(r, r->gate_since_ns);
    r->gate_since_ns = 0;
    pthread_mutex_unlock(&r->lock);
}

/* Finds a chunk that has waited too long for the parent, with a version that may be made without
 * the parent; -1: none. The caller holds the lock. */
static int find_drifting(const struct ps_region *r, int64_t *version)
{
    int64_t now = clock_now_ns();
    for (int i = 0; r->pieces && !r->next && i < r->chunks->n_chunks; i++) {
        const struct piece *p = &r->pieces[i];
        int long_enough = r->is_alone || now - p->since_ns >= GRACE_MS * INT64_C(1000000);
        int may_go = !p->answered && r->due >= 0 && long_enough &&
                     p->waiting < r->due + r->cfg.max_drift && p->waiting < r->train_steps;
        /* once a chunk has made a version without the parent, all other chunks may make that
         * version */
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
            LOG_W("region %d: no answer from the parent group at step %" PRId64
                  ": the region continues alone, for %" PRId64 " steps at most",
                  r->cfg.index, version * r->steps_each, r->asked.max_drift);
        if (!r->is_alone)
            r->waited_ns += waited_since(r, r->pieces[chunk].since_ns);
        r->is_alone = 1;
        r->let_go = version > r->let_go ? version : r->let_go;
        pthread_mutex_unlock(&r->lock);
        adopt_now(r,
                  &(struct region_chunk_adoption){.chunk = chunk, .version = version, .alone = 1});
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
    r->cfg = r->asked = *cfg;
    r->steps_each = 1;
    r->outer = (struct outer_hooks){on_waits, on_made, on_first, slots_since, r};
    r->due = -1;
    pthread_mutex_init(&r->lock, NULL);
    clock_cond_init(&r->changed);
    enum status st = region_chunks_create(r);
    if (st == ST_OK)
        *out = r;
    else
        ps_region_destroy(r);
    return st;
}

const struct outer_hooks *ps_region_outer(struct ps_region *r)
{
    return &r->outer;
}

/* Frees the job. The caller holds the lock. */
static void free_job(struct ps_region *r)
{
    if (r->chunks) {
        region_rewind_drop_pieces(r->pieces, r->chunks->n_chunks);
        region_rewind_drop_pieces(r->next, r->chunks->n_chunks);
    }
    chunks_destroy(r->chunks);
    free(r->pieces);
    free(r->next);
    free(r->base);
    free(r->before);
    free(r->change);
    free(r->fragment);
    r->fragment = NULL;
    r->chunks = NULL;
    r->pieces = r->next = NULL;
    r->base = r->before = r->change = NULL;
}

/* Allocates the state of a new job. The caller holds the lock. */
static enum status take_job(struct ps_region *r, const struct chunks *c)
{
    enum status st = ST_OK;
    size_t bytes = (size_t)c->n_elems * sizeof(float);
    char differs[WHY_BYTES];
    if (r->chunks && chunks_compare(r->chunks, c, differs, sizeof differs) == ST_OK)
        /* the chunks are the same; the first worker's values may be in `base` already */
        return ST_OK;
    free_job(r);
    TRY(chunks_copy(c, &r->chunks));
    r->pieces = calloc((size_t)c->n_chunks, sizeof *r->pieces);
    r->base = aligned_take(bytes);
    r->before = aligned_take(bytes);
    r->change = aligned_take(bytes);
    TRY(r->pieces && r->base && r->before && r->change ? ST_OK : ST_NOMEM);
    region_rewind_init_pieces(r->pieces, c->n_chunks);
done:
    if (st != ST_OK)
        free_job(r);
    return st;
}

enum status ps_region_take(struct ps_region *r, const struct net_join *join,
                           const struct checkpoint_parent_version *restored)
{
    pthread_mutex_lock(&r->lock);
    region_job_count_steps(r, &join->job);
    r->taken.restored = *restored;
    r->slots_since = restored->known ? restored->slots_since : 0;
    enum status st = take_job(r, join->chunks);
    pthread_mutex_unlock(&r->lock);
    return st;
}

enum status ps_region_start(struct ps_region *r, struct service *service)
{
    if (!r)
        return ST_OK;
    r->service = service;
    if (mail_start(r->mail) != ST_OK)
        return ST_NOMEM;
    int err = pthread_create(&r->thread, NULL, region_exchange_main, r);
    r->has_thread = err == 0;
    if (!err) {
        err = pthread_create(&r->watch_thread, NULL, region_end_watch, r);
        r->has_watch_thread = err == 0;
    }
    if (!err && r->cfg.max_drift > 0) {
        err = pthread_create(&r->drift_thread, NULL, drift_main, r);
        r->has_drift_thread = err == 0;
    }
    if (err)
        LOG_E("a thread for the exchange with the parent group cannot be started: %s",
              threads_error(err));
    return err ? ST_NOMEM : ST_OK;
}

void ps_region_wake(struct ps_region *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* If all steps are made, waits until the exchange ends by itself, or until the deadline. A process
 * that was started when all steps were made, and has just begun to join, waits too: if its exchange
 * were cancelled now, the parent would never receive a leave message. */
void ps_region_await_end(struct ps_region *r)
{
    int64_t deadline = clock_deadline_ns(LEAVE_MS);
    struct run *run = r && r->has_thread ? region_run(r) : NULL;
    int64_t step = !run               ? -1
                   : run->n_bytes > 0 ? store_step(run->store)
                                      : region_chunks_step(r, run);
    int complete = run && step >= run->job.train_steps;
    if (run)
        run_unref(run);
    if (!complete)
        return;
    pthread_mutex_lock(&r->lock);
    while (!r->ended && clock_cond_wait(&r->changed, &r->lock, deadline) == 0)
        ;
    pthread_mutex_unlock(&r->lock);
}

void ps_region_stop(struct ps_region *r, const char *error)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stopping = 1;
    if (r->x && !r->done)
        net_exchange_cancel(r->x);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (r->has_thread)
        pthread_join(r->thread, NULL);
    if (r->has_drift_thread)
        pthread_join(r->drift_thread, NULL);
    if (r->has_watch_thread)
        pthread_join(r->watch_thread, NULL);
    r->has_thread = r->has_drift_thread = r->has_watch_thread = 0;
    mail_stop(r->mail);
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
    mail_destroy(r->mail);
    status_asker_destroy(r->asker);
    free_job(r);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    free(r);
}
