/* tests/fake_time.c - see the header. */
#include "tests/fake_time.h"
#include "base/clock.h"
#include <stdatomic.h>

static _Atomic int64_t stopped_ns; /* 0: the clock runs */
static _Atomic int64_t longest_ns = -1;
static _Thread_local int is_own;

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    int64_t ns = atomic_load(&stopped_ns);
    if (ns == 0 || id != CLOCK_MONOTONIC)
        return __real_clock_gettime(id, ts);
    *ts = (struct timespec){ns / 1000000000, ns % 1000000000};
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    int64_t ns = (int64_t)until->tv_sec * 1000000000 + until->tv_nsec - clock_now_ns();
    int64_t before = atomic_load(&longest_ns);
    while (!is_own && ns > before && !atomic_compare_exchange_weak(&longest_ns, &before, ns))
        ;
    return __real_pthread_cond_timedwait(cond, lock, until);
}

void fake_time_stop(void)
{
    atomic_store(&stopped_ns, clock_now_ns());
}

void fake_time_move(int64_t ms)
{
    atomic_fetch_add(&stopped_ns, ms * 1000000);
}

void fake_time_release(void)
{
    atomic_store(&stopped_ns, 0);
}

void fake_time_watch(void)
{
    atomic_store(&longest_ns, -1);
}

void fake_time_own(void)
{
    is_own = 1;
}

int64_t fake_time_longest_wait_ms(void)
{
    int64_t ns = atomic_load(&longest_ns);
    return ns < 0 ? -1 : ns / 1000000;
}
