/* ps/lead.h - ps 0 coordinates: which generation is in force, who takes part in it, and when
 * checkpoints are made.
 *
 * Changes. The first worker's Join lays down the first plan (net/plan.h). A worker or a server that
 * wants in or out is taken in or let go by a planned change: a Stop at an announced step, for which
 * ps 0 holds back its answers (ps_store_hold) while it goes round, then a plan that goes on there
 * from memory. Whoever is lost has everything stop at once: a worker that has not come back for
 * worker_timeout is left out, from memory; a server that has lost its chunks sends all back to the
 * newest checkpoint. Until all servers are in the new generation, those of the one before keep
 * their stores, so that a change that fails (another loss) is made again from there.
 *
 * Checkpoints. An order names a step that no chunk of any server has reached. The servers say that
 * they have it, later that their file is written; then ps 0 writes the manifest. One order is out
 * at a time; with --save_steps it goes out long before its step. For one that is wanted now, ps 0
 * holds back its answers likewise: no chunk can then get to the step before all servers know, since
 * workers need all chunks of a step for the next. Where chunks go each at its own pace (async, ssp,
 * backup workers) a chunk that is past the step is taken as it is. A server that fails or is not
 * heard of has the checkpoint given up, with a line; training never waits for one longer than a
 * round trip to the servers (at most HOLD_MS). A change takes the place of an order that waits.
 *
 * Owns:    one thread, that of its taker; what it knows of the other servers.
 * Threads: any; finish and destroy from one. Commands and snapshot do not wait.
 * Errors:  ST_NOMEM. */
#ifndef PS_LEAD_H
#define PS_LEAD_H
#include "base/hosts.h"
#include "net/control.h"
#include "net/plan.h"
#include "ps/restore.h"
#include "ps/saver.h"

struct lead_config {
    struct ps_service *service;
    struct saver *saver;               /* this server's own part; NULL: no checkpoints */
    const char *folder;                /* of checkpoints, borrowed for ever; NULL: there are none */
    const struct hosts *hosts;         /* of --ps_hosts, likewise */
    struct hosts servers;              /* those in force as a job begins; given */
    int64_t save_steps, save_ms;       /* 0: not by steps, not by time */
    int keep;                          /* checkpoints; 0: all */
    const char *restore_path;          /* of --restore, likewise; NULL: not given */
    struct ps_restore *restore;        /* that the job goes on from, given; NULL: none */
    char restored[CONTROL_TEXT_BYTES]; /* its name in the plan */
    uint64_t generation;               /* of the first job */
    int64_t max_model_bytes;           /* of parameters held here */
    int64_t worker_timeout_ms;         /* that a worker may be away */
    int min_workers; /* fewer: training waits; 0: 1, and those that never came, too */
    /* Answers a call that lead_control was given. */
    void (*reply)(void *ctx, uint64_t call, const struct net_control_reply *reply);
    /* > 0: this process was started anew, its life before was killed. Where the job had all its
     * steps then, it is over if no worker comes within. */
    int64_t over_ms;
    void (*over)(void *ctx); /* nobody is left to end the job, which has all its steps */
    void *ctx;
};

struct lead;
enum status lead_create(struct lead_config *cfg, struct lead **out);
enum status lead_start(struct lead *l); /* once the saver and the server are there */
/* Nothing more is ordered; the saver is not used any more. NULL is fine, here and below. */
void lead_stop(struct lead *l);
void lead_destroy(struct lead *l);
void lead_wake(struct lead *l);    /* a run has begun, people or the saver's state have changed */
void lead_request(struct lead *l); /* a checkpoint now */
/* There is no plan, and this is a job's first worker: ST_OK, the first plan is being made; or, with
 * a sentence, ST_MISMATCH: it does not fit the checkpoint that is to be gone on from; ST_RANGE. */
enum status lead_first_join(struct lead *l, const struct net_join *join, char *why,
                            size_t why_bytes);
/* Another server's word; answered by cfg.reply, now or later. */
void lead_control(struct lead *l, const struct net_control *request, uint64_t call);
void lead_control_closed(struct lead *l, uint64_t call); /* it hears no answer any more */
/* The last checkpoint, then tells the servers that it was the last. */
void lead_finish(struct lead *l);

/* What people want done: 1: it will be, 0: it cannot be; a sentence in both cases. */
int lead_remove_worker(struct lead *l, int index, char why[CONTROL_TEXT_BYTES]);
int lead_drain_server(struct lead *l, int index, char why[CONTROL_TEXT_BYTES]);

enum lead_server_state { LEAD_HERE, LEAD_SILENT, LEAD_JOINING, LEAD_LEAVING };
struct lead_server {
    int number; /* in the plan; -1: it has no place in it */
    enum lead_server_state state;
    char address[CONTROL_TEXT_BYTES];
    int64_t heard_ms, up_ms; /* since it was heard of last, first; -1: never; ps 0: 0 and its own */
};
struct lead_snapshot {
    struct net_plan *plan; /* in force; NULL: none yet */
    int n_servers;
    struct lead_server *servers;     /* ps 0 first */
    char change[CONTROL_TEXT_BYTES]; /* under way, one sentence; empty: none is */
    int64_t last_step, order_step;   /* checkpoints: the last that is whole, being made; -1: none */
    uint64_t wanted, given;          /* by lead_request, so far; of these, made or given up */
};
enum status lead_snapshot(struct lead *l, struct lead_snapshot *out);
void lead_snapshot_free(struct lead_snapshot *s);

#endif
