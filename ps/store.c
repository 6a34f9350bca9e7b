/* ps/store.c - see store.h. A piece runs down a list of checks, cheapest first, then into its
 * chunk's lock. Who is owed an answer is written in the chunk; after the lock is gone, answers are
 * collected and sent in batches, so that no callback runs under a lock.
 * Locks: a chunk's, then (inside buf_unref and ps_pool_take) its pool's. */
#include "ps/store.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/trace.h"
#include "ps/aggregate.h"
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_BATCH = 64 };

/* What one member waits for, and did last, at one chunk. */
struct asker {
    uint64_t pusher;    /* incarnation that waits for its push's answer; 0: none */
    uint64_t push_from; /* on which stream */
    int64_t push_step;
    uint64_t puller; /* incarnation that waits for version pull_step; 0: none */
    uint64_t pull_from;
    int64_t pull_step;
    uint64_t counted_by; /* async: identity of the last contribution that counted */
    int64_t counted_step;
};

struct cell {
    int chunk;
    int shelf; /* its place in cells, and in the pool */
    size_t n;  /* elements */
    const struct net_param *param;
    pthread_mutex_t lock; /* guards all below */
    int64_t version;      /* -1 before the first */
    struct buf *now, *before;
    uint32_t now_crc, before_crc; /* each version is summed up once, not once for each answer */
    float *slots;                 /* n_slots * n */
    struct ps_aggregate sum;
    struct asker *askers; /* n_workers */
};

struct ps_store {
    struct ps_store_config cfg;
    struct net_job job;
    struct ps_pool *pool;
    int n_cells;
    struct cell *cells;
    int *cell_of;                  /* chunk -> index in cells, or -1 */
    _Atomic uint64_t *incarnation; /* by member; 0: not admitted */
};

/* What create will take, in bytes; doubles, so that nothing overflows. */
static enum status check_memory(const struct ps_store_config *cfg, int *n_cells)
{
    double elems = 0;
    *n_cells = 0;
    for (int i = 0; i < cfg->chunks->n_chunks; i++) {
        if (cfg->server[i] != cfg->self)
            continue;
        elems += (double)cfg->chunks->chunks[i].n_elems;
        (*n_cells)++;
    }
    double model = elems * sizeof(float);
    double tables = (double)*n_cells * cfg->job->n_workers *
                    (double)(sizeof(struct asker) + sizeof(struct ps_parked));
    double limit = (double)cfg->max_bytes;
    if (model <= limit && tables <= limit)
        return ST_OK;
    LOG_E("a model of %.0f bytes here (and tables of %.0f) passes --max_model_bytes=%.0f", model,
          tables, limit);
    return ST_RANGE;
}

static enum status cell_init(struct ps_store *s, struct cell *c, int chunk)
{
    const struct net_chunk *spec = &s->cfg.chunks->chunks[chunk];
    size_t n_slots = (size_t)optim_n_slots(&s->job.optim);
    int n_summed = s->job.sync_mode == JOB_SYNC ? s->job.n_workers : 1;
    *c = (struct cell){.chunk = chunk, .shelf = s->cell_of[chunk], .version = -1};
    c->n = (size_t)spec->n_elems;
    c->param = &s->cfg.chunks->params[spec->param];
    if (c->param->rule == PARAM_AVERAGE)
        n_slots = 0;
    pthread_mutex_init(&c->lock, NULL);
    c->askers = calloc((size_t)s->job.n_workers, sizeof *c->askers);
    c->slots = calloc(n_slots * c->n + 1, sizeof *c->slots);
    if (!c->askers || !c->slots)
        return ST_NOMEM;
    return ps_aggregate_init(&c->sum, s->pool, c->shelf, c->n, n_summed);
}

enum status ps_store_create(const struct ps_store_config *cfg, struct ps_store **out)
{
    enum status st = ST_OK;
    struct ps_store *s = NULL;
    int n_cells, n_chunks = cfg->chunks->n_chunks;
    TRY(check_memory(cfg, &n_cells));
    s = calloc(1, sizeof *s);
    TRY(s ? ST_OK : ST_NOMEM);
    s->cfg = *cfg;
    s->job = *cfg->job;
    s->cfg.job = NULL;
    s->cfg.server = NULL;
    /* three versions turn over; in sync mode copies that wait come from the same shelf */
    TRY(ps_pool_create(n_cells, 3 + s->job.n_workers, &s->pool));
    s->cells = calloc((size_t)n_cells + 1, sizeof *s->cells);
    s->cell_of = malloc((size_t)n_chunks * sizeof *s->cell_of);
    s->incarnation = calloc((size_t)s->job.n_workers, sizeof *s->incarnation);
    TRY(s->cells && s->cell_of && s->incarnation ? ST_OK : ST_NOMEM);
    for (int i = 0; i < n_chunks; i++) {
        s->cell_of[i] = -1;
        if (cfg->server[i] != cfg->self)
            continue;
        s->cell_of[i] = s->n_cells;
        s->n_cells++;
        TRY(cell_init(s, &s->cells[s->n_cells - 1], i));
    }
    *out = s;
    return ST_OK;
done:
    if (st == ST_NOMEM)
        LOG_E("no memory for a model of %" PRId64 " elements", cfg->chunks->n_elems);
    ps_store_destroy(s);
    return st;
}

void ps_store_destroy(struct ps_store *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_cells; i++) {
        struct cell *c = &s->cells[i];
        ps_aggregate_free(&c->sum);
        buf_unref(c->now);
        buf_unref(c->before);
        free(c->slots);
        free(c->askers);
        pthread_mutex_destroy(&c->lock);
    }
    ps_pool_destroy(s->pool);
    free(s->cells);
    free(s->cell_of);
    free(s->incarnation);
    free(s);
}

void ps_store_admit(struct ps_store *s, int member, uint64_t incarnation)
{
    atomic_store(&s->incarnation[member], incarnation);
}

__attribute__((format(printf, 2, 3))) static void refuse(struct ps_answer *now, const char *fmt,
                                                         ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(now->text, sizeof now->text, fmt, ap);
    va_end(ap);
    now->kind = PIECE_REFUSED;
    now->why = now->text;
}

/* An answer that carries the present version. Under the chunk's lock. */
static void give(struct cell *c, enum piece_kind kind, struct ps_answer *now)
{
    now->kind = kind;
    now->step = (uint64_t)c->version;
    now->payload = buf_ref(c->now);
    now->crc32c = c->now_crc;
}

/* 1 if the member may speak; else *now says why not. */
static int check_sender(struct ps_store *s, const struct net_frame_head *head,
                        struct ps_answer *now)
{
    if (head->generation != s->cfg.generation) {
        now->kind = PIECE_REBASE;
        return 0;
    }
    if (head->member >= (uint32_t)s->job.n_workers) {
        refuse(now, "member %" PRIu32 " is not below n_workers %d", head->member, s->job.n_workers);
        return 0;
    }
    uint64_t known = atomic_load(&s->incarnation[head->member]);
    if (known == 0 || head->incarnation != known) {
        refuse(now,
               known ? "member %" PRIu32 " was started anew since; this one is over"
                     : "member %" PRIu32 " has not joined",
               head->member);
        return 0;
    }
    return 1;
}

/* 1 if what the piece carries fits the chunk; else *now says why not. */
static int check_content(const struct cell *c, const struct net_piece *piece, struct ps_answer *now)
{
    size_t want = piece->kind == PIECE_PULL ? 0 : c->n * sizeof(float);
    if (piece->kind != PIECE_PULL && piece->kind != PIECE_PUSH && piece->kind != PIECE_INIT)
        refuse(now, "piece kind %d is none that a server takes", (int)piece->kind);
    else if (piece->payload.bytes != want)
        refuse(now, "chunk %" PRIu32 ": payload of %zu bytes, not %zu", piece->chunk,
               piece->payload.bytes, want);
    else if (piece->step > INT64_MAX)
        refuse(now, "chunk %" PRIu32 ": step %" PRIu64 " is none", piece->chunk, piece->step);
    else if (piece->kind == PIECE_PUSH && !(isfinite(piece->weight) && piece->weight > 0))
        refuse(now, "chunk %" PRIu32 ": weight %g is not finite and above 0", piece->chunk,
               (double)piece->weight);
    else if (want && payload_crc32c(&piece->payload) != piece->crc32c)
        refuse(now, "chunk %" PRIu32 ": payload does not match its crc32c", piece->chunk);
    return now->kind == PIECE_NONE;
}

/* The version after this one, in `next`. Under the chunk's lock. */
static void make_version(struct ps_store *s, struct cell *c, struct buf *next)
{
    float scale = ps_aggregate_scale(&c->sum);
    int64_t begin = trace_begin();
    if (c->param->rule == PARAM_AVERAGE)
        optim_average(c->param->keep, c->n, c->sum.sum, scale, c->now->data, next->data);
    else
        optim_apply(&s->job.optim, (uint64_t)c->version + 1, c->n, c->sum.sum, scale, c->now->data,
                    c->slots, next->data);
    buf_unref(c->before);
    c->before = c->now;
    c->before_crc = c->now_crc;
    c->now = next;
    c->now_crc = digest_crc32c(0, next->data, next->bytes);
    trace_end(begin, TRACE_APPLY, "apply", NULL, c->chunk, c->version);
    c->version++;
    ps_aggregate_reset(&c->sum);
}

/* Adds a contribution; the last of a step makes the next version, whose buffer is taken before
 * anything changes. Under the chunk's lock. Returns 1 if there is a new version. */
static int contribute(struct ps_store *s, struct cell *c, int member,
                      const struct net_payload *payload, float weight, struct ps_answer *now)
{
    struct buf *next = NULL;
    enum status st = ST_OK;
    int64_t begin = trace_begin();
    if (c->sum.n_counted + 1 == c->sum.n_members)
        st = ps_pool_take(s->pool, c->shelf, c->n * sizeof(float), &next);
    if (st == ST_OK)
        st = ps_aggregate_add(&c->sum, member, payload, weight);
    if (st != ST_OK) {
        buf_unref(next);
        refuse(now, "chunk %d: the server is out of memory", c->chunk);
        return 0;
    }
    trace_end(begin, TRACE_AGGREGATE, "aggregate", NULL, c->chunk, c->version);
    if (next)
        make_version(s, c, next);
    return next != NULL;
}

/* Version s+1 took a contribution of every member, so whoever repeats step s was counted. */
static int push_sync(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                     const struct net_piece *piece, struct ps_answer *now)
{
    int64_t step = (int64_t)piece->step;
    int member = (int)head->member;
    if (step < c->version) {
        give(c, step == c->version - 1 ? PIECE_DUPLICATE : PIECE_STALE, now);
        return 0;
    }
    int made = 0;
    if (!ps_aggregate_has(&c->sum, member)) {
        made = contribute(s, c, member, &piece->payload, piece->weight, now);
        if (now->kind != PIECE_NONE)
            return 0;
    }
    c->askers[member].pusher = head->incarnation;
    c->askers[member].push_step = step;
    return made;
}

/* A member has one push per chunk under way, so the last one counted is enough to know a repeat.
 * The mean of one contribution does not depend on its weight. */
static int push_async(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                      const struct net_piece *piece, struct ps_answer *now)
{
    int64_t step = (int64_t)piece->step;
    struct asker *a = &c->askers[head->member];
    if (a->counted_by == head->incarnation && step <= a->counted_step) {
        give(c, step == a->counted_step ? PIECE_DUPLICATE : PIECE_STALE, now);
        return 0;
    }
    if (!contribute(s, c, 0, &piece->payload, 1.0f, now))
        return 0;
    a->counted_by = head->incarnation;
    a->counted_step = step;
    give(c, PIECE_APPLIED, now);
    return 1;
}

static int push(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                const struct net_piece *piece, struct ps_answer *now)
{
    if ((int64_t)piece->step > c->version) {
        refuse(now, "chunk %d: push on version %" PRIu64 ", ahead of the server's %" PRId64,
               c->chunk, piece->step, c->version);
        return 0;
    }
    return s->job.sync_mode == JOB_SYNC ? push_sync(s, c, head, piece, now)
                                        : push_async(s, c, head, piece, now);
}

/* The step that was asked for, where it is still held: a worker that has to redo a step needs all
 * chunks at that step (I4). Step 0 asks for whatever is newest. */
static void pull(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                 const struct net_piece *piece, struct ps_answer *now)
{
    int64_t step = (int64_t)piece->step;
    if (c->version < 0 || step > c->version) {
        c->askers[head->member].puller = head->incarnation;
        c->askers[head->member].pull_step = step;
    } else if (s->job.sync_mode == JOB_SYNC && step > 0 && step == c->version - 1) {
        now->kind = PIECE_VERSION;
        now->step = piece->step;
        now->payload = buf_ref(c->before);
        now->crc32c = c->before_crc;
    } else {
        give(c, PIECE_VERSION, now);
    }
}

static int init(struct ps_store *s, struct cell *c, const struct net_piece *piece,
                struct ps_answer *now)
{
    int first = c->version < 0;
    if (first) {
        struct buf *b;
        if (ps_pool_take(s->pool, c->shelf, c->n * sizeof(float), &b) != ST_OK) {
            refuse(now, "chunk %d: the server is out of memory", c->chunk);
            return 0;
        }
        payload_copy(&piece->payload, b->data);
        c->now = b;
        c->now_crc = piece->crc32c;
        c->version = 0;
    }
    give(c, PIECE_VERSION, now);
    return first;
}

struct target {
    int member;
    uint64_t incarnation, from;
    enum piece_kind kind;
};

/* Takes down who is owed the present version, from member *from on. Under the chunk's lock. */
static int collect_owed(struct ps_store *s, struct cell *c, int *from, struct target *t)
{
    int n = 0;
    for (; *from < s->job.n_workers && n + 2 <= ANSWER_BATCH; (*from)++) {
        struct asker *a = &c->askers[*from];
        if (a->pusher && a->push_step < c->version) {
            t[n++] = (struct target){*from, a->pusher, a->push_from, PIECE_APPLIED};
            a->pusher = 0;
        }
        if (a->puller && a->pull_step <= c->version) {
            t[n++] = (struct target){*from, a->puller, a->pull_from, PIECE_VERSION};
            a->puller = 0;
        }
    }
    return n;
}

static void answer_owed(struct ps_store *s, struct cell *c)
{
    struct target t[ANSWER_BATCH];
    for (int from = 0; from < s->job.n_workers;) {
        struct ps_answer a = {.chunk = (uint32_t)c->chunk};
        pthread_mutex_lock(&c->lock);
        int n = collect_owed(s, c, &from, t);
        give(c, PIECE_NONE, &a);
        pthread_mutex_unlock(&c->lock);
        for (int i = 0; i < n; i++) {
            const struct net_frame_head head = {s->cfg.generation, (uint32_t)t[i].member,
                                                t[i].incarnation};
            a.kind = t[i].kind;
            s->cfg.answer(s->cfg.ctx, &head, t[i].from, &a);
        }
        buf_unref(a.payload);
    }
}

/* Where the answer to come has to go. Under the chunk's lock. */
static void note_stream(struct cell *c, const struct net_frame_head *head,
                        const struct net_piece *piece, uint64_t from)
{
    struct asker *a = &c->askers[head->member];
    if (piece->kind == PIECE_PUSH)
        a->push_from = from;
    else
        a->pull_from = from;
}

void ps_store_piece(struct ps_store *s, const struct net_frame_head *head,
                    const struct net_piece *piece, uint64_t from, struct ps_answer *now)
{
    *now = (struct ps_answer){.kind = PIECE_NONE, .chunk = piece->chunk};
    if (!check_sender(s, head, now))
        return;
    if (piece->chunk >= (uint32_t)s->cfg.chunks->n_chunks) {
        refuse(now, "chunk %" PRIu32 " is not below the model's %d", piece->chunk,
               s->cfg.chunks->n_chunks);
        return;
    }
    if (s->cell_of[piece->chunk] < 0) {
        now->kind = PIECE_WRONG_SHARD;
        return;
    }
    struct cell *c = &s->cells[s->cell_of[piece->chunk]];
    if (!check_content(c, piece, now))
        return;
    int new_version = 0;
    pthread_mutex_lock(&c->lock);
    if (piece->kind == PIECE_PUSH)
        new_version = push(s, c, head, piece, now);
    else if (piece->kind == PIECE_INIT)
        new_version = init(s, c, piece, now);
    else
        pull(s, c, head, piece, now);
    if (now->kind == PIECE_NONE)
        note_stream(c, head, piece, from);
    pthread_mutex_unlock(&c->lock);
    if (new_version)
        answer_owed(s, c);
}

int64_t ps_store_step(struct ps_store *s)
{
    int64_t lowest = s->n_cells ? INT64_MAX : s->job.train_steps;
    for (int i = 0; i < s->n_cells; i++) {
        struct cell *c = &s->cells[i];
        pthread_mutex_lock(&c->lock);
        if (c->version < lowest)
            lowest = c->version;
        pthread_mutex_unlock(&c->lock);
    }
    return lowest;
}

int ps_store_missing(struct ps_store *s, int64_t since_ns, int *missing, int64_t *step)
{
    int n_waiting = 0;
    if (s->job.sync_mode != JOB_SYNC)
        return 0;
    for (int i = 0; i < s->n_cells; i++) {
        struct cell *c = &s->cells[i];
        pthread_mutex_lock(&c->lock);
        if (c->sum.n_counted > 0 && c->sum.since_ns < since_ns) {
            if (n_waiting++ == 0 || c->version < *step)
                *step = c->version;
            for (int m = 0; m < s->job.n_workers; m++)
                missing[m] += !ps_aggregate_has(&c->sum, m);
        }
        pthread_mutex_unlock(&c->lock);
    }
    return n_waiting;
}

struct buf *ps_store_read(struct ps_store *s, int chunk, int64_t *version)
{
    struct buf *b = NULL;
    if (chunk < 0 || chunk >= s->cfg.chunks->n_chunks || s->cell_of[chunk] < 0)
        return NULL;
    struct cell *c = &s->cells[s->cell_of[chunk]];
    pthread_mutex_lock(&c->lock);
    if (c->now) {
        b = buf_ref(c->now);
        *version = c->version;
    }
    pthread_mutex_unlock(&c->lock);
    return b;
}
