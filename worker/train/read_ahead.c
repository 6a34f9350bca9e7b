/* worker/train/read_ahead.c - a thread that serves one request at a time; one lock guards its
 * state. */
#include "worker/train/read_ahead.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/trace.h"
#include <pthread.h>
#include <stdlib.h>

struct read_ahead {
    enum status (*read)(void *ctx);
    void *ctx;
    int index;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the three fields below */
    int started;          /* a call was requested, and has not ended yet */
    int ends;
    enum status st; /* status of the last call that ended */
    pthread_cond_t changed;
};

static void *read_main(void *arg)
{
    struct read_ahead *r = arg;
    trace_thread_name("reader", r->index);
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->started && !r->ends)
            pthread_cond_wait(&r->changed, &r->lock);
        if (r->ends)
            break;
        pthread_mutex_unlock(&r->lock);
        enum status st = r->read(r->ctx);
        pthread_mutex_lock(&r->lock);
        r->st = st;
        r->started = 0;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

enum status read_ahead_create(enum status (*read)(void *ctx), void *ctx, int index,
                              struct read_ahead **out)
{
    struct read_ahead *r = calloc(1, sizeof *r);
    if (!r) {
        LOG_E("out of memory for the reader of tower %d", index);
        return ST_NOMEM;
    }
    r->read = read;
    r->ctx = ctx;
    r->index = index;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    int err = pthread_create(&r->thread, NULL, read_main, r);
    if (err) {
        LOG_E("the thread that reads for tower %d cannot be started: %s", index,
              threads_error(err));
        pthread_cond_destroy(&r->changed);
        pthread_mutex_destroy(&r->lock);
        free(r);
        return ST_NOMEM;
    }
    *out = r;
    return ST_OK;
}

void read_ahead_destroy(struct read_ahead *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->ends = 1;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void read_ahead_start(struct read_ahead *r)
{
    pthread_mutex_lock(&r->lock);
    CHECK(!r->started);
    r->started = 1;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

enum status read_ahead_wait(struct read_ahead *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->started)
        pthread_cond_wait(&r->changed, &r->lock);
    enum status st = r->st;
    pthread_mutex_unlock(&r->lock);
    return st;
}
