/* ps/coordinator/coordinator_shell.h - carries out the decisions of ps 0's coordinator
 * (coordinator.h) and passes events to it. It decides nothing itself.
 *
 * Owns:    one thread, which alone steps the state; one for files, so that a disk that hangs
 *          delays nothing else; the plans.
 * Threads: any; finish and destroy from one. Only finish and call wait.
 * Errors:  ST_NOMEM. */
#ifndef PS_COORDINATOR_COORDINATOR_SHELL_H
#define PS_COORDINATOR_COORDINATOR_SHELL_H
#include "base/hosts.h"
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "net/wire/plan.h"
#include "ps/coordinator/coordinator_view.h"
#include <stdbool.h>

struct roster_entry;
struct service;

/* Callbacks of a region (ps/region/region.h); takes_job and parent_at are called under a lock. */
struct coordinator_region_hooks {
    /* Checks the job of a first join. restored: the parent's version as the restored checkpoint
     * records it; without a checkpoint its fields are unknown. */
    enum status (*takes_job)(void *ctx, const struct net_join *join,
                             const struct checkpoint_parent_version *restored);
    /* Completes a plan that is being made. restored: the parent's version as the restored
     * checkpoint records it. */
    void (*plans)(void *ctx, struct net_plan *plan,
                  const struct checkpoint_parent_version *restored);
    /* Returns the parent's version at a step of the region, for the manifest. */
    void (*parent_at)(void *ctx, uint64_t generation, int64_t step,
                      struct checkpoint_parent_version *out);
    void *ctx;
};

struct coordinator_shell_config {
    struct service *service;
    const char *folder;          /* folder of checkpoints, borrowed for ever; NULL: none */
    const char *folder_id;       /* id of the folder, borrowed for ever; empty: none */
    const struct hosts *hosts;   /* hosts of --ps_hosts, borrowed for ever */
    const struct hosts *servers; /* servers at the job's start; borrowed for create */
    int64_t save_steps, save_ms; /* intervals of checkpoints, in steps and in time; 0: none */
    int keep;                    /* number of checkpoints kept; 0: all */
    const char *restore_path;    /* path of --restore, borrowed for ever; NULL: not given */
    struct checkpoint_restore *restore; /* checkpoint to resume from, owned; NULL: none */
    char restored[CONTROL_TEXT_BYTES];  /* name of that checkpoint in the plan */
    /* at first the folder's history, later that of the last plan */
    struct checkpoint_history history;
    uint64_t incarnation;          /* random number of this process, not 0 */
    struct checkpoint_lease lease; /* lease of the folder; epoch 0: no lease exists */
    int is_claimed;          /* this process has claimed the folder; else the claim follows later */
    int64_t max_model_bytes; /* limit on the bytes of this server's parameters */
    int64_t worker_timeout_ms; /* longest absence of a worker */
    int min_workers, serves;   /* see coordinator_start */
    int64_t done_ms;           /* see coordinator_start */
    /* Answers a call that coordinator_shell_control received. */
    void (*reply)(void *ctx, uint64_t call, const struct net_control_reply *reply);
    /* Another ps 0 has claimed the folder or, if is_unsure, may have: the folder does not
     * answer. */
    void (*fenced)(void *ctx, int is_unsure);
    void (*done)(void *ctx);   /* the job has all its steps, and no worker is left to end it */
    void (*failed)(void *ctx); /* all workers of the job ended with an error; already logged */
    const struct coordinator_region_hooks *region; /* callbacks of the region; NULL: not a region */
    void *ctx;
};

struct coordinator_shell;
/* Returns the event for a worker from the service's record of it. The simulator's shell calls
 * it, too. The address belongs to the entry. */
struct coordinator_worker_event coordinator_shell_worker(const struct roster_entry *p, int waits);

enum status coordinator_shell_create(const struct coordinator_shell_config *cfg,
                                     struct coordinator_shell **out);
/* Starts the thread. Called once the server exists. */
enum status coordinator_shell_start(struct coordinator_shell *l);
void coordinator_shell_stop(struct coordinator_shell *l); /* NULL is allowed, here and below */
void coordinator_shell_destroy(struct coordinator_shell *l);
/* Reports that workers or the store have changed. */
void coordinator_shell_wake(struct coordinator_shell *l);
void coordinator_shell_request(struct coordinator_shell *l); /* requests a checkpoint */
/* Begins the job of a first worker while no plan exists. ST_OK: the first plan is being made.
 * ST_MISMATCH, with a sentence: the job does not fit the checkpoint to resume from. ST_RANGE:
 * the model is too large for the memory limit. */
enum status coordinator_plans_first_join(struct coordinator_shell *l, const struct net_join *join,
                                         char *why, size_t why_bytes);
/* Passes another server's report to the coordinator; cfg.reply answers it, now or later. */
void coordinator_shell_control(struct coordinator_shell *l, const struct net_control *request,
                               uint64_t call);
void coordinator_shell_control_closed(struct coordinator_shell *l, uint64_t call);
/* Carries out a control call of ps 0's own follower, like peer_client_control. There is one call at
 * a time; coordinator_shell_cancel ends it. */
enum status coordinator_shell_call(void *l, const struct net_control *request, int64_t deadline_ms,
                                   struct net_control_reply *reply, char why[CONTROL_TEXT_BYTES]);
void coordinator_shell_cancel(void *l);
/* Writes the last checkpoint, then reports to the servers that it was the last. Returns false if
 * the checkpoint could not be made, as a log line explains; true if it was made or not needed. */
bool coordinator_shell_finish(struct coordinator_shell *l);
/* Accepts an operator's command. Returns true if it will be done; writes a sentence in both
 * cases. */
bool coordinator_shell_command(struct coordinator_shell *l, enum coordinator_command_kind what,
                               int index, char why[CONTROL_TEXT_BYTES]);

/* Returns the evaluated step if an evaluation lacks this worker's part; else -1. */
int64_t coordinator_evaluation_lacks(struct coordinator_shell *l, int rank);
/* Records a worker's evaluation, and answers whether the worker may continue. */
void coordinator_evaluation_report(struct coordinator_shell *l,
                                   const struct net_evaluation *evaluation,
                                   struct net_evaluation_reply *out);

struct coordinator_shell_server {
    struct coordinator_server_view view;
    char address[CONTROL_TEXT_BYTES];
};
struct coordinator_plans_snapshot {
    struct net_plan *plan; /* plan in force; NULL: none yet */
    int n_servers;
    struct coordinator_shell_server *servers; /* ps 0 first */
    char change[CONTROL_TEXT_BYTES]; /* sentence that names what ps 0 waits for; empty: nothing */
    bool lacks_workers;              /* the change waits for workers, not for servers */
    int64_t last_step, order_step;   /* checkpoints: last complete one, one being made; -1: none */
    struct best_evaluation best;     /* best evaluation whose checkpoint is kept */
    int64_t next_ms;                 /* see coordinator_view_next_ms */
    /* incarnation of this process, which its folder's lease also contains */
    uint64_t incarnation;
    bool is_ending; /* this process is shutting down */
    /* numbers of checkpoints that coordinator_shell_request requested, and of those that were made
     * or given up */
    uint64_t wanted, given;
};
enum status coordinator_plans_snapshot(struct coordinator_shell *l,
                                       struct coordinator_plans_snapshot *out);
void coordinator_plans_snapshot_free(struct coordinator_plans_snapshot *s);

#endif
