/* tests/coordinator_rig.h - ps 0's coordinator (ps/coordinator/coordinator.h) alone, on the test's
 * clock: two workers; one server, and others may join. Servers and disk complete each order at
 * once, unless a test makes them hang. Owns: the coordinator, which the test frees. One thread. */
#ifndef TESTS_COORDINATOR_RIG_H
#define TESTS_COORDINATOR_RIG_H
#include "ps/coordinator/coordinator_view.h"
#include "tests/check.h"

enum { TIMEOUT_MS = 1000, LOOK_EVERY_MS = 100, MOST_MS = 60000, SERVERS = 4, STEPS = 100 };
#define MS ((int64_t)1000000)

struct rig_server {
    uint64_t generation, ps0;        /* ps0: ps 0 that planned it */
    uint64_t heard_ps0, heard_epoch; /* identity of the ps 0 whose orders it followed last */
    uint64_t order;
    int phase;
    int restarts;   /* number of restarts, each as another process */
    int hangs;      /* its file is not written */
    int runs;       /* it does not stop */
    int has_called; /* nonzero: it gets a reply */
    uint64_t
        damaged; /* no plan up to this generation begins, since its checkpoint is damaged there */
    int failed;  /* it has received the job's failure */
    int ended;   /* it has received the job's end */
};

struct rig {
    struct coordinator_state *c;
    int64_t now, version;
    uint64_t call, generation;
    struct coordinator_worker_event worker[2];
    struct rig_server server[SERVERS];
    int n_servers;            /* number of servers in that call */
    int n_plans, n_manifests; /* made so far; ordered */
    int no_memory;            /* number of the next plans that fail */
    int disk_hangs;           /* manifests are not written */
    enum status manifest_st,
        owner_st;                   /* results of manifests, and of checks of the folder's owner */
    enum status find_st;            /* result of searches for a checkpoint */
    char no_last[640];              /* text of the last LINE_CHECKPOINT_NO_LAST */
    char given_up[640];             /* text of the last checkpoint that was given up */
    uint32_t manifest;              /* order that is in progress; 0: none */
    int lines[COORDINATOR_N_LINES]; /* number of each line */
    int64_t line_ns[COORDINATOR_N_LINES]; /* time of the first one */
    int has_folder, holds_last;           /* start values of ps 0's new store */
    int epoch_hangs;                      /* epochs are not recorded */
    uint32_t epoch_op;                    /* order to record `epoch` in progress */
    uint64_t epoch;
    uint64_t claim;       /* claim of a worker */
    int64_t found;        /* step that the next search for a checkpoint finds; 0: none */
    uint64_t passed_over; /* generation whose checkpoint the last search left out */
    int fenced, unsure;   /* unsure: fenced, since the folder's owner is unknown */
    int n_failed, n_finished, n_done;
    int64_t train_steps; /* steps of the last plan; 0: as the job began */
};

void rig_step(struct rig *r, struct coordinator_event e);
/* Lets server i report the state that the plan in force requires. */
void rig_report_server(struct rig *r, int i);
void rig_disk_ends(struct rig *r, uint32_t op, enum status st, int64_t its_step, uint64_t epoch);
void rig_report_workers(struct rig *r);
void rig_start(struct rig *r, int has_folder, int epoch_hangs);
/* Opens a job with its first plan. */
void rig_open(struct rig *r, int has_folder);
/* Opens a job with a folder; 0: not by steps, not by time. */
void rig_open_saving(struct rig *r, int64_t save_steps, int64_t save_ms);
/* Lets all members report their state, a little later. */
void rig_look(struct rig *r);
void rig_let_pass(struct rig *r, int64_t ms);
/* Waits until a change has led to a plan that is in force on all servers, as soon as possible with
 * a disk that does not hang. */
void rig_changes(struct rig *r, int64_t most_ms);
void rig_server_joins(struct rig *r);
/* Runs the operator's command. */
void rig_command(struct rig *r, enum coordinator_command_kind what);
/* Orders the end of this process, and checks that it is reached within this time. */
void rig_finish(struct rig *r, int64_t ms);
/* Requests a checkpoint. Training makes no step during it, so that it is of the present step. */
void rig_ask(struct rig *r);

#endif
