/* ps/coordinator/coordinator_shell.h - carries out what ps 0's coordinator decides (coordinator.h),
 * and brings it what happens. Decides nothing itself.
 *
 * Owns:    one thread, which alone steps the state; one for files, so that a disk that hangs holds
 *          up nothing but itself; the plans.
 * Threads: any; finish and destroy from one. Nothing but finish and call waits.
 * Errors:  ST_NOMEM. */
#ifndef PS_COORDINATOR_COORDINATOR_SHELL_H
#define PS_COORDINATOR_COORDINATOR_SHELL_H
#include "base/hosts.h"
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "net/wire/plan.h"
#include "ps/coordinator/coordinator_view.h"

struct roster_entry;
struct service;

/* What a region adds (ps/region/region.h); the first and the last under a lock. */
struct coordinator_region_hooks {
    /* The job of a first join is being taken; what its checkpoint says, not known without. */
    enum status (*takes_job)(void *ctx, const struct net_join *join,
                             const struct checkpoint_parent_version *restored);
    /* A plan is being made; of a checkpoint, what that says. */
    void (*plans)(void *ctx, struct net_plan *plan,
                  const struct checkpoint_parent_version *restored);
    /* Of the parent, at a step of the region's, in that generation, for its manifest. */
    void (*parent_at)(void *ctx, uint64_t generation, int64_t step,
                      struct checkpoint_parent_version *out);
    void *ctx;
};

struct coordinator_shell_config {
    struct service *service;
    const char *folder;          /* of checkpoints, borrowed for ever; NULL: there are none */
    const char *folder_id;       /* likewise; empty: it has none */
    const struct hosts *hosts;   /* of --ps_hosts, likewise */
    const struct hosts *servers; /* those in force as a job begins; borrowed for create */
    int64_t save_steps, save_ms; /* 0: not by steps, not by time */
    int keep;                    /* checkpoints; 0: all */
    const char *restore_path;    /* of --restore, likewise; NULL: not given */
    struct checkpoint_restore *restore; /* that the job resumes from, given; NULL: none */
    char restored[CONTROL_TEXT_BYTES];  /* its name in the plan */
    uint64_t incarnation;               /* of this process, not 0 */
    struct checkpoint_lease lease;      /* of the folder; epoch 0: no lease exists */
    int is_claimed;                     /* it is this process'; else that is recorded later */
    int64_t max_model_bytes;            /* of parameters held here */
    int64_t worker_timeout_ms;          /* that a worker may be away */
    int min_workers, serves;            /* as coordinator_start's */
    int64_t done_ms;                    /* likewise */
    /* Answers a call that coordinator_shell_control was given. */
    void (*reply)(void *ctx, uint64_t call, const struct net_control_reply *reply);
    /* Another ps 0 has taken the folder, or, is_unsure, may have: it does not answer. */
    void (*fenced)(void *ctx, int is_unsure);
    void (*done)(void *ctx);   /* nobody is left to end the job, which has all its steps */
    void (*failed)(void *ctx); /* all its workers ended with an error; logged */
    const struct coordinator_region_hooks *region; /* borrowed for ever; NULL: the group is none */
    void *ctx;
};

struct coordinator_shell;
/* What the service knows of a worker, as an event tells it; the simulator's shell calls it, too.
 * The address is the person's. */
struct coordinator_worker_event coordinator_shell_worker(const struct roster_entry *p, int waits);

enum status coordinator_shell_create(const struct coordinator_shell_config *cfg,
                                     struct coordinator_shell **out);
enum status coordinator_shell_start(struct coordinator_shell *l); /* once the server is there */
void coordinator_shell_stop(struct coordinator_shell *l);         /* NULL is fine, here and below */
void coordinator_shell_destroy(struct coordinator_shell *l);
void coordinator_shell_wake(struct coordinator_shell *l);    /* workers or the store have changed */
void coordinator_shell_request(struct coordinator_shell *l); /* a checkpoint now */
/* There is no plan, and this is a job's first worker: ST_OK, the first plan is being made; or, with
 * a sentence, ST_MISMATCH: it does not fit the checkpoint to resume from; ST_RANGE. */
enum status coordinator_plans_first_join(struct coordinator_shell *l, const struct net_join *join,
                                         char *why, size_t why_bytes);
/* Another server's word; answered by cfg.reply, now or later. */
void coordinator_shell_control(struct coordinator_shell *l, const struct net_control *request,
                               uint64_t call);
void coordinator_shell_control_closed(struct coordinator_shell *l, uint64_t call);
/* As peer_client_control, of ps 0's own follower: one at a time, ended by cancel. */
enum status coordinator_shell_call(void *l, const struct net_control *request, int64_t deadline_ms,
                                   struct net_control_reply *reply, char why[CONTROL_TEXT_BYTES]);
void coordinator_shell_cancel(void *l);
/* The last checkpoint, then tells the servers that it was the last. 0: it could not be made, as a
 * line says; 1: it is there, or none was to be made. */
int coordinator_shell_finish(struct coordinator_shell *l);
/* What operators want done: 1: it will be, 0: it cannot be; a sentence in both cases. */
int coordinator_shell_command(struct coordinator_shell *l, enum coordinator_command_kind what,
                              int index, char why[CONTROL_TEXT_BYTES]);

/* Returns the evaluated step where an evaluation lacks this worker's part; else -1. */
int64_t coordinator_evaluation_lacks(struct coordinator_shell *l, int rank);
/* A worker's evaluation, and whether it may go on. */
void coordinator_evaluation_report(struct coordinator_shell *l,
                                   const struct net_evaluation *evaluation,
                                   struct net_evaluation_reply *out);

struct coordinator_shell_server {
    struct coordinator_server_view view;
    char address[CONTROL_TEXT_BYTES];
};
struct coordinator_plans_snapshot {
    struct net_plan *plan; /* in force; NULL: none yet */
    int n_servers;
    struct coordinator_shell_server *servers; /* ps 0 first */
    char change[CONTROL_TEXT_BYTES];          /* what is waited for, one sentence; empty: nothing */
    bool lacks_workers;                       /* the change waits for workers, not for servers */
    int64_t last_step, order_step; /* checkpoints: the last that is whole, being made; -1: none */
    struct best_evaluation best;   /* whose checkpoint is kept */
    int64_t next_ms;               /* as coordinator_view_next_ms */
    uint64_t incarnation;          /* of this process, as in its folder's lease */
    bool is_ending;                /* this process is shutting down */
    uint64_t wanted, given; /* by coordinator_shell_request, so far; of these, made or given up */
};
enum status coordinator_plans_snapshot(struct coordinator_shell *l,
                                       struct coordinator_plans_snapshot *out);
void coordinator_plans_snapshot_free(struct coordinator_plans_snapshot *s);

#endif
