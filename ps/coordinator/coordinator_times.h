/* ps/coordinator/coordinator_times.h - durations that ps 0's decisions depend on. Private to the
 * coordinator. */
#ifndef PS_COORDINATOR_COORDINATOR_TIMES_H
#define PS_COORDINATOR_COORDINATOR_TIMES_H

/* In milliseconds. */
enum {
    SILENT_MS = 15000,     /* a server that has not called for this time is silent */
    FRESH_MS = 6000,       /* a server may join if it has called within this time */
    BEAT_MS = 3000,        /* ps 0 answers a call after this time even if it has no news */
    CLOSED_MS = 20,        /* a server that ended its call makes a new one within this time */
    AGAIN_MS = 500,        /* longest time between an answer and the server's next call */
    OVERDUE_MS = 3500,     /* BEAT_MS + AGAIN_MS: a server that runs has called within this time */
    FIRST_CALL_MS = 4000,  /* a server that still runs calls a new ps 0 within this time */
    LINE_MS = 5000,        /* interval of the log lines about a wait */
    REJOIN_MS = 10000,     /* a live worker has at least this time to enter a new generation */
    SPEAK_MS = 2000,       /* a worker that has joined has this time for its first message */
    RETRY_MS = 1000,       /* pause after a checkpoint that was given up, or a failed plan */
    ANSWER_MS = 3000,      /* time for a server to accept an order */
    PACE_MS = 100,         /* interval over which the pace of training is measured */
    AHEAD_MS = 10,         /* time for an order to reach all servers */
    RECORD_MS = 5000,      /* pause after a failed record of an epoch or a list of servers */
    MOST_EPOCHS = 1 << 16, /* largest rise of the epoch at once; no real job has a higher claim */
    STILL_MS = 2000,       /* after this time without a step, a checkpoint saves the present step */
    FINISH_MS = 3000, /* at the end: time for a generation to settle, and for a server to call */
    /* at the end: time for all servers to stop, and to hold the chunks of the last step */
    LAST_MS = 30000,
    /* time limit from the first file to the last one, and another one for the manifest */
    WRITE_MS = 300000,
    BEST_MS = 30000,       /* time for all servers to hold the best evaluation's chunks */
    LOOK_MS = 1000,        /* largest advance of the awake clock from one event to the next */
    STEP_MS = 500,         /* longest time without an event: then a TIMER follows */
    REFUSE_MS = 10000,     /* time for which a worker that did not reach a server may not join */
    REFUSE_MAX_MS = 600000 /* limit of REFUSE_MS, which doubles each time */
};

#endif
