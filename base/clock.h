/* base/clock.h - monotonic time, and waiting with a deadline. Threads: any. Errors: none. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include "base/guarded.h"
#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Returns the nanoseconds of CLOCK_MONOTONIC. */
static inline int64_t clock_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Returns the monotonic time `ms` from now, in nanoseconds. */
static inline int64_t clock_deadline_ns(int64_t ms)
{
    return clock_now_ns() + ms * 1000000;
}

/* Initialises a condition variable whose timed wait uses the monotonic clock. */
static inline void clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static inline void clock_sleep_ms(int64_t ms)
{
    nanosleep(&(struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000}, NULL);
}

/* Waits on cond until it is signalled or deadline_ns (monotonic) has passed. Returns 0 or
 * ETIMEDOUT. */
static inline int clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ns)
    REQUIRES(*lock)
{
    struct timespec ts = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    return pthread_cond_timedwait(cond, lock, &ts);
}

#endif
