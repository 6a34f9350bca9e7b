/* base/lane.c - see lane.h. If a lane is left to its thread because a job hangs, the thread frees
 * the lane when the job ends. */
#include "base/lane.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/threads.h"
#include <pthread.h>
#include <stdlib.h>

struct lane {
    pthread_t thread;

    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t wake;
    struct lane_job *next; /* first waiting job; NULL: no job is waiting */
    bool is_stopping, has_ended;
    bool is_left;   /* the lane was destroyed while a job hung; its thread frees it */
    bool is_ending; /* the function `end` of a job is running: lane_destroy() waits for it */
};

static void free_lane(struct lane *l)
{
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Runs the job. The lock is released while the job works. */
static void run_job(struct lane *l, struct lane_job *job) REQUIRES(l->lock)
{
    pthread_mutex_unlock(&l->lock);
    job->work(job);
    pthread_mutex_lock(&l->lock);
    bool is_left = l->is_left;
    l->is_ending = true;
    pthread_mutex_unlock(&l->lock);
    job->end(job, is_left);
    pthread_mutex_lock(&l->lock);
    l->is_ending = false;
    pthread_cond_broadcast(&l->wake);
}

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->is_stopping) {
        struct lane_job *job = l->next;
        l->next = NULL;
        if (job)
            run_job(l, job);
        else
            pthread_cond_wait(&l->wake, &l->lock);
    }
    l->has_ended = true;
    bool is_left = l->is_left;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
    if (is_left)
        free_lane(l);
    return NULL;
}

enum status lane_create(const char *purpose, struct lane **out)
{
    struct lane *l = calloc(1, sizeof *l);
    if (!l)
        return ST_NOMEM;
    pthread_mutex_init(&l->lock, NULL);
    clock_cond_init(&l->wake);
    int err = pthread_create(&l->thread, NULL, lane_main, l);
    if (err) {
        LOG_E("the thread that %s cannot be started: %s", purpose, threads_error(err));
        free_lane(l);
        return ST_NOMEM;
    }
    *out = l;
    return ST_OK;
}

enum status lane_post(struct lane *l, struct lane_job *job)
{
    pthread_mutex_lock(&l->lock);
    enum status st = l->next || l->is_stopping ? ST_BUSY : ST_OK;
    if (st == ST_OK)
        l->next = job;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
    return st;
}

bool lane_destroy(struct lane *l, int64_t deadline_ns)
{
    if (!l)
        return true;
    pthread_mutex_lock(&l->lock);
    l->is_stopping = true;
    struct lane_job *job = l->next;
    l->next = NULL;
    pthread_cond_broadcast(&l->wake);
    while (!l->has_ended && clock_cond_wait(&l->wake, &l->lock, deadline_ns) == 0)
        ;
    while (l->is_ending)
        pthread_cond_wait(&l->wake, &l->lock);
    bool has_ended = l->has_ended;
    pthread_t thread = l->thread;
    l->is_left = !has_ended;
    pthread_mutex_unlock(&l->lock);
    if (job)
        job->end(job, true);
    if (has_ended) {
        pthread_join(thread, NULL);
        free_lane(l);
    } else {
        pthread_detach(thread);
    }
    return has_ended;
}
