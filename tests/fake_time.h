/* tests/fake_time.h - time that a busy machine cannot stretch: a monotonic clock that stands until
 * the test moves it, and how long threads asked to wait, not how long they did. Programs that use
 * it are linked with --wrap for clock_gettime and pthread_cond_timedwait (CMakeLists.txt).
 * Owns: the clock, for the whole program. Threads: waits may be on any; the clock is stopped and
 * moved by one, while no other waits. Errors: none. */
#ifndef TESTS_FAKE_TIME_H
#define TESTS_FAKE_TIME_H
#include <stdint.h>

/* The clock stands, until fake_time_release(). */
void fake_time_stop(void);
void fake_time_move(int64_t ms);
void fake_time_release(void);

/* Forgets the waits so far. Those of threads that called fake_time_own() are the test's own. */
void fake_time_watch(void);
void fake_time_own(void);
/* The longest time that a wait with a deadline asked for; -1: there was none. */
int64_t fake_time_longest_wait_ms(void);

#endif
