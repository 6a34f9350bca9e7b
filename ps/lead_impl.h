/* ps/lead_impl.h - what the parts of the lead share: lead.c (its thread, calls and answers),
 * lead_servers.h (who calls), lead_census.c (which workers are there), lead_change.c (from one
 * generation to the next), lead_checkpoint.c. Private to them.
 * Threads: fields as their groups say; functions from the lead's thread, but where they say
 *          otherwise. */
#ifndef PS_LEAD_IMPL_H
#define PS_LEAD_IMPL_H
#include "ps/lead_servers.h"
#include "ps/run.h"
#include "ps/taker.h"
#include <pthread.h>

#define MAX_CLAIM ((uint64_t)1 << 48) /* no job gets to that generation by itself */

enum {
    HOLD_MS = 3000,   /* for all servers to take an order or a stop up */
    ALIVE_MS = 15000, /* a server that was not heard of for so long is lost */
    FRESH_MS = 6000,  /* one that is to join has called within */
    BEAT_MS = 3000,   /* an answer without news */
    RETRY_MS = 1000,  /* after a checkpoint that was given up */
    TRY_MS = 8000,    /* at the end: for training to get to the step */
    LAST_MS = 30000,  /* at the end, in all, before a checkpoint's chunks are taken */
    WRITE_MS = 300000,
    GOODBYE_MS = 2000,
    CLOSED_MS = 20,    /* a server ends its call itself to make another: within this; */
    AGAIN_MS = 500,    /* and it calls again after an answer, at the latest */
    LINE_MS = 5000,    /* how often a change says what it waits for */
    REJOIN_MS = 10000, /* for a worker that lives to come into a new generation, at least */
};

struct removed {
    int member;
    uint64_t incarnation; /* 0: that it has now, not looked up yet */
};

enum phase {
    PHASE_EMPTY,    /* no job: the first worker is waited for */
    PHASE_RUNNING,  /* all servers are in the plan's generation */
    PHASE_STOPPING, /* a Stop is out; then until there is a plan for what comes next */
    PHASE_BEGINNING /* the plan is out, servers take it up */
};

/* A worker as a change sees it. */
enum lot { LOT_STAYS, LOT_DONE, LOT_LATE, LOT_LEAVES, LOT_REMOVED, LOT_JOINS };
struct who {
    int member;
    enum lot lot;
    char address[96];
};
struct census {
    int n; /* by index */
    struct who *who;
    int n_next; /* that will be there: STAYS and JOINS */
    int n_by[LOT_JOINS + 1];
    int n_gone;     /* LEAVES or REMOVED, and not here to take their part in an announced step */
    int64_t due_ns; /* when the next is late; INT64_MAX */
};

struct lead {
    struct lead_config cfg;
    uint64_t incarnation; /* of this process */
    pthread_t thread;
    int has_thread;
    struct taker *taker;
    int64_t start_ns;

    /* The thread's own. */
    enum phase phase;
    struct net_plan *base; /* settled last; NULL: none yet */
    int holding;           /* the store's answers are held for a Stop, until: */
    int64_t hold_ns;
    int64_t begun_ns; /* when the plan in force was laid down */
    int64_t line_ns;  /* when what is waited for is named next */
    int64_t stop_ns;  /* when the Stop under way was given */
    int64_t moved_ns; /* when a version was last made on the way to it, */
    int64_t moved;    /* the lowest of all servers then */
    int64_t due_ns;   /* something falls due then; INT64_MAX */
    /* By index: members that were late when no Stop was out yet. */
    unsigned char late[JOB_MAX_WORKERS];

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    struct remote *remotes;
    int n_remotes, n_servers; /* n_servers: of the plan, or of cfg.servers */
    struct net_plan *plan;    /* in force; written by the thread */
    struct net_plan *first;   /* laid down by a first Join, for the thread to take; NULL */
    int lives_on;             /* the job is older than this process: members were here before */
    uint64_t settled;
    uint64_t stop;     /* number of the last Stop; 0: none yet */
    int64_t stop_step; /* -1: now */
    char change[CONTROL_TEXT_BYTES];
    struct removed *removed; /* workers, by command; processes for ever, so that they do not come
                                back */
    int n_removed;
    uint64_t number, order;          /* order: of the last */
    uint64_t goodbye;                /* number from which on replies say that this ps 0 ends */
    int64_t step;                    /* of the order; -1: there is none */
    int64_t last_step;               /* of the last checkpoint; -1 */
    int64_t tried;                   /* the last attempt's step; -1: it had none, */
    uint64_t unsaved;                /* the generation whose last step could not be saved */
    int64_t timer_ns, not_before_ns; /* save_ms; save_steps */
    uint64_t requested, taken_up, given;
    int finishing, finished, closing, over, stopping;
    int64_t begin_ns; /* finishing: until when a generation that begins is waited for */
    int news;         /* something happened since the thread looked last */
};

/* lead.c */
/* Under the lock: something has happened. */
void lead_poke(struct lead *l);
/* Answers the calls that have something to hear, or have waited long enough; from any thread. */
void lead_answer(struct lead *l);
/* Waits for news, at most until the deadline or the next heartbeat. */
void lead_wait(struct lead *l, int64_t deadline_ns);

/* lead_census.c */
/* Who is there, against the plan in force. ST_NOMEM. */
enum status lead_census_take(struct lead *l, struct census *out);
void lead_census_free(struct census *c);

/* lead_change.c: from one generation to the next. */
/* 1: a change is due that a checkpoint under way has to give way to. n_taken: servers that have
 * taken its chunks. */
int lead_change_due(struct lead *l, int n_taken);
/* One step on, or a wait for what that needs. 0: there is nothing to change. */
int lead_change_go_on(struct lead *l);
/* Nobody waits for an answer any more: the generation ends, and none follows. */
void lead_change_end(struct lead *l);

/* lead_checkpoint.c */
/* One attempt, if one is due, or some waiting. */
void lead_checkpoint_next(struct lead *l, struct run *run);
/* The last, when the server ends. The workers may be there or not. */
void lead_checkpoint_last(struct lead *l, struct run *run);
/* There is nothing to save, or nothing more: whoever asked is not kept waiting. */
void lead_checkpoint_none(struct lead *l);

#endif
