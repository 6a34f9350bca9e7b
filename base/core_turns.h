/* base/core_turns.h - distributes background work evenly over the cores on which threads compute
 * that wait for each other. Each unit of the work runs on the next core that this process may use.
 * The scheduler alone would keep the work on one core, and all threads would wait for the thread of
 * that core.
 * Threads: any; each thread moves only itself. Errors: none; if a thread cannot be moved, it stays
 * on its core, and no thread moves from then on. */
#ifndef BASE_CORE_TURNS_H
#define BASE_CORE_TURNS_H
#include <sched.h>

struct core_turns {
    _Atomic int n; /* number of cores; 0: threads do not move */
    /* number of threads that need a core each; while a core is free, no thread moves */
    _Atomic int n_busy;
    _Atomic unsigned next;
    cpu_set_t all;
    short core[CPU_SETSIZE];
};

/* Prepares turns over the cores that the calling thread may run on. */
void core_turns_init(struct core_turns *t);
/* Adds `change` to the number of processes of this host that compute on these cores: 1 when a
 * process starts, -1 when it ends. */
void core_turns_busy(struct core_turns *t, int change);
/* Moves the calling thread to the next core until the thread calls core_turns_end. Returns 0 if the
 * thread stays on its core. */
int core_turns_begin(struct core_turns *t);
void core_turns_end(const struct core_turns *t);

#endif
