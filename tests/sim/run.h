/* tests/sim/run.h - one run of a schedule, a batch of runs, and the shrinker of failed schedules.
 * Owns: nothing. Threads: one in each process; a batch forks. Errors: outcomes. */
#ifndef TESTS_SIM_RUN_H
#define TESTS_SIM_RUN_H
#include "tests/sim/sim.h"

struct sim_outcome {
    char check[32]; /* name of the check that failed; empty: none has */
    char why[400];
    uint64_t digest;
    int64_t events, ns, checks;
    int64_t faults[SIM_N_FAULTS];
    int marks[SIM_N_MARKS];
};

void sim_run(const struct sim_schedule *s, bool has_story, struct sim_outcome *out);
/* Runs the schedule in a process of its own, so that a crash or an endless loop is an outcome, too:
 * "crash", "hang". */
void sim_run_apart(const struct sim_schedule *s, struct sim_outcome *out);
/* Shortens the schedule as long as the same check fails; *n_runs: number of runs. */
void sim_shrink(struct sim_schedule *s, int *n_runs);

struct sim_batch {
    uint64_t first, last; /* first and last seed; the batch stops after `seconds` (0: no limit) */
    int jobs, seconds, mutant;
    bool shrinks, is_quiet;
    bool clip, quit, regions, tables; /* modes of sim */
    char *folder;                     /* folder to which shrunk schedules are written; NULL: none */
    /* out */
    int64_t n_runs, n_events, n_failed;
    double took;
    uint64_t first_failed;
};
/* Draws the schedule of a seed in the mode of the batch. */
void sim_batch_schedule(const struct sim_batch *b, uint64_t seed, struct sim_schedule *out);
/* Returns true if a check failed. */
bool sim_batch_run(struct sim_batch *b);
int64_t sim_real_ns(void);

#endif
