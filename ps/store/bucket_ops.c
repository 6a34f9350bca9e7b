/* ps/store/bucket_ops.c - see bucket_ops.h. The sender may share its memory with this server, and
 * change a contribution while it is read. So it is first copied, and the copy is checked. Only a
 * checked contribution counts, so that none has to be undone.
 * Locks:   a chunk's, then its bucket's. */
#include "ps/store/bucket_ops.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/trace.h"
#include "kernels/vector/clip.h"
#include "kernels/vector/finite.h"
#include "ps/store/answers.h"
#include "ps/store/diverged.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* bytes of gradients and of rows to send from which on a version is left to other threads */
enum { LONG_BYTES = 64 << 10 };

static void refuse_memory(const struct chunk_rows *r, struct store_answer *answer)
{
    answer_refuse(answer, "table '%.60s', bucket %d: the server is out of memory", r->table->name,
                  r->number);
}

/* Returns true if a member may send these keys. */
static bool check_keys(const struct chunk_rows *r, const uint64_t *keys, size_t n,
                       struct store_answer *answer)
{
    size_t at;
    /* only the settings of the bucket are read, which never change */
    const char *why = bucket_check_keys(r->shared->bucket, keys, n, &at);
    if (why)
        answer_refuse(answer, "table '%.60s', bucket %d: key %zu of %zu is %" PRIu64 ": %s",
                      r->table->name, r->number, at, n, keys[at], why);
    return why == NULL;
}

bool bucket_ops_take_reads(struct chunk_state *c, const struct arrival *a,
                           struct store_answer *answer)
{
    struct chunk_rows *r = c->rows;
    struct chunk_reads *reads = &r->reads[a->head->member];
    size_t n = a->piece->reads;
    reads->n = 0;
    reads->is_local = a->piece->shared;
    if (n > reads->room) {
        size_t room = n + n / 4;
        uint64_t *keys = realloc(reads->keys, room * sizeof *keys);
        if (!keys) {
            refuse_memory(r, answer);
            return false;
        }
        reads->keys = keys;
        reads->room = room;
    }
    if (n > 0)
        payload_copy(&a->parts->reads, reads->keys);
    if (!check_keys(r, reads->keys, n, answer))
        return false;
    reads->n = n;
    r->n_keys += n;
    return true;
}

/* Returns true if all gradients are finite, and small enough to be summed. */
static bool check_gradients(const struct store *s, const struct chunk_state *c,
                            const struct arrival *a, const struct merge_input *in,
                            struct store_answer *answer)
{
    const struct chunk_rows *r = c->rows;
    size_t dim = (size_t)r->table->dim, n = in->n * dim;
    const float *gradients = in->gradients;
    size_t bad = finite_first_above(DTYPE_F32, gradients, n, aggregate_limit(&c->sum, in->weight));
    if (bad == n)
        return true;
    int rank = (int)a->head->member;
    answer_refuse(answer,
                  "worker %d: table '%.60s', bucket %d: the gradient of key %" PRIu64
                  " at step %" PRIu64 " %s",
                  s->cfg.member ? s->cfg.member[rank] : rank, r->table->name, r->number,
                  ((const uint64_t *)in->keys)[bad / dim], a->piece->step,
                  isfinite(gradients[bad]) ? "is too large for the sum" : "is not finite");
    return false;
}

/* Copies the contribution to the memory of the merge. */
static enum status copy_contribution(const struct chunk_state *c, const struct arrival *a, int slot,
                                     struct merge_input *out)
{
    const struct chunk_rows *r = c->rows;
    size_t n = a->piece->rows, elems = n * (size_t)r->table->dim;
    uint64_t *keys;
    float *gradients;
    enum status st = merge_room(r->merge, slot, n, &keys, &gradients);
    if (st != ST_OK)
        return st;
    out->n = n;
    out->keys = keys;
    out->gradients = gradients;
    if (n == 0)
        return ST_OK;
    payload_copy(&a->parts->keys, keys);
    payload_decode(&a->parts->values, a->piece->dtype, elems, gradients, NULL);
    return ST_OK;
}

/* Makes the next version from all contributions of the step. */
static enum status make_version(struct chunk_state *c)
{
    struct chunk_rows *r = c->rows;
    double weight = 0;
    int64_t begin = trace_begin();
    for (int k = 0; k < c->sum.n_members; k++) /* the gradients are added in rank order, too */
        weight += (double)r->weight[k];
    pthread_mutex_lock(&r->shared->lock);
    CHECK(r->shared->bucket->version == (uint64_t)c->version);
    enum status st = merge_run(r->merge, r->shared->bucket, r->last_slot, &r->last,
                               clip_scale(1, weight), c->rate);
    pthread_mutex_unlock(&r->shared->lock);
    trace_end(begin, TRACE_APPLY, "apply", NULL, c->chunk, c->version);
    if (st != ST_OK)
        return st;
    diverged_log_row(r, c->version);
    c->version++;
    c->sum.n_counted = 0;
    r->step_keys = 0;
    if (c->snapshot)
        snapshot_chunk_changed(c);
    return ST_OK;
}

/* Refuses all contributions of a step, which would exceed the bucket's bound, or for which memory
 * is lacking. Their senders wait for an answer. */
static void refuse_step(const struct store *s, struct chunk_state *c, enum status why)
{
    struct chunk_rows *r = c->rows;
    if (why == ST_RANGE)
        limits_text(r->shared->bucket, merge_needed_rows(r->merge), r->table->name,
                    (uint64_t)r->table->max_rows, r->why);
    else
        snprintf(r->why, sizeof r->why, "table '%.60s', bucket %d: the server is out of memory",
                 r->table->name, r->number);
    for (int m = 0; s->lockstep && m < s->n_members; m++) {
        struct waiter *w = &c->waiters[m];
        if (w->counted_step != c->version)
            continue;
        if (w->pusher) {
            r->refused[m] = (struct chunk_refused){w->pusher, w->push_from};
            r->has_refused = true;
        }
        w->pusher = 0;
        w->counted_step = -1;
        w->counted_by = 0;
        w->clock--;
    }
    c->sum.n_counted = 0; /* the next contribution of a member replaces its copy in the merge */
    r->step_keys = 0;
}

/* Returns true if the store's threads make the version, and answer: its work is long enough. */
static bool leaves_to_threads(const struct store *s, const struct chunk_rows *r)
{
    size_t least = s->cfg.long_bytes > 0 ? s->cfg.long_bytes : LONG_BYTES;
    size_t bytes = r->step_keys * (size_t)r->table->dim * sizeof(float);
    return s->lockstep && s->cfg.threads && bytes >= least;
}

bool bucket_ops_contribute(struct store *s, struct chunk_state *c, const struct arrival *a,
                           int slot, struct store_answer *answer)
{
    struct chunk_rows *r = c->rows;
    bool is_alone = s->job.sync_mode != JOB_SYNC, is_empty = a->piece->weight == 0;
    struct merge_input in = {.weight = is_alone && !is_empty ? 1 : a->piece->weight};
    if (copy_contribution(c, a, slot, &in) != ST_OK) {
        refuse_memory(r, answer);
        return false;
    }
    if (!check_keys(r, in.keys, in.n, answer) || !check_gradients(s, c, a, &in, answer))
        return false;
    r->weight[slot] = in.weight;
    r->n_keys += in.n;
    r->step_keys += in.n + a->piece->reads;
    merge_set(r->merge, slot, in.n, in.weight);
    if (c->sum.n_counted++ == 0)
        c->sum.since_ns = a->now_ns;
    if (c->sum.n_counted < c->sum.n_members)
        return true;
    r->last = in;
    r->last_slot = slot;
    if (leaves_to_threads(s, r)) {
        c->pending = CHUNK_PENDING_UPDATE;
        atomic_fetch_add(&s->n_updates, 1);
        return true;
    }
    enum status st = make_version(c);
    if (st != ST_OK) {
        refuse_step(s, c, st);
        answer_refuse(answer, "%s", r->why);
    }
    return st == ST_OK;
}

static void run_nothing(void *ctx, int k)
{
}

/* Makes the version, and sends the answers. */
static void run_update(void *ctx)
{
    struct chunk_state *c = ctx;
    struct store *s = c->update.store;
    pthread_mutex_lock(&c->lock);
    struct late_step late = c->late;
    enum status st = make_version(c);
    if (st != ST_OK)
        refuse_step(s, c, st);
    c->pending = CHUNK_PENDING_NONE;
    pthread_mutex_unlock(&c->lock); /* the chunk may begin its next update */
    if (st == ST_OK)
        stragglers_note(s->stragglers, &late);
    answer_owed(s, c);
    chunk_update_note_end(s);
}

void bucket_ops_launch(struct store *s, struct chunk_state *c)
{
    c->update.store = s;
    /* the pool does not use the loop any more when it calls `ended` */
    c->update.loop = (struct thread_loop){
        .part = run_nothing, .ended = run_update, .ctx = c, .n = 1, .order = c->chunk};
    thread_pool_start(s->cfg.threads, &c->update.loop);
}

void bucket_ops_answer(const struct store *s, struct chunk_state *c, int member, int64_t number,
                       enum dtype dtype, struct store_answer *answer)
{
    struct chunk_rows *r = c->rows;
    const struct chunk_reads *reads = &r->reads[member];
    size_t bytes = dtype_bytes(dtype, reads->n * (size_t)r->table->dim);
    struct buf *payload = NULL;
    enum status st = ST_OK;
    if (reads->n == 0)
        payload = buf_ref(s->nothing);
    else
        st = chunk_rows_take_answer(s, r, member, bytes, &payload);
    if (st == ST_OK && reads->n > 0) {
        pthread_mutex_lock(&r->shared->lock);
        st = bucket_encode(r->shared->bucket, (uint64_t)number, reads->keys, reads->n, dtype,
                           payload->data);
        pthread_mutex_unlock(&r->shared->lock);
    }
    if (st != ST_OK) {
        buf_unref(payload);
        if (st == ST_NOMEM)
            refuse_memory(r, answer);
        else
            answer_refuse(answer, "table '%.60s', bucket %d: version %" PRId64 " is not readable",
                          r->table->name, r->number, number);
        return;
    }
    answer->step = (uint64_t)number;
    answer->payload = payload;
    answer->rows = (uint32_t)reads->n;
    answer->dtype = dtype;
    answer->crc32c = atomic_load(&s->sums) ? digest_crc32c(0, payload->data, bytes) : 0;
}
