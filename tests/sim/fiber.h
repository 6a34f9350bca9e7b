/* tests/sim/fiber.h - threads of production code, as the simulator runs them: one at a time, each
 * on a stack of its own, and another one's turn comes where it waits (pthread_cond_wait and the
 * like are --wrap'ped) or is made to. Who was woken goes on a little later, as threads do. Owns:
 * stacks, used again by the next run. Threads: one. Errors: sim_fail. */
#ifndef TESTS_SIM_FIBER_H
#define TESTS_SIM_FIBER_H
#include <stdint.h>

enum { TIMER_FIBER = 200 }; /* of a node that has fibers: goes to fiber_timer */

struct fiber;
/* Begins a little later, and ends with fn. */
struct fiber *fiber_start(int node, void *(*fn)(void *arg), void *arg);
int fiber_is_one(void);     /* what runs is one */
int64_t fiber_now_ns(void); /* the time; of one whose node dies: long after */
void fiber_timer(int64_t number);
/* Of the fiber that runs: until fiber_wake of the same, or that time. 1: it was woken. Where its
 * node dies it does not wait, and after some such waits all time is over. */
int fiber_wait(const void *on, int64_t until_ns);
void fiber_wake(const void *on);
/* Others may have their turn. */
void fiber_pause(void);
/* The node dies: its fibers, which have been told to end, go on to their ends at once. */
void fibers_end(int node);
/* If it is one: it goes no further, and who ran it goes on. */
void fiber_leave(void);
void fibers_reset(void);

#endif
