/* tests/sim/fiber.h - threads of production code, as the simulator runs them: one at a time, each
 * on its own stack. A fiber runs until it waits (pthread_cond_wait and similar calls are
 * --wrap'ped) or calls fiber_pause(). A fiber that was woken continues a little later, as threads
 * do. The code that handles events outside all fibers is called the world.
 * Owns:    stacks, which the next run uses again.
 * Threads: one.
 * Errors:  sim_fail. */
#ifndef TESTS_SIM_FIBER_H
#define TESTS_SIM_FIBER_H
#include <stdbool.h>
#include <stdint.h>

enum { TIMER_FIBER = 200 }; /* a timer of a node for fiber_timer() */

struct fiber;
/* Starts a fiber of the node, which runs fn a little later and ends when fn returns. */
struct fiber *fiber_start(int node, void *(*fn)(void *arg), void *arg);
bool fiber_is_running(void); /* false: the caller is the world, not a fiber */
/* Returns the time. In a fiber of a dying node, after some waits, returns a time far ahead, so that
 * every deadline has passed. */
int64_t fiber_now_ns(void);
/* Runs the fiber whose wait has this number. */
void fiber_timer(int64_t number);
/* Waits in the running fiber until fiber_wake() of the same object, or until that time. Returns
 * true if it was woken. While its node dies, a fiber only lets other fibers run, and after some
 * such waits all deadlines are over. */
bool fiber_wait(const void *on, int64_t until_ns);
/* Wakes all fibers that wait for the object. */
void fiber_wake(const void *on);
/* Sometimes lets other fibers run. */
void fiber_pause(void);
/* Runs the fibers of a dying node to their ends at once. They have been ordered to end. */
void fibers_end(int node);
/* Ends the running fiber, if there is one, at its present place: the world continues. */
void fiber_leave(void);
void fibers_reset(void);

#endif
