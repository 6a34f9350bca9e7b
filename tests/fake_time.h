/* tests/fake_time.h - makes time independent of the machine's load: the monotonic clock stands
 * still until the test moves it, and a test can check the requested length of a wait instead of its
 * real length. Programs that use it are linked with --wrap for clock_gettime and
 * pthread_cond_timedwait (CMakeLists.txt). Owns: the clock, for the whole program. Threads: any
 * thread may wait; one stops and moves the clock, while no other thread waits. Errors: none. */
#ifndef TESTS_FAKE_TIME_H
#define TESTS_FAKE_TIME_H
#include <stdint.h>

/* Stops the clock, until fake_time_release(). */
void fake_time_stop(void);
void fake_time_move(int64_t ms);
void fake_time_release(void);

/* Forgets the waits so far. Waits of threads that called fake_time_own() are not counted. */
void fake_time_watch(void);
void fake_time_own(void);
/* Returns the longest requested time of a wait with a deadline; -1: there was none. */
int64_t fake_time_longest_wait_ms(void);

#endif
