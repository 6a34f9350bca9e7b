/* ps/store/store.c - see store.h: creates a store, admits members, and answers questions about all
 * its chunks. pieces.c handles pieces.
 * Locks:   a chunk's. */
#include "base/log.h"
#include "net/wire/fragments.h"
#include "ps/store/answers.h"
#include "ps/store/equal_gradients.h"
#include "ps/store/versions.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int members_of(const struct store_config *cfg)
{
    return cfg->n_members > 0 ? cfg->n_members : cfg->job->n_workers;
}

/* Checks the bytes that create will allocate, and those that rows of tables may need later, against
 * the limit, in doubles, so that nothing overflows. */
static enum status check_memory(const struct store_config *cfg, int *n_owned)
{
    double elems = 0, rows = 0, most = 0;
    const char *largest = "";
    *n_owned = 0;
    for (int i = 0; i < cfg->chunks->n_chunks; i++) {
        if (cfg->server[i] != cfg->self)
            continue;
        elems += (double)cfg->chunks->chunks[i].n_elems;
        double bytes = i < cfg->chunks->n_dense ? 0 : chunk_rows_most_bytes(cfg->chunks, i);
        rows += bytes;
        if (bytes > most)
            largest = tables_of(cfg->chunks, i)->name;
        most = bytes > most ? bytes : most;
        (*n_owned)++;
    }
    double model = elems * sizeof(float) + rows;
    double tables = (double)*n_owned * members_of(cfg) *
                    (double)(sizeof(struct waiter) + sizeof(struct aggregate_copy));
    double limit = (double)cfg->max_bytes;
    if (model <= limit && tables <= limit)
        return ST_OK;
    if (rows > 0)
        LOG_E(
            "this server's chunks need %.0f bytes, of which rows of tables may need %.0f (the largest bucket, of table '%.60s', %.0f), and its records of contributions %.0f; each of the two may need at most --max_model_bytes=%.0f; lower max_rows or add servers",
            model, rows, largest, most, tables, limit);
    else
        LOG_E(
            "this server's chunks need %.0f bytes, and its records of contributions %.0f; each of the two may need at most --max_model_bytes=%.0f",
            model, tables, limit);
    return ST_RANGE;
}

/* Sets the fields of a chunk that has parameters. */
static enum status init_dense(struct store *s, struct chunk_state *c)
{
    const struct net_chunk *spec = &s->cfg.chunks->chunks[c->chunk];
    size_t n_slots = (size_t)job_n_slots(&s->job);
    c->n = (size_t)spec->n_elems;
    c->param = &s->cfg.chunks->params[spec->param];
    c->n_params = lacking_n_params(s->cfg.chunks, c->chunk);
    if (c->param->rule == PARAM_AVERAGE)
        n_slots = 0;
    c->n_slots = n_slots;
    if (n_slots > 0 && buf_create(n_slots * c->n * sizeof(float), &c->present.slots) == ST_OK)
        memset(c->present.slots->data, 0, c->present.slots->bytes);
    if (n_slots > 0 && !c->present.slots)
        return ST_NOMEM;
    c->sum.n = c->n;
    c->sum.n_params = c->n_params;
    c->sum.dtype = job_push_dtype(&s->job, s->cfg.chunks, c->chunk);
    c->sum.whole = s->norm != NULL;
    /* an overflow of the sum is found when the norm is checked */
    c->sum.may_overflow = s->norm && c->param->rule == PARAM_TRAINED;
    return aggregate_init(&c->sum, s->pool, c->shelf);
}

static enum status chunk_state_init(struct store *s, struct chunk_state *c, int chunk)
{
    int wanted = job_aggregate(&s->job);
    *c = (struct chunk_state){.chunk = chunk,
                              .shelf = s->shelf_of[chunk],
                              .version = -1,
                              .rate = 1,
                              .not_finite = SIZE_MAX};
    pthread_mutex_init(&c->lock, NULL);
    c->waiters = calloc((size_t)s->n_members, sizeof *c->waiters);
    if (!c->waiters)
        return ST_NOMEM;
    for (int m = 0; m < s->n_members; m++)
        c->waiters[m].counted_step = c->waiters[m].base_version = -1;
    c->sum.n_members = s->lockstep || wanted > s->n_members ? s->n_members : wanted;
    c->version_dtype = chunks_dtype(s->cfg.chunks, chunk, s->job.version_dtype);
    return chunk < s->cfg.chunks->n_dense ? init_dense(s, c) : chunk_rows_create(s, c);
}

/* Creates the samples, which belong to the model's first chunk. In lockstep, or if the job has no
 * batch size, members derive their samples themselves. */
static enum status make_samples(struct store *s)
{
    if (s->lockstep || s->shelf_of[0] < 0 || s->job.batch <= 0)
        return ST_OK;
    return ps_samples_create(s->n_members, s->job.batch, s->cfg.position, &s->samples);
}

/* Returns the distance in bytes between two places of a chunk in the segment. */
static size_t place_bytes(const struct chunk_state *c)
{
    if (c->rows)
        return chunk_rows_area_bytes(c);
    return SEGMENT_STAMP_BYTES + ((dtype_bytes(c->version_dtype, c->n) + 63) & ~(size_t)63);
}

/* Returns the number of places for a chunk. In lockstep members read only the present version, so
 * four places are enough: three rotate, and one is spare. In other modes each member may read a
 * different version. Each member reads other rows of a bucket. */
static int count_places(const struct store *s, const struct chunk_state *c)
{
    int n = s->lockstep ? 4 : 3 + s->n_members;
    if (c->rows)
        return CHUNK_ANSWERS * s->n_members;
    return n < PS_POOL_MAX_KEEP ? n : PS_POOL_MAX_KEEP;
}

/* Lays out places for versions, and for answers with rows, in a segment that members on this host
 * read. Only places that are used need memory. Payloads without a place are sent by TCP. */
static void share_versions(struct store *s)
{
    char why[SEGMENT_WHY_BYTES];
    size_t bytes = 0, at = 0;
    for (int i = 0; i < s->n_owned; i++)
        bytes += place_bytes(&s->owned[i]) * (size_t)count_places(s, &s->owned[i]);
    if (!s->cfg.shared_memory || bytes == 0)
        return;
    if (segment_create_sparse(bytes, &s->segment, why) != ST_OK) {
        LOG_W("no shared memory: %s; payloads are sent by TCP", why);
        return;
    }
    for (int i = 0; i < s->n_owned; i++) {
        struct chunk_state *c = &s->owned[i];
        size_t stride = place_bytes(c);
        int shelf = c->version_dtype == DTYPE_F32 ? i : s->n_owned + i, n = count_places(s, c);
        if (c->rows) {
            c->rows->area = at;
            c->rows->area_bytes = stride;
        } else {
            ps_pool_share(s->pool, shelf, s->segment, at, stride, n);
        }
        at += stride * (size_t)n;
    }
}

enum status store_create(const struct store_config *cfg, struct store **out)
{
    enum status st = ST_OK;
    struct store *s = NULL;
    int n_owned, n_chunks = cfg->chunks->n_chunks;
    TRY(check_memory(cfg, &n_owned));
    s = calloc(1, sizeof *s);
    TRY(s ? ST_OK : ST_NOMEM);
    s->cfg = *cfg;
    s->job = *cfg->job;
    s->cfg.job = NULL;
    s->cfg.server = NULL;
    s->n_members = members_of(cfg);
    s->mode = consistency_mode_of(cfg->job);
    s->lockstep = s->mode == CONSISTENCY_SYNC;
    atomic_init(&s->hold_last, cfg->hold_last);
    pthread_mutex_init(&s->updates_lock, NULL);
    pthread_cond_init(&s->updates_ended, NULL);
    /* The first n_owned shelves are for values, of which three rotate, and for copies that wait;
     * the next are for encoded wire forms, and the last for slots. */
    TRY(ps_pool_create(3 * n_owned, 3 + s->n_members, &s->pool));
    s->owned = calloc((size_t)n_owned + 1, sizeof *s->owned);
    s->shelf_of = malloc((size_t)n_chunks * sizeof *s->shelf_of);
    s->incarnation = calloc((size_t)s->n_members, sizeof *s->incarnation);
    s->left = calloc((size_t)s->n_members, sizeof *s->left);
    TRY(s->owned && s->shelf_of && s->incarnation && s->left ? ST_OK : ST_NOMEM);
    struct stragglers_config stragglers = {.n_members = s->n_members,
                                           .member = cfg->member,
                                           .n_chunks = s->lockstep ? n_owned : 1,
                                           .hosts = cfg->worker_hosts,
                                           .line_ms = cfg->straggler_ms};
    TRY(stragglers_create(&stragglers, &s->stragglers));
    TRY(fragments_create(&s->job, cfg->chunks, &s->fragment));
    TRY(buf_create(sizeof(float), &s->nothing));
    s->nothing->bytes = 0;
    if (job_servers_clip(&s->job))
        TRY(ps_norm_create(n_chunks, cfg->server, cfg->self, &s->norm));
    for (int i = 0; i < n_chunks; i++) {
        s->shelf_of[i] = -1;
        if (cfg->server[i] != cfg->self)
            continue;
        s->shelf_of[i] = s->n_owned;
        s->n_owned++;
        TRY(chunk_state_init(s, &s->owned[s->n_owned - 1], i));
    }
    TRY(make_samples(s));
    TRY(equal_gradients_create(s, &s->equal));
    share_versions(s);
    *out = s;
    return ST_OK;
done:
    if (st == ST_NOMEM)
        LOG_E("no memory for a model of %" PRId64 " elements", cfg->chunks->n_elems);
    store_destroy(s);
    return st;
}

void store_empty_chunk(const struct store *s, struct chunk_state *c)
{
    aggregate_free(&c->sum);
    version_drop_all(c);
    if (c->rows)
        chunk_rows_empty(s, c->rows);
    for (int m = 0; c->waiters && m < s->n_members; m++) {
        buf_unref(c->waiters[m].base);
        c->waiters[m].base = NULL;
    }
}

void store_destroy(struct store *s)
{
    if (!s)
        return;
    chunk_update_await_all(s);
    for (int i = 0; i < s->n_owned; i++) {
        struct chunk_state *c = &s->owned[i];
        store_empty_chunk(s, c);
        chunk_rows_destroy(s, c->rows);
        free(c->waiters);
        pthread_mutex_destroy(&c->lock);
    }
    ps_pool_destroy(s->pool);
    segment_unref(s->segment);
    stragglers_destroy(s->stragglers);
    equal_gradients_destroy(s->equal);
    ps_norm_destroy(s->norm);
    ps_samples_destroy(s->samples);
    free(s->owned);
    free(s->shelf_of);
    free(s->fragment);
    buf_unref(s->nothing);
    free(s->incarnation);
    free(s->left);
    pthread_cond_destroy(&s->updates_ended);
    pthread_mutex_destroy(&s->updates_lock);
    free(s);
}

void store_admit(struct store *s, int member, uint64_t incarnation)
{
    uint64_t before = atomic_exchange(&s->incarnation[member], incarnation);
    if (before != 0 && before != incarnation && !atomic_load(&s->left[member]))
        atomic_fetch_add(&s->n_restarts, 1);
}

void store_sum(struct store *s)
{
    atomic_store(&s->sums, 1);
}

void store_leave(struct store *s, int member)
{
    if (s->job.sync_mode != JOB_SSP)
        return;
    atomic_store(&s->left[member], 1);
    for (int i = 0; i < s->n_owned; i++)
        answer_owed(s, &s->owned[i]);
}

const struct stragglers *store_stragglers(const struct store *s)
{
    return s->stragglers;
}

void store_segment(const struct store *s, struct segment_name *out)
{
    segment_name_of(s->segment, out);
}

int64_t store_step(struct store *s)
{
    int64_t lowest = s->n_owned ? INT64_MAX : s->job.train_steps;
    for (int i = 0; i < s->n_owned; i++) {
        struct chunk_state *c = &s->owned[i];
        pthread_mutex_lock(&c->lock);
        if (c->version < lowest)
            lowest = c->version;
        pthread_mutex_unlock(&c->lock);
    }
    return lowest;
}

int64_t store_highest(struct store *s)
{
    int64_t highest = -1;
    for (int i = 0; i < s->n_owned; i++) {
        struct chunk_state *c = &s->owned[i];
        pthread_mutex_lock(&c->lock);
        if (c->version > highest)
            highest = c->version;
        pthread_mutex_unlock(&c->lock);
    }
    return highest;
}

int store_missing(struct store *s, int64_t since_ns, int *missing, int64_t *step)
{
    int n_waiting = 0;
    if (s->job.sync_mode == JOB_ASYNC)
        return 0;
    for (int i = 0; i < s->n_owned; i++) {
        struct chunk_state *c = &s->owned[i];
        pthread_mutex_lock(&c->lock);
        if (answer_missing(s, c, since_ns, missing) && (n_waiting++ == 0 || c->version < *step))
            *step = c->version;
        pthread_mutex_unlock(&c->lock);
    }
    return n_waiting;
}

struct buf *store_read(struct store *s, int chunk, int64_t *version)
{
    struct buf *b = NULL;
    if (chunk < 0 || chunk >= s->cfg.chunks->n_chunks || s->shelf_of[chunk] < 0)
        return NULL;
    struct chunk_state *c = &s->owned[s->shelf_of[chunk]];
    pthread_mutex_lock(&c->lock);
    if (c->present.value) {
        b = buf_ref(c->present.value);
        *version = c->version;
    }
    pthread_mutex_unlock(&c->lock);
    return b;
}
