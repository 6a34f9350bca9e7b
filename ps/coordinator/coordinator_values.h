/* ps/coordinator/coordinator_values.h - values in the events of a coordinator (coordinator.h) and
 * in its reports of itself.
 * Threads: none; these are values. Errors: none. */
#ifndef PS_COORDINATOR_COORDINATOR_VALUES_H
#define PS_COORDINATOR_COORDINATOR_VALUES_H
#include "net/wire/job_data.h"
#include <stdint.h>

/* Evaluation with the lowest validation loss. Its checkpoint is on the disk, if there is a
 * folder. */
struct best_evaluation {
    int known;
    uint64_t generation; /* generation of the checkpoint */
    int64_t step;
    double loss, accuracy; /* mean loss, always finite; share of correctly classified samples */
    struct job_validation data;
};

/* A member of ps 0's generation, or one that waits to join. */
struct coordinator_worker_event {
    int member; /* index, below the table's size */
    /* incarnation of the worker's process; 0: none has joined under this index */
    uint64_t incarnation;
    int waits;          /* the worker waits and has no place in the plan */
    int64_t missing_ms; /* time for which the worker has had no stream to ps 0; -1: it has one */
    int joined, leaving, failed, done, spoke, asked, came; /* see roster_entry (service.h) */
    const char *address;                                   /* address of the worker for log lines */
};

#endif
