/* ps/store/table_counts.c - see table_counts.h. The buckets are read one after the other, so the
 * figures of a table may be of several versions. */
#include "ps/store/table_counts.h"
#include "ps/store/chunk_rows.h"
#include "ps/store/chunk_state.h"
#include <string.h>

static void add_bucket(const struct chunk_rows *r, struct net_status_table *t)
{
    const struct bucket *b = r->shared->bucket;
    t->n_buckets++;
    t->rows += b->rows.n;
    t->pending += b->pending.n;
    t->bytes += bucket_bytes(b);
    t->removed += b->n_removed;
    t->keys += r->n_keys;
    if (t->n_buckets > 1 && r->n_keys <= t->hottest_keys)
        return;
    t->hottest = r->number;
    t->hottest_keys = r->n_keys;
}

void store_count_tables(struct store *s, struct net_status_table *out)
{
    memset(out, 0, (size_t)s->cfg.chunks->n_tables * sizeof *out);
    for (int i = 0; i < s->n_owned; i++) {
        struct chunk_state *c = &s->owned[i];
        pthread_mutex_lock(&c->lock);
        const struct chunk_rows *r = c->rows;
        if (r && r->shared) {
            pthread_mutex_lock(&r->shared->lock);
            add_bucket(r, &out[s->cfg.chunks->chunks[c->chunk].table]);
            pthread_mutex_unlock(&r->shared->lock);
        }
        pthread_mutex_unlock(&c->lock);
    }
}
