/* ps/store/chunk_update.c - see chunk_update.h. While the chunk is CHUNK_PENDING_UPDATE, its update
 * alone uses c->update and c->next, and reads the sum and the present version, which do not change.
 * Locks:   a chunk's, the store's lock of n_updates; never both. */
#include "ps/store/chunk_update.h"
#include "base/core_turns.h"
#include "base/trace.h"
#include "net/shm/segment.h"
#include "net/wire/job_rates.h"
#include "ps/store/answers.h"
#include "ps/store/chunk_state.h"
#include "ps/store/diverged.h"
#include "ps/store/outer.h"
#include "ps/store/versions.h"

/* Sizes of chunks whose updates are long enough to move the thread to another core, or to be left
 * to other threads. */
enum { TURN_BYTES = 64 << 10, LONG_BYTES = 512 << 10 };

static bool begin_turn(struct store *s, const struct chunk_state *c)
{
    return s->cfg.turns && c->n * sizeof(float) >= TURN_BYTES && core_turns_begin(s->cfg.turns);
}

/* Counts the update for each parameter that keeps its value, because it has no gradient. */
static void count_idle(const struct chunk_state *c, struct chunk_version *next)
{
    if (!next->idle || next->idle == c->present.idle)
        return;
    uint64_t *idle = next->idle->data;
    for (int k = 0; c->sum.lacks && k < c->n_params; k++)
        idle[k] += lacking_has(c->sum.lacking, k);
    if (!c->sum.lacks) { /* the counts did not change */
        buf_unref(next->idle);
        next->idle = c->present.idle ? buf_ref(c->present.idle) : NULL;
    }
}

static void set_params(const struct store *s, const struct chunk_state *c,
                       struct ps_update_params *out)
{
    const struct outer_hooks *outer = s->cfg.outer;
    *out = (struct ps_update_params){
        .param = c->param,
        .n = c->n_params,
        .first = s->cfg.chunks->chunks[c->chunk].first,
        .lacking = c->sum.lacks ? c->sum.lacking : NULL,
        .idle = c->present.idle ? c->present.idle->data : NULL,
        .optim = &s->job.optim,
        .step = (uint64_t)c->version + 1,
        .since = outer ? (uint64_t)outer->slots_since(outer->ctx) : 0,
        .factors = job_rates_factors(&s->job, c->param),
    };
    out->factors.rate *= c->rate;
}

static void prepare(struct store *s, struct chunk_state *c, const struct buf *base, double factor,
                    struct chunk_version *next)
{
    int averages = c->param->rule == PARAM_AVERAGE;
    struct ps_update *u = &c->update.pass;
    *u = (struct ps_update){
        .param = c->param,
        .n = c->n,
        .sum = factor > 0 ? aggregate_sum(&c->sum) : NULL,
        .terms = c->sum.terms,
        .n_terms = c->sum.n_terms,
        .arrived = c->sum.arrived,
        .dtype = c->sum.dtype,
        .scale = aggregate_scale(&c->sum, averages ? 1 : factor),
        .old = c->present.value->data,
        .slots = c->present.slots ? c->present.slots->data : NULL,
        .n_slots = (int)c->n_slots,
        .residual = job_sends_changes(&s->job) && c->n_slots > 0,
        .compensation = s->job.delay_compensation,
        .base = base ? base->data : NULL,
        .value = next->value->data,
        .new_slots = next->slots ? next->slots->data : NULL,
        .wire_dtype = next->dtype,
        .wire = next->wire == next->value ? NULL : next->wire->data,
        .sums = atomic_load(&s->sums),
    };
    struct ps_update_params *params = &c->update.params;
    set_params(s, c, params);
    /* the chunk has elements of one parameter, which may also have other chunks */
    bool is_one = c->n_params == 1 && !params->lacking;
    if (is_one && params->idle)
        params->since += params->idle[0];
    if (!averages)
        optim_begin_scaled(params->optim, params->step, params->since, &params->factors, &u->step);
    if (!is_one && (params->lacking || params->idle))
        u->params = params;
    next->summed = u->sums;
}

/* Runs the whole pass in this thread, which other threads may help. */
static size_t run(struct store *s, struct chunk_state *c, bool has_turn, uint32_t *crc)
{
    struct ps_update *u = &c->update.pass;
    int64_t begin = trace_begin();
    /* has_turn: all cores are busy with other work, so no other thread can help */
    u->threads = has_turn ? NULL : s->cfg.threads;
    size_t bad = ps_update_run(u, crc);
    trace_end(begin, TRACE_APPLY, "apply", NULL, c->chunk, c->version);
    if (has_turn)
        core_turns_end(s->cfg.turns);
    return bad;
}

/* Notes the results of a pass without a bad element. The caller holds the lock. */
static void note_results(struct chunk_state *c, struct chunk_version *next)
{
    const struct ps_update *u = &c->update.pass;
    count_idle(c, next);
    /* false: the new version equals the version before, which was checked */
    if (u->sum || u->n_terms > 0)
        diverged_note(c, u->not_finite);
}

size_t chunk_update_run(struct store *s, struct chunk_state *c, const struct buf *base,
                        struct chunk_version *next)
{
    const struct ps_term *came = c->sum.arrived >= 0 ? &c->sum.terms[c->sum.arrived] : NULL;
    size_t bad = SIZE_MAX;
    prepare(s, c, base, 1, next);
    /* The pass overwrites the slots in place, so the contribution is checked before. */
    if (next->slots && next->slots == c->present.slots && came)
        bad = payload_first_above(&came->payload, c->sum.dtype, c->n, came->limit);
    if (bad == SIZE_MAX)
        bad = run(s, c, begin_turn(s, c), &next->crc32c);
    if (bad == SIZE_MAX) /* otherwise the version is dropped */
        note_results(c, next);
    return bad;
}

void chunk_update_begin(struct store *s, struct chunk_state *c, double factor,
                        const struct chunk_version *next, int member,
                        const struct aggregate *before)
{
    struct chunk_update *u = &c->update;
    c->next = *next;
    prepare(s, c, NULL, factor, &c->next);
    chunk_version_drop(&c->previous);
    c->pending = CHUNK_PENDING_UPDATE;
    u->store = s;
    u->memory = NULL;
    u->placed_by = 0;
    u->member = before ? member : -1;
    if (before) {
        const struct waiter *w = &c->waiters[member];
        u->sum = *before;
        u->counted_by = w->counted_by;
        u->counted_step = w->counted_step;
        u->clock = w->clock;
    }
    atomic_fetch_add(&s->n_updates, 1);
}

/* Restores the state before the last contribution, and sets the refusal. Returns the earlier state
 * of the sender, whose `pusher` waits for an answer. The caller holds the lock. */
static struct waiter uncount(const struct store *s, struct chunk_state *c, size_t bad,
                             struct store_answer *refusal)
{
    const struct chunk_update *u = &c->update;
    const struct net_piece piece = {.kind = PIECE_PUSH,
                                    .step = (uint64_t)c->version,
                                    .dtype = c->sum.dtype,
                                    .payload = c->sum.terms[c->sum.arrived].payload};
    struct waiter *w = &c->waiters[u->member], before = *w;
    answer_refuse_not_finite(s, c, u->member, &piece, bad, refusal);
    w->pusher = 0;
    w->counted_by = u->counted_by;
    w->counted_step = u->counted_step;
    w->clock = u->clock;
    c->sum = u->sum;
    return before;
}

/* Refuses the contribution that no longer counts. w: the sender's earlier state. answer: answer to
 * the piece that contained the contribution, on the stream `from`; NULL: an earlier piece contained
 * it. If the member has sent the contribution again on another stream, that stream is answered,
 * too. If another process of the member waits for the answer to the same contribution, its stream
 * ends, so that it sends the contribution again. */
static void refuse(const struct store *s, int member, const struct waiter *w,
                   struct store_answer *refusal, struct store_answer *answer, uint64_t from)
{
    const struct net_frame_head head = {s->cfg.generation, (uint32_t)member, w->pusher};
    bool is_other = w->pusher != w->counted_by;
    if (answer) {
        *answer = *refusal;
        answer->why = answer->text;
    }
    if (is_other) {
        refusal->replaced = true;
        refusal->why = "the contribution of this worker's earlier process was refused";
    }
    if (w->pusher && (is_other || !answer || w->push_from != from))
        s->cfg.answer(s->cfg.ctx, &head, w->push_from, refusal);
}

/* Ends the update: makes the version and answers, or refuses the last contribution. answer: answer
 * to the piece that began the update, on the stream `from`; NULL: an earlier piece began it. */
static void end(struct store *s, struct chunk_state *c, size_t bad, struct store_answer *answer,
                uint64_t from)
{
    struct store_answer refusal = {.chunk = (uint32_t)c->chunk};
    struct waiter refused = {.pusher = 0};
    bool made = false;
    pthread_mutex_lock(&c->lock);
    struct segment *memory = c->update.memory;
    struct chunk_version next = c->next;
    struct late_step late = c->late;
    int64_t step = c->version;
    int member = c->update.member;
    uint64_t placed_by = c->update.placed_by;
    bool is_good = bad == SIZE_MAX;
    c->next = (struct chunk_version){.value = NULL};
    c->pending = CHUNK_PENDING_NONE;
    if (is_good) {
        note_results(c, &next);
        made = version_make(s, c, &next);
        if (placed_by) {
            c->waiters[member].placed_by = placed_by;
            c->waiters[member].placed = c->version;
        }
    } else {
        chunk_version_drop(&next);
        refused = uncount(s, c, bad, &refusal);
    }
    size_t not_finite = diverged_take(c);
    pthread_mutex_unlock(&c->lock); /* the chunk may begin its next update */
    segment_unref(memory);
    diverged_log(s, c, not_finite, step);
    if (is_good && member >= 0)
        stragglers_note(s->stragglers, &late);
    if (made)
        answer_owed(s, c);
    if (refusal.why)
        refuse(s, member, &refused, &refusal, answer, from);
    chunk_update_note_end(s);
}

void chunk_update_note_end(struct store *s)
{
    pthread_mutex_lock(&s->updates_lock);
    if (atomic_fetch_sub(&s->n_updates, 1) == 1)
        pthread_cond_broadcast(&s->updates_ended);
    pthread_mutex_unlock(&s->updates_lock);
}

static void run_part(void *ctx, int k)
{
    struct chunk_state *c = ctx;
    int64_t begin = trace_begin();
    ps_update_part(&c->update.pass, k);
    trace_end(begin, TRACE_APPLY, "apply", NULL, c->chunk, c->version);
}

static void on_ended(void *ctx)
{
    struct chunk_state *c = ctx;
    end(c->update.store, c, ps_update_end(&c->update.pass, &c->next.crc32c), NULL, 0);
}

/* Makes the pass also write the version to the values that the sender of the last contribution
 * lends, at the chunk's place in the model. The server never reads these values. */
static void place(const struct store *s, struct chunk_state *c, const struct arrival *a)
{
    struct segment *values = segment_values(a->piece->memory);
    struct ps_update *pass = &c->update.pass;
    size_t at = (size_t)s->cfg.chunks->chunks[c->chunk].first * sizeof(float);
    size_t bytes = c->n * sizeof(float);
    if (!values || !a->piece->placed || pass->wire || s->cfg.outer ||
        !segment_at(values, at, bytes))
        return;
    pass->placed = (float *)((char *)segment_data(values) + at);
    c->update.placed_by = a->head->incarnation;
}

/* Returns the number of parts that other threads can run after the return; 0: the caller has to run
 * the pass. Holds the memory of the last contribution. */
static int begin_parts(struct store *s, struct chunk_state *c, const struct arrival *a)
{
    struct chunk_update *u = &c->update;
    struct ps_term *came = u->pass.arrived >= 0 ? &c->sum.terms[u->pass.arrived] : NULL;
    struct segment *memory = came ? a->piece->memory : NULL;
    bool stays = !came || (memory && !a->piece->ask_taken);
    size_t least = s->cfg.long_bytes > 0 ? s->cfg.long_bytes : LONG_BYTES;
    if (!s->cfg.threads || !stays || c->n * sizeof(float) < least)
        return 0;
    int n = ps_update_begin(&u->pass);
    if (n > 0 && came) {
        u->memory = segment_ref(memory);
        came->span = *came->payload.span;
        came->payload.span = &came->span;
        place(s, c, a);
    }
    return n;
}

void chunk_update_launch(struct store *s, struct chunk_state *c, const struct arrival *a,
                         struct store_answer *answer)
{
    struct chunk_update *u = &c->update;
    bool has_turn = begin_turn(s, c);
    int n_parts = has_turn ? 0 : begin_parts(s, c, a);
    if (n_parts == 0) {
        end(s, c, run(s, c, has_turn, &c->next.crc32c), answer, a ? a->from : 0);
        return;
    }
    u->loop = (struct thread_loop){
        .part = run_part, .ended = on_ended, .ctx = c, .n = n_parts, .order = c->chunk};
    thread_pool_start(s->cfg.threads, &u->loop);
}

void chunk_update_await_all(struct store *s)
{
    pthread_mutex_lock(&s->updates_lock);
    while (atomic_load(&s->n_updates) > 0)
        pthread_cond_wait(&s->updates_ended, &s->updates_lock);
    pthread_mutex_unlock(&s->updates_lock);
}
