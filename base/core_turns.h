/* base/core_turns.h - work that takes a core from threads which wait for each other takes it from
 * all of them alike: each piece of it runs on the next of the cores that this process may run on.
 * Left to the scheduler it stays on one core, and all wait for the thread that was there.
 * Threads: any may take turns; each moves itself alone. Errors: where a thread cannot be moved,
 * it stays where it is, and nobody moves from then on. */
#ifndef BASE_CORE_TURNS_H
#define BASE_CORE_TURNS_H
#include <sched.h>

struct core_turns {
    _Atomic int n;      /* cores; 0: nobody moves */
    _Atomic int n_busy; /* threads that may have a core each: nobody moves while one is left */
    _Atomic unsigned next;
    cpu_set_t all;
    short core[CPU_SETSIZE];
};

/* Over the cores that the calling thread may run on. */
void core_turns_init(struct core_turns *t);
/* One that works on this host, among those cores, has come (1) or gone (-1). */
void core_turns_busy(struct core_turns *t, int more);
/* The calling thread runs on the next core, until core_turns_end. Returns 0 if it does not. */
int core_turns_begin(struct core_turns *t);
void core_turns_end(const struct core_turns *t);

#endif
