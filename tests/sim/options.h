/* tests/sim/options.h - the options of a schedule (schedule.h).
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef TESTS_SIM_OPTIONS_H
#define TESTS_SIM_OPTIONS_H

/* X(name, default, lowest, highest): the shrinker moves towards the default, the simplest value. */
#define SIM_OPTIONS(X)                                                                             \
    X(servers, 1, 1, 4)                                                                            \
    X(workers, 1, 1, 4)                                                                            \
    X(chunks, 1, 1, 4)                                                                             \
    X(elems, 1, 1, 3) /* elements of each chunk */                                                 \
    X(steps, 3, 1, 12)                                                                             \
    X(mode, 0, 0, 3)      /* sync, async, ssp, sync with backup workers */                         \
    X(optimizer, 0, 0, 6) /* value of enum optim_kind */                                           \
    X(batch, 1, 1, 4)                                                                              \
    X(staleness, 0, 0, 2)                                                                          \
    X(delay_us, 200, 50, 20000)  /* median delay of a message */                                   \
    X(tail, 0, 0, 3)             /* how often the delay is far longer, in % */                     \
    X(compute_ms, 20, 1, 500)    /* duration of a worker's step */                                 \
    X(calm_ms, 20000, 0, 120000) /* time after which no fault strikes */                           \
    X(coordinator, 0, 0, 1)      /* ps 0 makes plans; else one plan lasts for ever */              \
    X(folder, 0, 0, 1)           /* all servers share a folder of checkpoints */                   \
    X(save_steps, 0, 0, 4)                                                                         \
    X(worker_timeout_ms, 10000, 0, 30000)                                                          \
    X(min_workers, 0, 0, 4)                                                                        \
    X(mutant, 0, 0, 9)     /* a fault in production code (mutant.c) */                             \
    X(no_memory, 0, 0, 70) /* plans that ps 0 has no memory to make, in % */                       \
    X(clip, 0, 0, 1)       /* clips by the norm, in sync; only sim --clip sets it */               \
    X(lacks, 0, 0, 1)      /* workers lack the gradient of a chunk now and then */                 \
    X(threads, 0, 0, 1)    /* threads of the servers make the updates (updates.c) */               \
    /* Only sim --regions sets the following: workers are regions; `steps` are theirs. */          \
    X(regions, 0, 0, 1)                                                                            \
    X(region_steps, 2, 1, 4)                                                                       \
    X(overlap, 0, 0, 3) /* cut to less than region_steps and steps */                              \
    X(max_drift, 0, 0, 8)                                                                          \
    X(fragments, 1, 1, 4)      /* cut to the number of chunks */                                   \
    X(region_servers, 1, 1, 2) /* 2: the job has at most three regions */                          \
    X(region_workers, 1, 1, 2)                                                                     \
    X(region_save, 0, 0, 4) /* steps between a region's checkpoints; 0: none */                    \
    X(churn_ms, 0, 0, 2000) /* duration of a region's generations; 0: no end */                    \
    /* Only sim --tables sets the following. */                                                    \
    X(tables, 0, 0, 2)                                                                             \
    X(buckets, 0, 0, 2)       /* binary logarithm; the second table has half as many */            \
    X(dim, 1, 1, 2)           /* floats of a row */                                                \
    X(row_optimizer, 0, 0, 5) /* value of enum optim_rows_kind; the next one for the second */     \
    X(admit_after, 1, 1, 3)                                                                        \
    X(evict_after, 0, 0, 4)                                                                        \
    X(max_rows, 24, 10, 24) /* limit of a bucket; if it is below 24, when_full is evict */         \
    X(full_stops, 0, 0, 1)  /* when_full is stop, in sync: workers then end with errors */         \
    X(reads, 0, 0, 2)       /* keys that a push reads: none, the next step's, other ones */        \
    X(row_dtype, 0, 0, 3)   /* bit i: servers have the rows of table i in bf16 */

enum sim_option {
#define X(name, first, low, high) OPT_##name,
    SIM_OPTIONS(X)
#undef X
        SIM_N_OPTIONS
};

#endif
