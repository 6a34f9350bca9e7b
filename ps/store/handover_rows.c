/* ps/store/handover_rows.c - see handover.h: buckets of tables. If a bucket stays on its server,
 * the next store has the same struct shared_bucket as the store before, which holds the version
 * that it handed over: if ps 0 abandons the next generation before it is settled, another store
 * begins at the same version, after the bucket has perhaps made further ones. So the bucket first
 * goes back to its version (bucket_rewind). If that is impossible, since a later version is held,
 * as by a checkpoint that was cancelled and is still being written, the next store has a copy.
 *
 * A bucket from another server arrives in parts. The cursor is the highest key that is here, and a
 * part must continue after it. So a part that arrives twice is refused.
 * Locks:   a chunk's, then the bucket's. */
#include "ps/store/handover_rows.h"
#include "ps/store/chunk_state.h"

enum { COPY_ENTRIES = 1 << 16 }; /* entries of a part, if a bucket is copied on its server */

/* Returns true if the store may hand over this version. The caller holds the chunk's lock. */
static bool offers(const struct store *s, const struct chunk_state *c, int64_t number)
{
    const struct chunk_rows *r = c->rows;
    if (!r->shared || r->part.is_partial || number < 0)
        return false;
    if (r->held >= 0)
        return number == r->held;
    return number == c->version || (s->lockstep && number == c->version - 1 && number >= r->first);
}

enum status handover_take_rows(const struct store *s, struct chunk_state *c, int64_t step,
                               struct handover_chunk *out)
{
    struct chunk_rows *r = c->rows;
    enum status st = ST_RANGE;
    pthread_mutex_lock(&c->lock);
    int64_t number = s->lockstep && step >= 0 ? step : c->version;
    if (offers(s, c, number)) {
        pthread_mutex_lock(&r->shared->lock);
        if (c->is_stopped && r->held < 0)
            st = bucket_hold(r->shared->bucket, (uint64_t)number);
        else
            st = bucket_is_readable(r->shared->bucket, (uint64_t)number) ? ST_OK : ST_RANGE;
        pthread_mutex_unlock(&r->shared->lock);
    }
    if (st == ST_OK && c->is_stopped)
        r->held = number;
    if (st == ST_OK)
        *out = (struct handover_chunk){.version = number, .bucket = shared_bucket_ref(r->shared)};
    pthread_mutex_unlock(&c->lock);
    return st == ST_NOT_FOUND ? ST_RANGE : st;
}

enum status handover_take_part(struct store *s, int chunk, struct handover_chunk *out)
{
    struct chunk_state *c = &s->owned[s->shelf_of[chunk]];
    enum status st = ST_NOT_FOUND;
    pthread_mutex_lock(&c->lock);
    if (c->rows && c->rows->shared && c->rows->part.is_partial) {
        *out = (struct handover_chunk){.version = (int64_t)c->rows->shared->bucket->version,
                                       .bucket = shared_bucket_ref(c->rows->shared),
                                       .part = c->rows->part};
        st = ST_OK;
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

struct handover_cursor handover_cursor(struct store *s, int chunk)
{
    struct chunk_state *c = &s->owned[s->shelf_of[chunk]];
    struct handover_cursor part = {.is_partial = false};
    pthread_mutex_lock(&c->lock);
    if (c->rows)
        part = c->rows->part;
    pthread_mutex_unlock(&c->lock);
    return part;
}

/* Moves the cursor to the highest key of a part. */
static void advance(struct handover_cursor *at, const struct bucket_entries *e)
{
    uint64_t row = e->n > 0 ? e->keys[e->n - 1] : 0;
    uint64_t pending = e->n_pending > 0 ? e->pending_keys[e->n_pending - 1] : 0;
    if (e->n + e->n_pending == 0)
        return;
    at->has_after = true;
    at->after = row > pending ? row : pending;
}

/* Makes a copy of a version of a bucket that cannot go back to this version. */
static enum status copy_bucket(struct shared_bucket *from, uint64_t version,
                               const struct bucket_config *config, struct shared_bucket **out)
{
    struct shared_bucket *to = NULL;
    struct handover_cursor at = {.is_partial = true};
    const char *why;
    enum status st = ST_OK;
    TRY(shared_bucket_create(config, &to));
    bucket_begin_fill(to->bucket, version);
    while (at.is_partial) {
        struct bucket_part part;
        TRY(bucket_copy(from, version, at.has_after ? &at.after : NULL, COPY_ENTRIES, &part));
        st = bucket_add(to->bucket, at.has_after ? &at.after : NULL, &part.entries, &why);
        advance(&at, &part.entries);
        at.is_partial = part.has_more;
        bucket_part_free(&part);
        TRY(st);
    }
    *out = to;
    to = NULL;
done:
    shared_bucket_unref(to);
    return st;
}

/* Makes a version of a bucket the present one. Sets *out to a new reference to the bucket, or to a
 * copy. The settings of both generations are equal, except for the number of steps. */
static enum status adopt_bucket(struct shared_bucket *from, uint64_t version,
                                const struct bucket_config *config, struct shared_bucket **out)
{
    enum status st = ST_OK;
    pthread_mutex_lock(&from->lock);
    if (from->bucket->version != version)
        st = bucket_rewind(from->bucket, version);
    /* other threads may read the other settings without the lock */
    if (st == ST_OK)
        from->bucket->config.optimizer.common.total_steps = config->optimizer.common.total_steps;
    pthread_mutex_unlock(&from->lock);
    if (st == ST_BUSY)
        return copy_bucket(from, version, config, out);
    if (st == ST_OK)
        *out = shared_bucket_ref(from);
    return st;
}

enum status handover_give_rows(const struct store *s, struct chunk_state *c,
                               const struct handover_chunk *t)
{
    struct bucket_config config;
    struct shared_bucket *shared = NULL;
    chunk_rows_config(s, c->chunk, &config);
    enum status st = adopt_bucket(t->bucket, (uint64_t)t->version, &config, &shared);
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&c->lock);
    struct shared_bucket *old = c->rows->shared;
    c->rows->shared = shared;
    c->rows->is_filled = true;
    c->rows->part = t->part;
    c->rows->first = t->version;
    c->version = t->part.is_partial ? -1 : t->version;
    pthread_mutex_unlock(&c->lock);
    shared_bucket_unref(old);
    return ST_OK;
}

/* Returns the reason why a part cannot be added, or NULL. */
static const char *check_part(const struct chunk_rows *r, const struct handover_part *part)
{
    const struct bucket *b = r->shared->bucket;
    const struct bucket_entries *e = &part->entries;
    if (part->version < 0 || (r->is_filled && (uint64_t)part->version != b->version))
        return "a part of a bucket has another version than the parts before";
    if (r->is_filled && !r->part.is_partial)
        return "a bucket arrives that is already complete";
    if (part->n_value != e->n * (size_t)b->config.dim || part->n_slots != e->n * b->n_slots)
        return "the rows of a bucket have another size than this job's table";
    if (part->has_more && e->n + e->n_pending == 0)
        return "a part of a bucket has no rows, but further parts follow";
    return NULL;
}

enum status handover_add(struct store *s, int chunk, const struct handover_part *part,
                         const char **why)
{
    struct chunk_state *c = &s->owned[s->shelf_of[chunk]];
    struct chunk_rows *r = c->rows;
    enum status st = ST_PROTOCOL;
    pthread_mutex_lock(&c->lock);
    pthread_mutex_lock(&r->shared->lock);
    struct bucket *b = r->shared->bucket;
    uint64_t before = b->version;
    *why = check_part(r, part);
    if (!*why) {
        b->version = (uint64_t)part->version; /* no step of a row may be above it */
        st = bucket_add(b, r->part.has_after ? &r->part.after : NULL, &part->entries, why);
    }
    if (st == ST_OK) {
        b->first = b->version;
        r->first = part->version;
        r->is_filled = true;
        r->part.is_partial = part->has_more;
        advance(&r->part, &part->entries);
        c->version = part->has_more ? -1 : part->version;
    } else {
        b->version = before;
    }
    pthread_mutex_unlock(&r->shared->lock);
    pthread_mutex_unlock(&c->lock);
    return st == ST_INVALID ? ST_PROTOCOL : st;
}
