/* ps/rows/shared_bucket.c - see shared_bucket.h. */
#include "ps/rows/shared_bucket.h"
#include <stdatomic.h>
#include <stdlib.h>

enum status shared_bucket_create(const struct bucket_config *config, struct shared_bucket **out)
{
    struct shared_bucket *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    enum status st = bucket_create(config, &s->bucket);
    if (st != ST_OK) {
        free(s);
        return st;
    }
    atomic_init(&s->refs, 1);
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return ST_OK;
}

struct shared_bucket *shared_bucket_ref(struct shared_bucket *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void shared_bucket_unref(struct shared_bucket *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&s->lock);
    bucket_destroy(s->bucket);
    free(s);
}
