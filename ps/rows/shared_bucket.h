/* ps/rows/shared_bucket.h - a bucket that several stores share: if a bucket stays on its server,
 * the stores of two generations have it until the later generation is settled.
 * Owns:    the bucket.
 * Threads: `lock` guards the bucket; no other lock is locked while a thread holds it.
 * Errors:  those of bucket_create. */
#ifndef PS_ROWS_SHARED_BUCKET_H
#define PS_ROWS_SHARED_BUCKET_H
#include "ps/rows/bucket.h"
#include <pthread.h>

struct shared_bucket {
    _Atomic int refs;
    pthread_mutex_t lock;
    struct bucket *bucket;
};

/* Creates an empty bucket of version 0, with one reference. */
enum status shared_bucket_create(const struct bucket_config *config, struct shared_bucket **out);
struct shared_bucket *shared_bucket_ref(struct shared_bucket *s); /* returns s */
void shared_bucket_unref(struct shared_bucket *s);                /* NULL is fine */

#endif
