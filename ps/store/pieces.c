/* ps/store/pieces.c - see store.h: the stages that a piece passes in the store. Checks validate the
 * piece first, before any lock (checks.h). Then, under its chunk's lock, a push is judged
 * (consistency.h), the verdict is applied, and the immediate answer is set; pulls and initial
 * values need no judgement. Once the lock is released, the update runs (chunk_update.h), and
 * members that waited for the new version are answered. */
#include "base/digest.h"
#include "net/wire/fragments.h"
#include "ps/store/answers.h"
#include "ps/store/bucket_ops.h"
#include "ps/store/checks.h"
#include "ps/store/diverged.h"
#include "ps/store/equal_gradients.h"
#include "ps/store/outer.h"
#include "ps/store/versions.h"
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static void answer_present(const struct store *s, struct chunk_state *c, const struct arrival *a,
                           enum piece_kind kind, struct store_answer *answer)
{
    int first = a->piece->kind == PIECE_INIT && dtype_block(c->version_dtype) > 1;
    enum dtype dtype = answer_dtype(c, (int64_t)a->piece->step, c->version);
    answer->kind = kind;
    if (a->piece->kind == PIECE_PUSH && answer_is_unchanged(c, (int64_t)a->piece->step, c->version))
        answer_set_unchanged(s, c->version, answer);
    else
        answer_set_version(s, c, (int)a->head->member, c->version, first ? DTYPE_F32 : dtype,
                           answer);
}

/* Returns the version that the contribution was computed on, if this version was sent to the
 * member and a newer version exists. */
static const struct buf *base_of(const struct store *s, const struct chunk_state *c,
                                 const struct waiter *w, int64_t step)
{
    int known = s->job.delay_compensation > 0 && w->base && w->base_version == step;
    return known && step < c->version ? w->base : NULL;
}

/* Sets the factor of the learning rate for the version to which the push contributes. Returns false
 * if an earlier contribution to that version has another factor; then *answer contains the
 * reason. */
static bool agree_on_rate(const struct store *s, struct chunk_state *c, const struct arrival *a,
                          struct store_answer *answer)
{
    float rate = piece_rate(a->piece);
    int rank = (int)a->head->member;
    const int *member = s->cfg.member;
    if (c->sum.n_counted > 0 && rate != c->rate) {
        answer_refuse(
            answer,
            "worker %d has factor %g of the learning rate at step %" PRIu64
            ", but worker %d has factor %g; all members must set the same (weir_step_rate)",
            member ? member[rank] : rank, (double)rate, a->piece->step,
            member ? member[c->rate_member] : c->rate_member, (double)c->rate);
        return false;
    }
    if (c->sum.n_counted == 0) {
        c->rate = rate;
        c->rate_member = rank;
    }
    return true;
}

/* Adds a push to the next version of a chunk that has parameters. If each contribution makes a
 * version, the mean is that contribution, so the weight has no effect unless it is 0, the weight of
 * a sender that skipped. *made is nonzero if there is a new version. Returns false if the push does
 * not count; then *answer contains the reason. */
static bool contribute(struct store *s, struct chunk_state *c, const struct arrival *a, int slot,
                       int *made, struct store_answer *answer)
{
    int alone = s->job.sync_mode != JOB_SYNC, member = (int)a->head->member;
    struct contribution from = {.member = member,
                                .slot = slot,
                                .payload = &a->piece->payload,
                                .weight = alone && a->piece->weight != 0 ? 1.0f : a->piece->weight,
                                .lacking = a->lacking,
                                .base = base_of(s, c, &c->waiters[member], (int64_t)a->piece->step),
                                .now_ns = a->now_ns};
    size_t bad;
    enum status st = version_contribute(s, c, &from, made, &bad);
    if (st == ST_INVALID)
        answer_refuse_not_finite(s, c, member, a->piece, bad, answer);
    else if (st != ST_OK)
        answer_refuse(answer, "chunk %d: the server is out of memory", c->chunk);
    return st == ST_OK;
}

/* Counts a push. In async it is answered at once, in sync when its version is made, and in ssp
 * when the slower members are near enough. Returns true if there is a new version. */
static bool count_push(struct store *s, struct chunk_state *c, const struct arrival *a, int slot,
                       struct store_answer *answer)
{
    int member = (int)a->head->member, made = 0;
    int64_t before = c->version;
    struct waiter *w = &c->waiters[member];
    if (!check_zeros(s, c, a->piece, a->lacking, answer) || !agree_on_rate(s, c, a, answer))
        return false;
    int64_t waited_ns = c->sum.n_counted > 0 ? a->now_ns - c->arrived_ns : 0;
    if (!(c->rows ? bucket_ops_contribute(s, c, a, slot, answer)
                  : contribute(s, c, a, slot, &made, answer)))
        return false;
    if (c->rows)
        made = c->version > before;
    c->arrived_ns = a->now_ns;
    equal_gradients_note(s->equal, c, a, made || c->pending);
    if (made || c->pending)
        c->late = (struct late_step){(int64_t)a->piece->step, member, waited_ns};
    int has_turn = fragments_turn(&s->job, s->fragment, c->chunk, (int64_t)a->piece->step);
    if (a->piece->weight == 0 && has_turn && c->shelf == 0)
        stragglers_skipped(s->stragglers, member);
    w->counted_by = a->head->incarnation;
    w->counted_step = (int64_t)a->piece->step;
    w->clock++;
    if (s->mode == CONSISTENCY_ASYNC)
        answer_present(s, c, a, PIECE_APPLIED, answer);
    else
        answer_defer(c, a);
    return made;
}

/* Applies the verdict. Returns true if there is a new version. */
static bool apply_push(struct store *s, struct chunk_state *c, const struct arrival *a,
                       struct verdict verdict, struct store_answer *answer)
{
    switch (verdict.kind) {
    case VERDICT_COUNT:
        return count_push(s, c, a, verdict.slot, answer);
    case VERDICT_DUPLICATE:
        answer_present(s, c, a, PIECE_DUPLICATE, answer);
        break;
    case VERDICT_STALE:
        answer_present(s, c, a, PIECE_STALE, answer);
        break;
    case VERDICT_WAIT:
        answer_defer(c, a);
        break;
    case VERDICT_REFUSE:
        answer_refuse(answer,
                      "chunk %d: push on version %" PRIu64 ", ahead of the server's %" PRId64,
                      c->chunk, a->piece->step, c->version);
        break;
    }
    return false;
}

/* Judges a push and applies the verdict. Returns true if there is a new version. */
static bool handle_push(struct store *s, struct chunk_state *c, const struct arrival *a,
                        struct store_answer *answer)
{
    const struct waiter *w = &c->waiters[a->head->member];
    int64_t step = (int64_t)a->piece->step;
    const struct consistency_push p = {
        .step = step,
        .member = (int)a->head->member,
        .version = c->version,
        .last = s->job.train_steps,
        .n_counted = c->sum.n_counted,
        .last_step = w->counted_step,
        .same_process = w->counted_by == a->head->incarnation,
        .awaits_answer = w->pusher == a->head->incarnation && w->push_step == step,
    };
    return apply_push(s, c, a, consistency_verdict(s->mode, &p), answer);
}

/* Records that the piece is to be answered when the version exists. */
static void await_version(struct chunk_state *c, const struct arrival *a, int64_t number,
                          enum dtype dtype)
{
    struct waiter *w = &c->waiters[a->head->member];
    w->puller = a->head->incarnation;
    w->pull_from = a->from;
    w->pull_step = number;
    w->pull_dtype = dtype;
}

/* Answers with the requested version if it is still held: a worker that has to redo a step needs
 * all chunks at that version (I4). */
static void handle_pull(struct store *s, struct chunk_state *c, const struct arrival *a,
                        struct store_answer *answer)
{
    int64_t number = (int64_t)a->piece->step - 1; /* requested version; -1: the newest */
    if (number < 0 && s->lockstep && answer_withholds_last(s, c->version))
        number = version_is_kept(c, c->version - 1) ? c->version - 1 : c->version;
    if (c->version < 0 || number > c->version || answer_withholds_last(s, number)) {
        await_version(c, a, number > 0 ? number : 0, a->piece->dtype); /* the first version is 0 */
        return;
    }
    if (s->job.sync_mode != JOB_SYNC || number < 0 || !version_is_kept(c, number))
        number = c->version;
    answer->kind = PIECE_VERSION;
    answer_set_version(s, c, (int)a->head->member, number, a->piece->dtype, answer);
}

/* Returns the averages in the slots of a version; NULL: the chunk has none. */
static float *averages_of(const struct store *s, const struct chunk_state *c,
                          const struct chunk_version *v)
{
    bool has = s->job.optim.ema_decay > 0 && v->slots;
    return has ? (float *)v->slots->data + (c->n_slots - 1) * c->n : NULL;
}

/* Answers with a copy of the averages, because a later version may overwrite the slots. Only
 * lockstep keeps the slots of an older version. */
static void handle_pull_average(const struct store *s, const struct chunk_state *c,
                                const struct arrival *a, struct store_answer *answer)
{
    int64_t number = (int64_t)a->piece->step - 1;
    const struct chunk_version *v = s->lockstep ? version_find(c, number) : NULL;
    if (c->version < 0) {
        answer_refuse(answer, "chunk %d has no averages before its first value", c->chunk);
        return;
    }
    answer->step = (uint64_t)(v ? number : c->version);
    v = v ? v : &c->present;
    const float *averages = averages_of(s, c, v);
    if (buf_create(c->n * sizeof *averages, &answer->payload) != ST_OK) {
        answer_refuse(answer, "chunk %d: the server is out of memory", c->chunk);
        return;
    }
    memcpy(answer->payload->data, averages ? averages : v->value->data, answer->payload->bytes);
    answer->kind = PIECE_AVERAGE;
    answer->dtype = DTYPE_F32;
    if (atomic_load(&s->sums))
        answer->crc32c = digest_crc32c(0, answer->payload->data, answer->payload->bytes);
}

/* Makes the first version from the first member's values. Returns true if there is a new
 * version. */
static bool handle_init(struct store *s, struct chunk_state *c, const struct arrival *a,
                        struct store_answer *answer)
{
    int first = c->version < 0;
    if (first) {
        struct chunk_version v;
        size_t bad = payload_first_bad(&a->piece->payload, DTYPE_F32, c->n);
        if (bad != SIZE_MAX) {
            answer_refuse_not_finite(s, c, (int)a->head->member, a->piece, bad, answer);
            return false;
        }
        if (s->cfg.outer) { /* the region asks other regions for the initial values */
            s->cfg.outer->first(s->cfg.outer->ctx, c->chunk, &a->piece->payload);
            await_version(c, a, 0, c->version_dtype);
            return false;
        }
        if (version_reserve(s, c, &v) != ST_OK) {
            answer_refuse(answer, "chunk %d: the server is out of memory", c->chunk);
            return false;
        }
        payload_copy(&a->piece->payload, v.value->data);
        float *averages = averages_of(s, c, &c->present);
        if (averages) /* the averages begin with the initial values */
            memcpy(averages, v.value->data, c->n * sizeof *averages);
        version_set_first(c, &v, 0);
    }
    answer_present(s, c, a, PIECE_VERSION, answer);
    return first;
}

/* Returns true for a piece that its process sent before the request whose answer it waits for: a
 * process has one request for a bucket at a time. Such a piece arrives late, from a stream that has
 * broken. The answer that its sender waits for has the rows of the later request. */
static bool is_outdated(const struct chunk_state *c, const struct arrival *a)
{
    const struct waiter *w = &c->waiters[a->head->member];
    bool is_push = a->piece->kind == PIECE_PUSH;
    int64_t step = (int64_t)a->piece->step;
    if (w->pusher == a->head->incarnation)
        return !is_push || step < w->push_step;
    return w->puller == a->head->incarnation &&
           (is_push ? step < c->version : step <= w->pull_step);
}

/* Applies the piece to its chunk. Returns true if there is a new version. The caller holds the
 * chunk's lock. */
static bool handle_piece(struct store *s, struct chunk_state *c, const struct arrival *a,
                         struct store_answer *answer)
{
    bool is_push = a->piece->kind == PIECE_PUSH;
    if (c->is_stopped && (!is_push || atomic_load(&s->sends_rebase)))
        answer->kind = PIECE_REBASE;
    else if (c->rows && !is_outdated(c, a) && !bucket_ops_take_reads(c, a, answer))
        return false;
    else if (c->is_stopped) /* see handover.c */
        answer_defer(c, a);
    else if (is_push)
        return handle_push(s, c, a, answer);
    else if (a->piece->kind == PIECE_INIT)
        return handle_init(s, c, a, answer);
    else if (a->piece->kind == PIECE_PULL_AVERAGE)
        handle_pull_average(s, c, a, answer);
    else
        handle_pull(s, c, a, answer);
    return false;
}

void store_piece(struct store *s, const struct net_frame_head *head, const struct net_piece *piece,
                 uint64_t from, int64_t now_ns, struct store_answer *answer)
{
    uint8_t lacking[LACKING_MAX_BYTES];
    struct rows_parts parts;
    const uint8_t *marks = piece->lacking.bytes ? lacking : NULL;
    const struct arrival a = {head, piece, marks, &parts, from, now_ns};
    answer_begin(answer, (int)piece->chunk);
    struct chunk_state *c = check_piece(s, head, piece, lacking, &parts, answer);
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    enum chunk_pending before = c->pending;
    bool new_version = handle_piece(s, c, &a, answer);
    enum chunk_pending begun = before == CHUNK_PENDING_NONE ? c->pending : CHUNK_PENDING_NONE;
    answer_piece(s, c, &a, answer);
    struct late_step late = c->late;
    double squares = c->squares;
    size_t not_finite = diverged_take(c);
    bool has_refused = c->rows && c->rows->has_refused;
    pthread_mutex_unlock(&c->lock);
    diverged_log(s, c, not_finite, (int64_t)piece->step);
    if ((new_version || begun == CHUNK_PENDING_NORM) && piece->kind == PIECE_PUSH &&
        s->job.sync_mode == JOB_SYNC && (c->shelf == 0 || s->lockstep))
        stragglers_note(s->stragglers, &late);
    if (begun == CHUNK_PENDING_UPDATE && c->rows)
        bucket_ops_launch(s, c);
    else if (begun == CHUNK_PENDING_UPDATE)
        chunk_update_launch(s, c, &a, answer);
    /* A pull may be the first message after a restart, which raises the bound of ssp. */
    if (new_version || has_refused || (piece->kind == PIECE_PULL && s->mode == CONSISTENCY_SSP))
        answer_owed(s, c);
    if (begun == CHUNK_PENDING_NORM)
        clip_add_squares(s, c->chunk, (int64_t)piece->step, squares);
    answer_taken(c, &a, answer);
}
