/* ps/lead_impl.h - what lead.c (calls and answers) and lead_checkpoint.c share; private to them.
 * Threads: fields as their groups say; functions from the lead's thread, but where they say
 *          otherwise. */
#ifndef PS_LEAD_IMPL_H
#define PS_LEAD_IMPL_H
#include "ps/lead.h"
#include "ps/run.h"
#include <pthread.h>

enum {
    HOLD_MS = 3000,   /* for all servers to take an order up */
    ALIVE_MS = 15000, /* a server that was not heard of for so long is lost */
    BEAT_MS = 3000,   /* an answer without news */
    RETRY_MS = 1000,  /* after a checkpoint that was given up */
    TRY_MS = 8000,    /* at the end: for training to get to the step */
    LAST_MS = 30000,  /* at the end, in all, before a checkpoint's chunks are taken */
    WRITE_MS = 300000,
    GOODBYE_MS = 2000,
};

struct remote {
    uint64_t incarnation; /* 0: it has not called yet */
    uint64_t generation;  /* of its job; 0: it has none */
    uint64_t call, seen;  /* its call that waits; 0: none */
    int64_t heard_ns, call_ns;
    uint64_t told;                    /* the number of the last reply */
    uint64_t wanted, taken_up, given; /* checkpoints that it asked for */
    struct saver_state state;
};

struct lead {
    struct lead_config cfg;
    uint64_t incarnation; /* of this process */
    pthread_t thread;
    int has_thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    struct remote *remotes; /* n_servers; [0] is not used */
    uint64_t number, order;
    int64_t step;                    /* of the order; -1: there is none */
    int64_t last_step;               /* of the last checkpoint; -1 */
    int64_t line_ns;                 /* the thread's own: when a missing server is named next, */
    int64_t tried;                   /* the last attempt's step; -1: it had none, */
    uint64_t unsaved;                /* the generation whose last step could not be saved */
    int64_t timer_ns, not_before_ns; /* save_ms; save_steps */
    uint64_t requested, taken_up, given;
    int finishing, finished, closing, stopping;
    int news; /* something happened since the thread looked last */
};

/* lead.c */
/* Answers the calls that have something to hear, or have waited long enough; from any thread. */
void lead_answer(struct lead *l);
/* Waits for news, at most until the deadline or the next heartbeat. */
void lead_wait(struct lead *l, int64_t deadline_ns);

/* lead_checkpoint.c */
/* One attempt, if one is due, or some waiting. */
void lead_checkpoint_next(struct lead *l, struct run *run);
/* The last, when the server ends. The workers may be there or not. */
void lead_checkpoint_last(struct lead *l, struct run *run);
/* There is nothing to save, or nothing more: whoever asked is not kept waiting. */
void lead_checkpoint_none(struct lead *l);

#endif
