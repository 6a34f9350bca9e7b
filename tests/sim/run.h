/* tests/sim/run.h - one run of a schedule, runs of many (batch), and how one that fails is shrunk.
 * Owns: nothing. Threads: one a process; a batch forks. Errors: outcomes. */
#ifndef TESTS_SIM_RUN_H
#define TESTS_SIM_RUN_H
#include "tests/sim/sim.h"

struct sim_outcome {
    char check[32]; /* that failed; empty: none has */
    char why[400];
    uint64_t digest;
    int64_t events, ns, checks;
    int64_t faults[SIM_N_FAULTS];
    int marks[SIM_N_MARKS];
};

void sim_run(const struct sim_schedule *s, int story, struct sim_outcome *out);
/* In a process of its own, so that a crash ("crash") or an endless loop ("hang") is one, too. */
void sim_run_apart(const struct sim_schedule *s, struct sim_outcome *out);
/* The shortest that fails the same check; *n_runs: how many it took. */
void sim_shrink(struct sim_schedule *s, int *n_runs);

struct sim_batch {
    uint64_t first, last; /* seeds, last included; stops at `seconds` (0: no limit) */
    int jobs, seconds, mutant, shrink, quiet;
    int clip, quit, regions; /* all are in sync, with clip_norm; workers end with errors; workers
                                are regions */
    char *folder;            /* where shrunk schedules go; NULL: nowhere */
    /* out */
    int64_t n_runs, n_events, n_failed;
    double took;
    uint64_t first_failed;
};
/* 0: no check failed. */
int sim_batch_run(struct sim_batch *b);
int64_t sim_real_ns(void);

#endif
