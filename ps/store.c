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

static int members_of(const struct ps_store_config *cfg)
{
    return cfg->n_members > 0 ? cfg->n_members : cfg->job->n_workers;
}

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
    double tables = (double)*n_cells * members_of(cfg) *
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
    *c = (struct cell){.chunk = chunk, .shelf = s->cell_of[chunk], .version = -1, .end = INT64_MAX};
    c->n = (size_t)spec->n_elems;
    c->param = &s->cfg.chunks->params[spec->param];
    if (c->param->rule == PARAM_AVERAGE)
        n_slots = 0;
    pthread_mutex_init(&c->lock, NULL);
    c->askers = calloc((size_t)s->n_members, sizeof *c->askers);
    c->n_slots = n_slots;
    if (n_slots > 0 && buf_create(n_slots * c->n * sizeof(float), &c->now.slots) == ST_OK)
        memset(c->now.slots->data, 0, c->now.slots->bytes);
    if (!c->askers || (n_slots > 0 && !c->now.slots))
        return ST_NOMEM;
    for (int m = 0; m < s->n_members; m++)
        c->askers[m].counted_step = c->askers[m].base_version = -1;
    int wanted = job_aggregate(&s->job);
    c->sum.n = c->n;
    c->sum.n_members = s->lockstep || wanted > s->n_members ? s->n_members : wanted;
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
    int n_places = s->lockstep ? 4 : 3 + s->n_members;
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
    s->n_members = members_of(cfg);
    s->lockstep = job_in_lockstep(cfg->job);
    atomic_init(&s->hold_last, cfg->hold_last);
    /* Three versions turn over; in sync mode copies that wait come from the same shelf. What is
     * sent of versions that do not go out as they are stands on shelves of its own, behind, and
     * behind those the slots. */
    TRY(ps_pool_create(3 * n_cells, 3 + s->n_members, &s->pool));
    s->cells = calloc((size_t)n_cells + 1, sizeof *s->cells);
    s->cell_of = malloc((size_t)n_chunks * sizeof *s->cell_of);
    s->incarnation = calloc((size_t)s->n_members, sizeof *s->incarnation);
    s->left = calloc((size_t)s->n_members, sizeof *s->left);
    TRY(s->cells && s->cell_of && s->incarnation && s->left ? ST_OK : ST_NOMEM);
    struct ps_stragglers_config stragglers = {.n_members = s->n_members,
                                              .member = cfg->member,
                                              .n_chunks = s->lockstep ? n_cells : 1,
                                              .hosts = cfg->worker_hosts,
                                              .line_ms = cfg->straggler_ms};
    TRY(ps_stragglers_create(&stragglers, &s->stragglers));
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
        for (int m = 0; c->askers && m < s->n_members; m++)
            buf_unref(c->askers[m].base);
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
    if (head->member >= (uint32_t)s->n_members) {
        ps_cell_refuse(now, "member %" PRIu32 " is not below the %d that there are", head->member,
                       s->n_members);
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

/* Room for the next version's slots. In lockstep those of the version before the present one, which
 * end with it; else the present one's: they are written over. Unless somebody else reads them. */
static enum status take_slots(struct ps_store *s, const struct cell *c, struct buf **slots)
{
    struct buf *used = s->lockstep ? c->before.slots : c->now.slots;
    if (c->n_slots == 0)
        return ST_OK;
    if (used && atomic_load(&used->refs) == 1) {
        *slots = buf_ref(used);
        return ST_OK;
    }
    return ps_pool_take(s->pool, 2 * s->n_cells + c->shelf, c->n_slots * c->n * sizeof(float), 0,
                        slots);
}

/* ST_NOMEM leaves *v empty. */
enum status ps_cell_take_version(struct ps_store *s, const struct cell *c, struct ps_version *v)
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

void ps_cell_encode(const struct cell *c, struct ps_version *v)
{
    if (v->wire != v->value)
        dtype_encode(v->dtype, v->wire->data, v->value->data, c->n);
}

/* Makes the version after this one, in `next`. Under the chunk's lock. */
static void make_version(struct ps_store *s, struct cell *c, struct ps_version *next)
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
        .slots = c->now.slots ? c->now.slots->data : NULL,
        .compensation = s->job.delay_compensation,
        .base = c->base ? c->base->data : NULL,
        .value = next->value->data,
        .new_slots = next->slots ? next->slots->data : NULL,
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
    if (!s->lockstep) {
        buf_unref(c->before.slots);
        c->before.slots = NULL;
    }
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
    enum status st = ST_OK;
    int64_t begin = trace_begin();
    if (c->sum.n_counted + 1 == c->sum.n_members) {
        st = ps_cell_take_version(s, c, &next);
        if (st == ST_OK)
            st = take_slots(s, c, &next.slots);
    }
    if (st == ST_OK)
        st = ps_aggregate_add(&c->sum, slot, payload, weight);
    if (st != ST_OK) {
        ps_version_drop(&next);
        ps_cell_refuse(now, "chunk %d: the server is out of memory", c->chunk);
        return 0;
    }
    trace_end(begin, TRACE_AGGREGATE, "aggregate", NULL, c->chunk, c->version);
    if (!next.value)
        return 0;
    make_version(s, c, &next);
    return 1;
}

/* Where chunks go each at its own pace, pushes are answered all along, or others would not come to
 * their end. There whoever has all steps asks for the last version by its number. */
static int keeps_last(const struct ps_store *s, int64_t step)
{
    return !s->lockstep && step >= s->job.train_steps &&
           atomic_load_explicit(&s->hold_last, memory_order_relaxed);
}

/* The version that was asked for, where it is still held: a worker that has to redo a step needs
 * all chunks at that version (I4). */
static void pull(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                 const struct net_piece *piece, struct ps_answer *now)
{
    int64_t step = (int64_t)piece->step - 1; /* -1: the newest */
    if (c->version < 0 || step > c->version || keeps_last(s, step)) {
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
        if (ps_cell_take_version(s, c, &v) != ST_OK) {
            ps_cell_refuse(now, "chunk %d: the server is out of memory", c->chunk);
            return 0;
        }
        payload_copy(&piece->payload, v.value->data);
        ps_cell_encode(c, &v);
        v.slots = c->now.slots;
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
    enum { GIVE_WIRE, GIVE_WHOLE, GIVE_NOTHING, N_GIVES } give; /* WHOLE: fp32, versions are not */
};

/* In lockstep: what a push is not told of yet, this version and those above it. */
static int64_t withheld_from(const struct ps_store *s, const struct cell *c)
{
    int last = s->lockstep && atomic_load_explicit(&s->hold_last, memory_order_relaxed);
    return last && s->job.train_steps < c->end ? s->job.train_steps : c->end;
}

/* Takes down who is owed something, from member *from on. Under the chunk's lock. */
static int collect_owed(struct ps_store *s, struct cell *c, int *from, struct target *t)
{
    int n = 0, over = atomic_load(&s->over) && c->ended;
    int64_t limit = ps_modes_limit(s, c);
    int push = c->version < withheld_from(s, c);
    if (!over && atomic_load_explicit(&s->hold, memory_order_relaxed))
        *from = s->n_members; /* ps_store_hold comes back to them */
    for (; *from < s->n_members && n + 2 <= ANSWER_BATCH; (*from)++) {
        struct asker *a = &c->askers[*from];
        int before = n;
        if (a->pusher &&
            (over || (push && a->push_step < c->version && !ps_modes_held(s, c, *from, limit)))) {
            t[n++] = (struct target){*from, a->pusher, a->push_from, a->push_kind, GIVE_WIRE};
            a->pusher = 0;
        }
        if (a->puller && (over || (a->pull_step <= c->version && !keeps_last(s, a->pull_step)))) {
            t[n++] = (struct target){*from, a->puller, a->pull_from, PIECE_VERSION,
                                     a->pull_dtype != c->now.dtype ? GIVE_WHOLE : GIVE_WIRE};
            a->puller = 0;
        }
        for (int i = before; over && i < n; i++) {
            t[i].kind = PIECE_REBASE;
            t[i].give = GIVE_NOTHING;
        }
        if (n > before && !over)
            ps_modes_sent(s, c, *from);
    }
    return n;
}

void ps_cell_answer_owed(struct ps_store *s, struct cell *c)
{
    struct target t[ANSWER_BATCH];
    for (int from = 0; from < s->n_members;) {
        struct ps_answer a[N_GIVES];
        for (int i = 0; i < N_GIVES; i++)
            a[i] = (struct ps_answer){.chunk = (uint32_t)c->chunk};
        pthread_mutex_lock(&c->lock);
        int n = collect_owed(s, c, &from, t);
        for (int i = 0; i < n; i++)
            if (t[i].give != GIVE_NOTHING && !a[t[i].give].payload)
                give_version(s, &c->now, c->version,
                             t[i].give == GIVE_WHOLE ? DTYPE_F32 : c->now.dtype, &a[t[i].give]);
        pthread_mutex_unlock(&c->lock);
        for (int i = 0; i < n; i++) {
            const struct net_frame_head head = {s->cfg.generation, (uint32_t)t[i].member,
                                                t[i].incarnation};
            a[t[i].give].kind = t[i].kind;
            s->cfg.answer(s->cfg.ctx, &head, t[i].from, &a[t[i].give]);
        }
        for (int i = 0; i < N_GIVES; i++)
            buf_unref(a[i].payload);
    }
}

void ps_cell_wait(struct cell *c, const struct net_frame_head *head, int64_t step)
{
    struct asker *a = &c->askers[head->member];
    a->pusher = head->incarnation;
    a->push_step = step;
    a->push_kind = PIECE_APPLIED;
}

/* A push's answer that carries a version that nobody is to be told of yet: it comes later. Under
 * the chunk's lock. */
static void withhold(const struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                     struct ps_answer *now)
{
    if (!now->payload || (int64_t)now->step < withheld_from(s, c))
        return;
    ps_cell_wait(c, head, (int64_t)now->step - 1);
    c->askers[head->member].push_kind = now->kind;
    buf_unref(now->payload);
    *now = (struct ps_answer){.kind = PIECE_NONE, .chunk = now->chunk};
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
    int soon = new_version && c->version < withheld_from(s, c) &&
               !ps_modes_held(s, c, member, ps_modes_limit(s, c));
    if (piece->kind != PIECE_PUSH || !piece->ask_taken || soon)
        return;
    now->kind = PIECE_TAKEN;
    now->step = piece->step;
}

/* What the piece does to its chunk. 1: there is a new version. Under the chunk's lock. */
static int handle(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                  const struct net_piece *piece, struct ps_answer *now)
{
    int new_version = 0;
    if (atomic_load(&s->over) && c->ended) {
        now->kind = PIECE_REBASE;
        return 0;
    }
    if (piece->kind == PIECE_PUSH && c->ended && (int64_t)piece->step == c->version)
        ps_cell_wait(c, head, c->version); /* for the next generation */
    else if (piece->kind == PIECE_PUSH)
        new_version = ps_modes_push(s, c, head, piece, now);
    else if (piece->kind == PIECE_INIT)
        new_version = init(s, c, piece, now);
    else
        pull(s, c, head, piece, now);
    if (piece->kind == PIECE_PUSH)
        withhold(s, c, head, now);
    if (now->payload)
        ps_modes_sent(s, c, (int)head->member);
    return new_version;
}

/* A chunk that the store owns and the piece fits; NULL: *now says why not. */
static struct cell *find_cell(struct ps_store *s, const struct net_frame_head *head,
                              const struct net_piece *piece, struct ps_answer *now)
{
    if (!check_sender(s, head, now))
        return NULL;
    if (piece->chunk >= (uint32_t)s->cfg.chunks->n_chunks) {
        ps_cell_refuse(now, "chunk %" PRIu32 " is not below the model's %d", piece->chunk,
                       s->cfg.chunks->n_chunks);
        return NULL;
    }
    if (s->cell_of[piece->chunk] < 0) {
        now->kind = PIECE_WRONG_SHARD;
        return NULL;
    }
    struct cell *c = &s->cells[s->cell_of[piece->chunk]];
    return check_content(s, c, piece, now) ? c : NULL;
}

void ps_store_piece(struct ps_store *s, const struct net_frame_head *head,
                    const struct net_piece *piece, uint64_t from, struct ps_answer *now)
{
    *now = (struct ps_answer){.kind = PIECE_NONE, .chunk = piece->chunk};
    struct cell *c = find_cell(s, head, piece, now);
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    int new_version = handle(s, c, head, piece, now), last = 0;
    if (new_version && c->version >= c->end)
        last = ps_cell_end(s, c);
    if (now->kind == PIECE_NONE) {
        note_stream(c, head, piece, from);
        say_taken(s, c, (int)head->member, new_version, piece, now);
    }
    struct ps_late late = c->late;
    pthread_mutex_unlock(&c->lock);
    if (new_version && piece->kind == PIECE_PUSH && s->job.sync_mode == JOB_SYNC &&
        (c->shelf == 0 || s->lockstep))
        ps_stragglers_note(s->stragglers, &late);
    /* ssp: a member's pull may be its first word after a restart, which moves the bound */
    if (new_version || (piece->kind == PIECE_PULL && s->job.sync_mode == JOB_SSP))
        ps_cell_answer_owed(s, c);
    if (last && s->cfg.stopped)
        s->cfg.stopped(s->cfg.ctx);
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
        ps_cell_answer_owed(s, &s->cells[i]);
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
        ps_cell_answer_owed(s, &s->cells[i]);
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
