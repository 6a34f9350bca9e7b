/* ps/coordinator/coordinator_values.h - what events tell a coordinator (coordinator.h) and what it
 * tells of itself, as values. Threads: values. Errors: none. */
#ifndef PS_COORDINATOR_COORDINATOR_VALUES_H
#define PS_COORDINATOR_COORDINATOR_VALUES_H
#include "net/wire/job_data.h"
#include <stdint.h>

/* The evaluation with the lowest validation loss, whose checkpoint is on the disk (or, without a
 * folder, was never to be). */
struct best_evaluation {
    int known;
    uint64_t generation; /* of the checkpoint */
    int64_t step;
    double loss, accuracy; /* loss: finite */
    struct job_validation data;
};

/* A member of ps 0's generation, or one that waits to join. */
struct coordinator_worker_event {
    int member;           /* index, below the table's size */
    uint64_t incarnation; /* 0: nobody has come yet */
    int waits;            /* it has no place in the plan */
    int64_t missing_ms;   /* it has had no stream at ps 0 for so long; -1: it has one */
    int joined, leaving, failed, done, spoke, asked, came; /* as in roster_entry (service.h) */
    const char *address;                                   /* to name it by */
};

#endif
