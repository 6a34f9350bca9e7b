/* tests/coordinator_rig.h - ps 0's coordinator (ps/coordinator/coordinator.h) by itself, on a clock
 * of the test's: two workers; one server, others may join. Servers and disk do at once what ps 0
 * wants, but for what a test has hang. Owns: the coordinator, which the test frees. One thread. */
#ifndef TESTS_COORDINATOR_RIG_H
#define TESTS_COORDINATOR_RIG_H
#include "ps/coordinator/coordinator_view.h"
#include "tests/check.h"

enum { TIMEOUT_MS = 1000, LOOK_EVERY_MS = 100, MOST_MS = 60000, SERVERS = 4, STEPS = 100 };
#define MS ((int64_t)1000000)

struct rig_server {
    uint64_t generation, ps0;        /* whose it is */
    uint64_t heard_ps0, heard_epoch; /* whom it obeyed last */
    uint64_t order;
    int phase;
    int restarts;     /* each is another process */
    int hangs;        /* its file is not written */
    int runs;         /* it does not stop */
    int has_called;   /* so that it has an answer */
    uint64_t damaged; /* no plan up to this generation begins: its checkpoint is damaged there */
    int failed;       /* it has heard that the job has */
    int ended;        /* it has heard that the job is over */
};

struct rig {
    struct coordinator_state *c;
    int64_t now, version;
    uint64_t call, generation;
    struct coordinator_worker_event worker[2];
    struct rig_server server[SERVERS];
    int n_servers;                     /* that call */
    int n_plans, n_manifests;          /* made so far; ordered */
    int no_memory;                     /* so many of the next plans cannot be made */
    int disk_hangs;                    /* manifests are not written */
    enum status manifest_st, owner_st; /* of manifests, and of looks at the folder's owner */
    enum status find_st;               /* of looks for a checkpoint */
    char no_last[640];                 /* the text of the last LINE_CHECKPOINT_NO_LAST */
    char given_up[640];                /* the text of the last checkpoint that was given up */
    uint32_t manifest;                 /* that is not; 0 */
    int lines[COORDINATOR_N_LINES];    /* how often each was said */
    int64_t said[COORDINATOR_N_LINES]; /* when, first */
    int has_folder, holds_last;        /* ps 0's new store begins so */
    int epoch_hangs;                   /* epochs are not recorded */
    uint32_t epoch_op;                 /* the order to record `epoch`, which is not done */
    uint64_t epoch;
    uint64_t claim;       /* that a worker makes */
    int64_t found;        /* by the next look for a checkpoint; 0: nothing is */
    uint64_t passed_over; /* the generation whose checkpoint the last look left out */
    int fenced, unsure;   /* unsure: of those, ends since the folder's owner is not known */
    int n_failed, n_finished, n_done;
    int64_t train_steps; /* of the last plan; 0: as the job began */
};

void rig_step(struct rig *r, struct coordinator_event e);
/* A server is where the plan in force wants it. */
void rig_server_says(struct rig *r, int i);
void rig_disk_ends(struct rig *r, uint32_t op, enum status st, int64_t its_step, uint64_t epoch);
void rig_tell_workers(struct rig *r);
void rig_start(struct rig *r, int has_folder, int epoch_hangs);
/* A job has its first plan. */
void rig_open(struct rig *r, int has_folder);
/* Likewise, with a folder; 0: not by steps, not by time. */
void rig_open_saving(struct rig *r, int64_t save_steps, int64_t save_ms);
/* All say how they stand, a little later. */
void rig_look(struct rig *r);
void rig_let_pass(struct rig *r, int64_t ms);
/* A change comes to its plan, and the plan is in force on all servers, as soon as without a disk
 * that hangs. */
void rig_changes(struct rig *r, int64_t most_ms);
void rig_server_joins(struct rig *r);
/* The operator's command. */
void rig_command(struct rig *r, enum coordinator_command_kind what);
/* Orders the end of this process, and expects that it is reached within this time. */
void rig_finish(struct rig *r, int64_t ms);
/* For a checkpoint. Training stands meanwhile, so that it is of where it is. */
void rig_ask(struct rig *r);

#endif
