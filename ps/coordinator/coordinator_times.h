/* ps/coordinator/coordinator_times.h - the times by which ps 0 decides. Private to the coordinator.
 */
#ifndef PS_COORDINATOR_COORDINATOR_TIMES_H
#define PS_COORDINATOR_COORDINATOR_TIMES_H

/* In milliseconds. */
enum {
    SILENT_MS = 15000,     /* a server that was not heard of for so long is silent */
    FRESH_MS = 6000,       /* one that is to join has called within */
    BEAT_MS = 3000,        /* an answer without news */
    CLOSED_MS = 20,        /* a server ends its call to make another: within this; */
    AGAIN_MS = 500,        /* and calls again after an answer, at the latest */
    OVERDUE_MS = 3500,     /* BEAT_MS + AGAIN_MS: a server that runs has called within */
    FIRST_CALL_MS = 4000,  /* a server that lives on calls a new ps 0 within */
    LINE_MS = 5000,        /* how often it is said what is waited for */
    REJOIN_MS = 10000,     /* for a worker that lives to come into a new generation, at least; */
    SPEAK_MS = 2000,       /* once it has, to speak */
    RETRY_MS = 1000,       /* after a checkpoint that was given up, a plan that was not made */
    ANSWER_MS = 3000,      /* for a server to take an order */
    PACE_MS = 100,         /* over which the pace of training is taken */
    AHEAD_MS = 10,         /* for an order to come to all servers */
    RECORD_MS = 5000,      /* after an epoch, or a list of servers, that could not be recorded */
    MOST_EPOCHS = 1 << 16, /* by which it is raised at once, at most; what is above is no job's */
    STILL_MS = 2000,       /* training has not moved for so long: a checkpoint is of where it is */
    FINISH_MS = 3000,      /* at the end: for a generation to settle, for a server to call */
    LAST_MS = 30000,       /* at the end: for all to stop, and be taken */
    WRITE_MS = 300000,     /* for the slowest file after the first, and for the manifest */
    BEST_MS = 30000,       /* for the servers to take a checkpoint of the best evaluation */
    LOOK_MS = 1000,        /* the awake clock counts at most so much between two steps, */
    STEP_MS = 500,         /* which come at least so often */
    REFUSE_MS = 10000,     /* a worker that did not reach a server is not taken in for so long, */
    REFUSE_MAX_MS = 600000 /* doubled each time up to this */
};

#endif
