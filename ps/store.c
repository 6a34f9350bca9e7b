/* ps/store.c - see store.h. A piece runs down a list of checks, cheapest first, then into its
 * chunk's lock. Who is owed an answer is written in the chunk; after the lock is gone, answers are
 * collected and sent in batches, so that no callback runs under a lock.
 * Locks: a chunk's, then (inside buf_unref and ps_pool_take) its pool's. */
#include "base/digest.h"
#include "base/log.h"
#include "base/trace.h"
#include "ps/cell.h"
#include "ps/update.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_BATCH = 64 };

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
    *c = (struct cell){.chunk = chunk, .shelf = s->cell_of[chunk], .version = -1};
    c->n = (size_t)spec->n_elems;
    c->param = &s->cfg.chunks->params[spec->param];
    if (c->param->rule == PARAM_AVERAGE)
        n_slots = 0;
    pthread_mutex_init(&c->lock, NULL);
    c->askers = calloc((size_t)s->job.n_workers, sizeof *c->askers);
    c->n_slots = n_slots;
    if (n_slots > 0 && buf_create(n_slots * c->n * sizeof(float), &c->slots) == ST_OK)
        memset(c->slots->data, 0, c->slots->bytes);
    if (!c->askers || (n_slots > 0 && !c->slots))
        return ST_NOMEM;
    for (int m = 0; m < s->job.n_workers; m++)
        c->askers[m].counted_step = c->askers[m].base_version = -1;
    c->sum.n = c->n;
    c->sum.n_members = job_aggregate(&s->job);
    c->sum.dtype = s->job.push_dtype;
    return ps_aggregate_init(&c->sum, s->pool, c->shelf);
}

/* Bytes from one of a cell's places in the segment to the next. */
static size_t place_bytes(const struct ps_store *s, const struct cell *c)
{
    return SHARED_STAMP_BYTES + ((c->n * dtype_size(s->job.version_dtype) + 63) & ~(size_t)63);
}

/* Lays out places for versions in a segment that members on this host read. In lockstep those that
 * a member still reads are the present ones, so that the three that turn over and one to spare are
 * enough; else each member may read another. Versions that find no place go by TCP. */
static void share_versions(struct ps_store *s)
{
    char why[SHARED_WHY_BYTES];
    size_t bytes = 0, at = 0;
    int n_places = job_in_lockstep(&s->job) ? 4 : 3 + s->job.n_workers;
    int shelf = s->job.version_dtype == DTYPE_F32 ? 0 : s->n_cells;
    n_places = n_places < PS_POOL_MAX_KEEP ? n_places : PS_POOL_MAX_KEEP;
    for (int i = 0; i < s->n_cells; i++)
        bytes += place_bytes(s, &s->cells[i]) * (size_t)n_places;
    if (!s->cfg.shared_memory || bytes == 0)
        return;
    if (net_shared_create(bytes, &s->segment, why) != ST_OK) {
        LOG_D("no shared memory: %s", why);
        return;
    }
    for (int i = 0; i < s->n_cells; i++) {
        size_t stride = place_bytes(s, &s->cells[i]);
        ps_pool_share(s->pool, shelf + i, s->segment, at, stride, n_places);
        at += stride * (size_t)n_places;
    }
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
    /* Three versions turn over; in sync mode copies that wait come from the same shelf. What is
     * sent of versions that do not go out as they are stands on shelves of its own, behind, and
     * behind those the slots that take over from some that are held. */
    TRY(ps_pool_create(3 * n_cells, 3 + s->job.n_workers, &s->pool));
    s->cells = calloc((size_t)n_cells + 1, sizeof *s->cells);
    s->cell_of = malloc((size_t)n_chunks * sizeof *s->cell_of);
    s->incarnation = calloc((size_t)s->job.n_workers, sizeof *s->incarnation);
    s->left = calloc((size_t)s->job.n_workers, sizeof *s->left);
    TRY(s->cells && s->cell_of && s->incarnation && s->left ? ST_OK : ST_NOMEM);
    TRY(ps_stragglers_create(s->job.n_workers, job_in_lockstep(&s->job) ? n_cells : 1,
                             cfg->worker_hosts, cfg->straggler_ms, &s->stragglers));
    for (int i = 0; i < n_chunks; i++) {
        s->cell_of[i] = -1;
        if (cfg->server[i] != cfg->self)
            continue;
        s->cell_of[i] = s->n_cells;
        s->n_cells++;
        TRY(cell_init(s, &s->cells[s->n_cells - 1], i));
    }
    share_versions(s);
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
        ps_version_drop(&c->now);
        ps_version_drop(&c->before);
        for (int m = 0; c->askers && m < s->job.n_workers; m++)
            buf_unref(c->askers[m].base);
        buf_unref(c->slots);
        free(c->askers);
        pthread_mutex_destroy(&c->lock);
    }
    ps_pool_destroy(s->pool);
    net_shared_unref(s->segment);
    ps_stragglers_destroy(s->stragglers);
    free(s->cells);
    free(s->cell_of);
    free(s->incarnation);
    free(s->left);
    free(s);
}

void ps_store_admit(struct ps_store *s, int member, uint64_t incarnation)
{
    uint64_t before = atomic_exchange(&s->incarnation[member], incarnation);
    if (before != 0 && before != incarnation && !atomic_load(&s->left[member]))
        atomic_fetch_add(&s->n_restarts, 1);
}

void ps_cell_refuse(struct ps_answer *now, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(now->text, sizeof now->text, fmt, ap);
    va_end(ap);
    now->kind = PIECE_REFUSED;
    now->why = now->text;
}

/* What a member is sent of a version; `dtype`: as members are, or fp32 for those that want all.
 * Versions are summed up as they are made; those from before the first member that needs it, here.
 * Under the chunk's lock. */
static void give_version(const struct ps_store *s, struct ps_version *v, int64_t step,
                         enum dtype dtype, struct ps_answer *now)
{
    int whole = dtype != v->dtype;
    struct buf *payload = whole ? v->value : v->wire;
    now->step = (uint64_t)step;
    now->payload = buf_ref(payload);
    now->dtype = whole ? DTYPE_F32 : v->dtype;
    now->crc32c = 0;
    if (!atomic_load(&s->sums))
        return;
    if (whole) {
        now->crc32c = digest_crc32c(0, payload->data, payload->bytes);
        return;
    }
    if (!v->summed)
        v->crc32c = digest_crc32c(0, payload->data, payload->bytes);
    v->summed = 1;
    now->crc32c = v->crc32c;
}

void ps_cell_give(struct ps_store *s, struct cell *c, enum piece_kind kind, struct ps_answer *now)
{
    now->kind = kind;
    give_version(s, &c->now, c->version, c->now.dtype, now);
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
        ps_cell_refuse(now, "member %" PRIu32 " is not below n_workers %d", head->member,
                       s->job.n_workers);
        return 0;
    }
    uint64_t known = atomic_load(&s->incarnation[head->member]);
    if (known == 0 || head->incarnation != known) {
        ps_cell_refuse(now,
                       known ? "member %" PRIu32 " was started anew since; this one is over"
                             : "member %" PRIu32 " has not joined",
                       head->member);
        return 0;
    }
    return 1;
}

/* 1 if what the piece carries fits the chunk; else *now says why not. */
static int check_content(const struct ps_store *s, const struct cell *c,
                         const struct net_piece *piece, struct ps_answer *now)
{
    enum dtype dtype = piece->kind == PIECE_PUSH ? s->job.push_dtype
                       : piece->kind == PIECE_PULL && piece->dtype != DTYPE_F32
                           ? s->job.version_dtype
                           : DTYPE_F32;
    size_t want = piece->kind == PIECE_PULL ? 0 : c->n * dtype_size(dtype);
    if (piece->kind != PIECE_PULL && piece->kind != PIECE_PUSH && piece->kind != PIECE_INIT)
        ps_cell_refuse(now, "piece kind %d is none that a server takes", (int)piece->kind);
    else if (piece->dtype != dtype)
        ps_cell_refuse(now, "chunk %" PRIu32 ": dtype %d, not %s", piece->chunk, (int)piece->dtype,
                       dtype_name(dtype));
    else if (piece->payload.bytes != want)
        ps_cell_refuse(now, "chunk %" PRIu32 ": payload of %zu bytes, not %zu", piece->chunk,
                       piece->payload.bytes, want);
    else if (piece->step > INT64_MAX)
        ps_cell_refuse(now, "chunk %" PRIu32 ": step %" PRIu64 " is none", piece->chunk,
                       piece->step);
    else if (piece->kind == PIECE_PUSH && !(isfinite(piece->weight) && piece->weight > 0))
        ps_cell_refuse(now, "chunk %" PRIu32 ": weight %g is not finite and above 0", piece->chunk,
                       (double)piece->weight);
    else if (want && !piece->unsummed && payload_crc32c(&piece->payload) != piece->crc32c)
        ps_cell_refuse(now, "chunk %" PRIu32 ": payload does not match its crc32c", piece->chunk);
    return now->kind == PIECE_NONE;
}

/* Room for the next version's slots: those of the present one, unless somebody else reads them. */
static enum status take_slots(struct ps_store *s, const struct cell *c, struct buf **slots)
{
    if (c->n_slots == 0)
        return ST_OK;
    if (atomic_load(&c->slots->refs) == 1) {
        *slots = buf_ref(c->slots);
        return ST_OK;
    }
    return ps_pool_take(s->pool, 2 * s->n_cells + c->shelf, c->n_slots * c->n * sizeof(float), 0,
                        slots);
}

/* Buffers for a version that is to be made; ST_NOMEM leaves *v empty. */
static enum status take_version(struct ps_store *s, const struct cell *c, struct ps_version *v)
{
    enum dtype dtype = s->job.version_dtype;
    *v = (struct ps_version){.dtype = dtype};
    enum status st =
        ps_pool_take(s->pool, c->shelf, c->n * sizeof(float), dtype == DTYPE_F32, &v->value);
    if (st != ST_OK)
        return st;
    if (dtype == DTYPE_F32)
        v->wire = buf_ref(v->value);
    else
        st = ps_pool_take(s->pool, s->n_cells + c->shelf, c->n * dtype_size(dtype), 1, &v->wire);
    if (st != ST_OK)
        ps_version_drop(v);
    return st;
}

/* Makes the version after this one, in `next` and `slots`. Under the chunk's lock. */
static void make_version(struct ps_store *s, struct cell *c, struct ps_version *next,
                         struct buf *slots)
{
    int64_t begin = trace_begin();
    struct ps_update u = {
        .param = c->param,
        .n = c->n,
        .sum = ps_aggregate_sum(&c->sum),
        .last = &c->sum.last,
        .last_dtype = c->sum.dtype,
        .last_weight = c->sum.last_weight,
        .scale = ps_aggregate_scale(&c->sum),
        .old = c->now.value->data,
        .slots = c->slots ? c->slots->data : NULL,
        .compensation = s->job.delay_compensation,
        .base = c->base ? c->base->data : NULL,
        .value = next->value->data,
        .new_slots = slots ? slots->data : NULL,
        .wire_dtype = next->dtype,
        .wire = next->wire == next->value ? NULL : next->wire->data,
        .sums = atomic_load(&s->sums),
    };
    if (c->param->rule != PARAM_AVERAGE)
        optim_begin(&s->job.optim, (uint64_t)c->version + 1, &u.step);
    next->crc32c = ps_update_run(&u);
    next->summed = u.sums;
    ps_version_drop(&c->before);
    c->before = c->now;
    c->now = *next;
    buf_unref(c->slots);
    c->slots = slots;
    trace_end(begin, TRACE_APPLY, "apply", NULL, c->chunk, c->version);
    c->version++;
    if (c->capture)
        ps_cell_capture(c);
    ps_aggregate_reset(&c->sum);
}

/* The new version's buffers are taken before anything changes. */
int ps_cell_contribute(struct ps_store *s, struct cell *c, int slot,
                       const struct net_payload *payload, float weight, struct ps_answer *now)
{
    struct ps_version next = {.value = NULL};
    struct buf *slots = NULL;
    enum status st = ST_OK;
    int64_t begin = trace_begin();
    if (c->sum.n_counted + 1 == c->sum.n_members) {
        st = take_version(s, c, &next);
        if (st == ST_OK)
            st = take_slots(s, c, &slots);
    }
    if (st == ST_OK)
        st = ps_aggregate_add(&c->sum, slot, payload, weight);
    if (st != ST_OK) {
        buf_unref(slots);
        ps_version_drop(&next);
        ps_cell_refuse(now, "chunk %d: the server is out of memory", c->chunk);
        return 0;
    }
    trace_end(begin, TRACE_AGGREGATE, "aggregate", NULL, c->chunk, c->version);
    if (!next.value)
        return 0;
    make_version(s, c, &next, slots);
    return 1;
}

/* The version that was asked for, where it is still held: a worker that has to redo a step needs
 * all chunks at that version (I4). */
static void pull(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                 const struct net_piece *piece, struct ps_answer *now)
{
    int64_t step = (int64_t)piece->step - 1; /* -1: the newest */
    if (c->version < 0 || step > c->version) {
        c->askers[head->member].puller = head->incarnation;
        c->askers[head->member].pull_step = step > 0 ? step : 0; /* there is none before */
        c->askers[head->member].pull_dtype = piece->dtype;
        return;
    }
    int older = s->job.sync_mode == JOB_SYNC && step >= 0 && step == c->version - 1 &&
                c->before.value; /* the first after a restore has none before it */
    now->kind = PIECE_VERSION;
    give_version(s, older ? &c->before : &c->now, older ? step : c->version, piece->dtype, now);
}

static int init(struct ps_store *s, struct cell *c, const struct net_piece *piece,
                struct ps_answer *now)
{
    int first = c->version < 0;
    if (first) {
        struct ps_version v;
        if (take_version(s, c, &v) != ST_OK) {
            ps_cell_refuse(now, "chunk %d: the server is out of memory", c->chunk);
            return 0;
        }
        payload_copy(&piece->payload, v.value->data);
        if (v.wire != v.value)
            dtype_encode(v.dtype, v.wire->data, v.value->data, c->n);
        c->now = v;
        c->version = 0;
    }
    ps_cell_give(s, c, PIECE_VERSION, now);
    return first;
}

struct target {
    int member;
    uint64_t incarnation, from;
    enum piece_kind kind;
    int whole; /* fp32 where versions are not */
};

/* Takes down who is owed the present version, from member *from on. Under the chunk's lock. */
static int collect_owed(struct ps_store *s, struct cell *c, int *from, struct target *t)
{
    int n = 0;
    int64_t limit = ps_modes_limit(s, c);
    if (atomic_load_explicit(&s->hold, memory_order_relaxed))
        *from = s->job.n_workers; /* ps_store_hold comes back to them */
    for (; *from < s->job.n_workers && n + 2 <= ANSWER_BATCH; (*from)++) {
        struct asker *a = &c->askers[*from];
        int before = n;
        if (a->pusher && a->push_step < c->version && !ps_modes_held(s, c, *from, limit)) {
            t[n++] = (struct target){*from, a->pusher, a->push_from, PIECE_APPLIED, 0};
            a->pusher = 0;
        }
        if (a->puller && a->pull_step <= c->version) {
            t[n++] = (struct target){*from, a->puller, a->pull_from, PIECE_VERSION,
                                     a->pull_dtype != c->now.dtype};
            a->puller = 0;
        }
        if (n > before)
            ps_modes_sent(s, c, *from);
    }
    return n;
}

static void answer_owed(struct ps_store *s, struct cell *c)
{
    struct target t[ANSWER_BATCH];
    for (int from = 0; from < s->job.n_workers;) {
        struct ps_answer a[2] = {{.chunk = (uint32_t)c->chunk}, {.chunk = (uint32_t)c->chunk}};
        pthread_mutex_lock(&c->lock);
        int n = collect_owed(s, c, &from, t);
        for (int i = 0; i < n; i++)
            if (!a[t[i].whole].payload)
                give_version(s, &c->now, c->version, t[i].whole ? DTYPE_F32 : c->now.dtype,
                             &a[t[i].whole]);
        pthread_mutex_unlock(&c->lock);
        for (int i = 0; i < n; i++) {
            const struct net_frame_head head = {s->cfg.generation, (uint32_t)t[i].member,
                                                t[i].incarnation};
            a[t[i].whole].kind = t[i].kind;
            s->cfg.answer(s->cfg.ctx, &head, t[i].from, &a[t[i].whole]);
        }
        buf_unref(a[0].payload);
        buf_unref(a[1].payload);
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

/* A push whose answer has to wait (new_version: not for other contributions) is answered TAKEN, if
 * its sender asks for that. Under the chunk's lock. */
static void say_taken(const struct ps_store *s, const struct cell *c, int member, int new_version,
                      const struct net_piece *piece, struct ps_answer *now)
{
    if (piece->kind != PIECE_PUSH || !piece->ask_taken ||
        (new_version && !ps_modes_held(s, c, member, ps_modes_limit(s, c))))
        return;
    now->kind = PIECE_TAKEN;
    now->step = piece->step;
}

void ps_store_piece(struct ps_store *s, const struct net_frame_head *head,
                    const struct net_piece *piece, uint64_t from, struct ps_answer *now)
{
    *now = (struct ps_answer){.kind = PIECE_NONE, .chunk = piece->chunk};
    if (!check_sender(s, head, now))
        return;
    if (piece->chunk >= (uint32_t)s->cfg.chunks->n_chunks) {
        ps_cell_refuse(now, "chunk %" PRIu32 " is not below the model's %d", piece->chunk,
                       s->cfg.chunks->n_chunks);
        return;
    }
    if (s->cell_of[piece->chunk] < 0) {
        now->kind = PIECE_WRONG_SHARD;
        return;
    }
    struct cell *c = &s->cells[s->cell_of[piece->chunk]];
    if (!check_content(s, c, piece, now))
        return;
    int new_version = 0;
    pthread_mutex_lock(&c->lock);
    if (piece->kind == PIECE_PUSH)
        new_version = ps_modes_push(s, c, head, piece, now);
    else if (piece->kind == PIECE_INIT)
        new_version = init(s, c, piece, now);
    else
        pull(s, c, head, piece, now);
    if (now->kind == PIECE_NONE) {
        note_stream(c, head, piece, from);
        say_taken(s, c, (int)head->member, new_version, piece, now);
    } else if (now->payload) {
        ps_modes_sent(s, c, (int)head->member);
    }
    struct ps_late late = c->late;
    pthread_mutex_unlock(&c->lock);
    if (new_version && piece->kind == PIECE_PUSH && s->job.sync_mode == JOB_SYNC &&
        (c->shelf == 0 || job_in_lockstep(&s->job)))
        ps_stragglers_note(s->stragglers, &late);
    /* ssp: a member's pull may be its first word after a restart, which moves the bound */
    if (new_version || (piece->kind == PIECE_PULL && s->job.sync_mode == JOB_SSP))
        answer_owed(s, c);
}

void ps_store_sum(struct ps_store *s)
{
    atomic_store(&s->sums, 1);
}

void ps_store_leave(struct ps_store *s, int member)
{
    if (s->job.sync_mode != JOB_SSP)
        return;
    atomic_store(&s->left[member], 1);
    for (int i = 0; i < s->n_cells; i++)
        answer_owed(s, &s->cells[i]);
}

const struct ps_stragglers *ps_store_stragglers(const struct ps_store *s)
{
    return s->stragglers;
}

void ps_store_segment(const struct ps_store *s, struct net_shared_name *out)
{
    net_shared_name_of(s->segment, out);
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

int64_t ps_store_highest(struct ps_store *s)
{
    int64_t highest = -1;
    for (int i = 0; i < s->n_cells; i++) {
        struct cell *c = &s->cells[i];
        pthread_mutex_lock(&c->lock);
        if (c->version > highest)
            highest = c->version;
        pthread_mutex_unlock(&c->lock);
    }
    return highest;
}

/* Whoever looks at `hold` does so under a chunk's lock: either before its version was read by
 * ps_store_highest, or knowing that it is on. */
void ps_store_hold(struct ps_store *s, int on)
{
    atomic_store(&s->hold, on);
    for (int i = 0; i < s->n_cells && !on; i++)
        answer_owed(s, &s->cells[i]);
}

enum status ps_store_load(struct ps_store *s,
                          enum status (*load)(void *ctx, int chunk, float *value, float *slots,
                                              int64_t *version),
                          void *ctx)
{
    enum status st = ST_OK;
    for (int i = 0; i < s->n_cells; i++) {
        struct cell *c = &s->cells[i];
        struct ps_version v;
        TRY(take_version(s, c, &v));
        st = load(ctx, c->chunk, v.value->data, c->slots ? c->slots->data : NULL, &c->version);
        if (st == ST_OK && v.wire != v.value)
            dtype_encode(v.dtype, v.wire->data, v.value->data, c->n);
        pthread_mutex_lock(&c->lock);
        c->now = v;
        pthread_mutex_unlock(&c->lock);
        TRY(st);
    }
done:
    return st;
}

int ps_store_missing(struct ps_store *s, int64_t since_ns, int *missing, int64_t *step)
{
    int n_waiting = 0;
    if (s->job.sync_mode == JOB_ASYNC)
        return 0;
    for (int i = 0; i < s->n_cells; i++) {
        struct cell *c = &s->cells[i];
        pthread_mutex_lock(&c->lock);
        if (ps_modes_missing(s, c, since_ns, missing) && (n_waiting++ == 0 || c->version < *step))
            *step = c->version;
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
    if (c->now.value) {
        b = buf_ref(c->now.value);
        *version = c->version;
    }
    pthread_mutex_unlock(&c->lock);
    return b;
}
