/* ps/store/answers.c - see answers.h: collects and sends owed answers, and finds the members
 * that others wait for. An owed answer is recorded in the chunk, at its member. Once the lock is
 * released, answers are collected and sent in batches, so that no callback runs under a lock.
 * Locks:   a chunk's, then (inside buf_unref) its pool's. */
#include "ps/store/answers.h"
#include "base/digest.h"
#include "ps/store/bucket_ops.h"
#include "ps/store/chunk_state.h"
#include "ps/store/diverged.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

enum { ANSWER_BATCH = 64 };

void answer_refuse(struct store_answer *answer, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(answer->text, sizeof answer->text, fmt, ap);
    va_end(ap);
    answer->kind = PIECE_REFUSED;
    answer->why = answer->text;
}

/* Describes the fault of element `bad`, which was rejected. */
static const char *name_fault(const struct net_payload *p, enum dtype dtype, size_t n, size_t bad)
{
    return payload_first_bad(p, dtype, n) == bad ? "is not finite" : "is too large for the sum";
}

/* Names the parameter and the worker's index, as in the worker's own flags. */
void answer_refuse_not_finite(const struct store *s, const struct chunk_state *c, int rank,
                              const struct net_piece *piece, size_t bad,
                              struct store_answer *answer)
{
    int worker = s->cfg.member ? s->cfg.member[rank] : rank;
    answer_refuse(answer, "worker %d: %s of '%.60s' at step %" PRIu64 " %s", worker,
                  piece->kind == PIECE_INIT ? "the first value" : "the gradient",
                  diverged_param_at(s, c, bad)->name, piece->step,
                  name_fault(&piece->payload, piece->dtype, c->n, bad));
}

/* Also computes the checksum of a version that was made before a member needed checksums; later
 * versions have one from the start. */
void answer_set_version(const struct store *s, struct chunk_state *c, int member, int64_t number,
                        enum dtype dtype, struct store_answer *answer)
{
    if (c->rows) {
        bucket_ops_answer(s, c, member, number, dtype, answer);
        return;
    }
    struct chunk_version *v = number == c->version ? &c->present : &c->previous;
    int whole = dtype != v->dtype || !v->wire;
    struct buf *payload = whole ? v->value : v->wire;
    answer->step = (uint64_t)number;
    answer->payload = buf_ref(payload);
    answer->dtype = whole ? DTYPE_F32 : v->dtype;
    answer->crc32c = 0;
    if (!atomic_load(&s->sums))
        return;
    if (whole) {
        answer->crc32c = digest_crc32c(0, payload->data, payload->bytes);
        return;
    }
    if (!v->summed)
        v->crc32c = digest_crc32c(0, payload->data, payload->bytes);
    v->summed = 1;
    answer->crc32c = v->crc32c;
}

bool answer_is_unchanged(const struct chunk_state *c, int64_t step, int64_t number)
{
    return c->present.kept && number == c->version && number == step + 1;
}

void answer_set_unchanged(const struct store *s, int64_t number, struct store_answer *answer)
{
    answer->step = (uint64_t)number;
    answer->payload = buf_ref(s->nothing);
    answer->dtype = DTYPE_F32;
    answer->crc32c = 0;
}

enum dtype answer_dtype(const struct chunk_state *c, int64_t step, int64_t number)
{
    int changes =
        /* A change is relative to the previous version, so a receiver without that version needs
         * the value itself. */
        dtype_block(c->version_dtype) > 1;
    return changes && number != step + 1 ? DTYPE_F32 : c->version_dtype;
}

static int64_t lowest_clock(const struct store *s, const struct chunk_state *c)
{
    int64_t lowest = INT64_MAX;
    for (int m = 0; m < s->n_members; m++)
        if (!atomic_load_explicit(&s->left[m], memory_order_relaxed) &&
            c->waiters[m].clock < lowest)
            lowest = c->waiters[m].clock;
    return lowest;
}

/* Returns the largest clock (number of counted contributions) with which a member still receives
 * answers; INT64_MAX: no limit. */
static int64_t clock_limit(const struct store *s, const struct chunk_state *c)
{
    if (s->mode != CONSISTENCY_SSP || c->version >= s->job.train_steps)
        return INT64_MAX;
    return consistency_limit(lowest_clock(s, c), s->job.staleness, atomic_load(&s->n_restarts));
}

/* Returns true if the member's push is counted, but its answer has to wait for slower
 * members. */
static bool is_ahead(const struct store *s, const struct chunk_state *c, int member, int64_t limit)
{
    return c->waiters[member].clock > limit && !atomic_load(&s->left[member]);
}

/* Returns the first version that is not yet sent in answer to pushes; INT64_MAX: every version is
 * sent. In lockstep the last version may be withheld. */
static int64_t withheld_from(const struct store *s)
{
    int last = s->lockstep && atomic_load_explicit(&s->hold_last, memory_order_relaxed);
    return last ? s->job.train_steps : INT64_MAX;
}

/* If chunks advance independently, pushes are always answered, since otherwise other chunks would
 * not reach their last version. A worker that has all steps then pulls the last version by number.
 * In lockstep a worker that starts late does the same. */
bool answer_withholds_last(const struct store *s, int64_t number)
{
    return number >= s->job.train_steps &&
           atomic_load_explicit(&s->hold_last, memory_order_relaxed);
}

/* Records that the present version is sent to the member, if delays are compensated. A parameter
 * that is averaged has no gradient to compensate. */
static void note_sent(const struct store *s, struct chunk_state *c, int member)
{
    struct waiter *w = &c->waiters[member];
    if (s->job.delay_compensation <= 0 || c->param->rule == PARAM_AVERAGE)
        return;
    buf_unref(w->base);
    w->base = buf_ref(c->present.value);
    w->base_version = c->version;
}

void answer_defer(struct chunk_state *c, const struct arrival *a)
{
    struct waiter *w = &c->waiters[a->head->member];
    int64_t step = (int64_t)a->piece->step;
    w->push_from = a->from;
    w->may_place = a->piece->placed;
    if (w->pusher == a->head->incarnation && w->push_step == step)
        return; /* the member waits already */
    w->pusher = a->head->incarnation;
    w->push_step = step;
    w->push_kind = PIECE_APPLIED;
    w->push_ns = a->now_ns;
}

/* Withholds an answer with a version that must not be sent yet: the member is answered later. */
static void withhold_answer(const struct store *s, struct chunk_state *c, const struct arrival *a,
                            struct store_answer *answer)
{
    struct waiter *w = &c->waiters[a->head->member];
    if (!answer->payload || (int64_t)answer->step < withheld_from(s))
        return;
    answer_defer(c, a);
    w->push_step = (int64_t)answer->step - 1;
    w->push_kind = answer->kind;
    buf_unref(answer->payload);
    *answer = (struct store_answer){.kind = PIECE_NONE, .chunk = answer->chunk};
}

void answer_piece(struct store *s, struct chunk_state *c, const struct arrival *a,
                  struct store_answer *answer)
{
    int member = (int)a->head->member;
    if (a->piece->kind == PIECE_PUSH)
        withhold_answer(s, c, a, answer);
    if (answer->payload && answer->kind != PIECE_AVERAGE) {
        note_sent(s, c, member);
        answer->samples = answer_samples(s, c, member);
    }
}

void answer_taken(struct chunk_state *c, const struct arrival *a, struct store_answer *answer)
{
    if (a->piece->kind != PIECE_PUSH || !a->piece->ask_taken || answer->kind != PIECE_NONE)
        return;
    pthread_mutex_lock(&c->lock);
    bool waits = c->waiters[a->head->member].pusher == a->head->incarnation;
    pthread_mutex_unlock(&c->lock);
    if (waits) {
        answer->kind = PIECE_TAKEN;
        answer->step = a->piece->step;
    }
}

uint64_t answer_samples(const struct store *s, const struct chunk_state *c, int member)
{
    return s->samples && c->chunk == 0 ? 1 + ps_samples_in_hand(s->samples, member) : 0;
}

struct target {
    int member;
    uint64_t samples;
    uint64_t incarnation, from;
    enum piece_kind kind;
    /* form of the answer. WIRE: the version's wire form; WHOLE: the value in fp32, while
     * versions have another format; KEPT: a report that the version is unchanged; PLACED: a
     * report that the member's values have the version; NOTHING: no version */
    enum { GIVE_WIRE, GIVE_WHOLE, GIVE_KEPT, GIVE_PLACED, GIVE_NOTHING, N_GIVES } give;
};

static int gives_dtype(const struct chunk_state *c, enum dtype wanted)
{
    if (c->rows)
        return wanted == c->version_dtype ? GIVE_WIRE : GIVE_WHOLE;
    return wanted != c->present.dtype || !c->present.wire ? GIVE_WHOLE : GIVE_WIRE;
}

static int gives_pusher(const struct chunk_state *c, const struct waiter *w)
{
    if (answer_is_unchanged(c, w->push_step, c->version))
        return GIVE_KEPT;
    if (w->may_place && w->placed_by == w->pusher && w->placed == c->version)
        return GIVE_PLACED;
    return gives_dtype(c, answer_dtype(c, w->push_step, c->version));
}

/* Lists owed answers, from member *from on. The caller holds the chunk's lock. */
static int collect_owed(struct store *s, struct chunk_state *c, int *from, struct target *t)
{
    int n = 0, stopped = atomic_load(&s->sends_rebase);
    int64_t limit = clock_limit(s, c);
    int push = c->version < withheld_from(s);
    for (; *from < s->n_members && n + 2 <= ANSWER_BATCH; (*from)++) {
        struct waiter *w = &c->waiters[*from];
        int before = n;
        if (w->pusher &&
            (stopped || (push && w->push_step < c->version && !is_ahead(s, c, *from, limit)))) {
            t[n++] = (struct target){.incarnation = w->pusher,
                                     .from = w->push_from,
                                     .kind = w->push_kind,
                                     .give = gives_pusher(c, w)};
            w->pusher = 0;
        }
        if (w->puller &&
            (stopped || (w->pull_step <= c->version && !answer_withholds_last(s, w->pull_step)))) {
            t[n++] = (struct target){.incarnation = w->puller,
                                     .from = w->pull_from,
                                     .kind = PIECE_VERSION,
                                     .give = gives_dtype(c, w->pull_dtype)};
            w->puller = 0;
        }
        for (int i = before; i < n; i++) {
            t[i].member = *from;
            t[i].samples = stopped ? 0 : answer_samples(s, c, *from);
            t[i].kind = stopped ? PIECE_REBASE : t[i].kind;
            t[i].give = stopped ? GIVE_NOTHING : t[i].give;
        }
        if (n > before && !stopped)
            note_sent(s, c, *from);
    }
    return n;
}

/* Makes the answer for a target. All targets that receive the version in the same form share one
 * answer, which the first of them makes. */
static void answer_target(const struct store *s, struct chunk_state *c, const struct target *t,
                          struct store_answer *answer)
{
    if (t->give == GIVE_NOTHING || answer->payload)
        return;
    if (t->give == GIVE_PLACED) {
        answer->step = (uint64_t)c->version;
        answer->placed = c->n * sizeof(float);
    } else if (t->give == GIVE_KEPT) {
        answer_set_unchanged(s, c->version, answer);
    } else {
        answer_set_version(s, c, t->member, c->version,
                           t->give == GIVE_WHOLE ? DTYPE_F32 : c->version_dtype, answer);
    }
}

static void send_answer(const struct store *s, const struct target *t, struct store_answer *a)
{
    const struct net_frame_head head = {s->cfg.generation, (uint32_t)t->member, t->incarnation};
    if (a->kind != PIECE_REFUSED)
        a->kind = t->kind;
    a->samples = t->samples;
    s->cfg.answer(s->cfg.ctx, &head, t->from, a);
    buf_unref(a->payload);
}

/* Lists the members whose contributions were refused together with those of their step. The caller
 * holds the chunk's lock. */
static int collect_refused(const struct store *s, struct chunk_rows *r, struct target *t)
{
    int n = 0;
    for (int m = 0; m < s->n_members && r->has_refused && n < ANSWER_BATCH; m++) {
        struct chunk_refused *to = &r->refused[m];
        if (to->incarnation)
            t[n++] = (struct target){.member = m,
                                     .incarnation = to->incarnation,
                                     .from = to->from,
                                     .kind = PIECE_REFUSED,
                                     .give = GIVE_NOTHING};
        to->incarnation = 0;
    }
    r->has_refused = n == ANSWER_BATCH;
    return n;
}

/* Sends the answers of a bucket: each has the rows that its member reads. */
static void answer_owed_rows(struct store *s, struct chunk_state *c)
{
    struct target t[ANSWER_BATCH];
    struct store_answer a[ANSWER_BATCH];
    for (int from = 0, n = 0; n > 0 || from < s->n_members;) {
        pthread_mutex_lock(&c->lock);
        n = collect_refused(s, c->rows, t);
        if (n == 0)
            n = collect_owed(s, c, &from, t);
        for (int i = 0; i < n; i++) {
            answer_begin(&a[i], c->chunk);
            if (t[i].kind == PIECE_REFUSED)
                answer_refuse(&a[i], "%s", c->rows->why);
            else
                answer_target(s, c, &t[i], &a[i]);
        }
        pthread_mutex_unlock(&c->lock);
        for (int i = 0; i < n; i++)
            send_answer(s, &t[i], &a[i]);
    }
}

void answer_owed(struct store *s, struct chunk_state *c)
{
    if (c->rows) {
        answer_owed_rows(s, c);
        return;
    }
    struct target t[ANSWER_BATCH];
    for (int from = 0; from < s->n_members;) {
        struct store_answer a[N_GIVES];
        for (int i = 0; i < N_GIVES; i++)
            answer_begin(&a[i], c->chunk);
        pthread_mutex_lock(&c->lock);
        int n = collect_owed(s, c, &from, t);
        for (int i = 0; i < n; i++)
            answer_target(s, c, &t[i], &a[t[i].give]);
        pthread_mutex_unlock(&c->lock);
        for (int i = 0; i < n; i++) {
            const struct net_frame_head head = {s->cfg.generation, (uint32_t)t[i].member,
                                                t[i].incarnation};
            a[t[i].give].kind = t[i].kind;
            a[t[i].give].samples = t[i].samples;
            s->cfg.answer(s->cfg.ctx, &head, t[i].from, &a[t[i].give]);
        }
        for (int i = 0; i < N_GIVES; i++)
            buf_unref(a[i].payload);
    }
}

static bool waits_since(const struct store *s, const struct chunk_state *c, int64_t since_ns)
{
    if (s->mode != CONSISTENCY_SSP)
        return c->sum.n_counted > 0 && !c->pending && c->sum.since_ns < since_ns;
    int64_t limit = clock_limit(s, c);
    for (int m = 0; m < s->n_members; m++) {
        const struct waiter *w = &c->waiters[m];
        if (w->pusher && w->push_ns < since_ns && is_ahead(s, c, m, limit))
            return true;
    }
    return false;
}

bool answer_missing(const struct store *s, const struct chunk_state *c, int64_t since_ns,
                    int *missing)
{
    int ssp = s->mode == CONSISTENCY_SSP;
    if (!waits_since(s, c, since_ns))
        return false;
    int64_t lowest = ssp ? lowest_clock(s, c) : 0;
    for (int m = 0; m < s->n_members; m++) {
        const struct waiter *w = &c->waiters[m];
        missing[m] +=
            ssp ? w->clock == lowest && !atomic_load(&s->left[m]) : w->counted_step != c->version;
    }
    return true;
}
