/* tests/sim/worker.h - a worker's process: production's net/exchange, and a training loop that
 * waits instead of computing, in a fiber.
 * Owns:    nothing beyond the run.
 * Threads: fibers of one thread.
 * Errors:  a worker ends with an exit status. */
#ifndef TESTS_SIM_WORKER_H
#define TESTS_SIM_WORKER_H
#include "tests/sim/sim.h"

enum { TIMER_WORKER_EXIT = 100 };

extern const struct sim_ops sim_worker_ops;
/* Makes the worker end with an error after its present computation. */
void worker_quit(int node);
/* Returns true after SIGTERM to the worker. */
bool worker_leaves(int node);
/* Returns true if the worker trains in this generation of this ps 0. */
bool worker_trains_in(int node, uint64_t generation, uint64_t ps0);

#endif
