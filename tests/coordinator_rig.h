/* tests/coordinator_rig.h - runs the coordinator of ps 0 (ps/coordinator/coordinator.h) alone, on
 * the test's clock, with two workers and one server; more servers may join. Servers and disk
 * complete each order at once, unless a test makes them hang. Owns: the coordinator, which the test
 * frees. One thread. */
#ifndef TESTS_COORDINATOR_RIG_H
#define TESTS_COORDINATOR_RIG_H
#include "ps/coordinator/coordinator_view.h"
#include "tests/check.h"

enum { TIMEOUT_MS = 1000, LOOK_EVERY_MS = 100, MOST_MS = 60000, SERVERS = 4, STEPS = 100 };
#define MS ((int64_t)1000000)

struct rig_server {
    uint64_t generation, ps0;        /* plan of the server; the ps 0 that made it */
    uint64_t heard_ps0, heard_epoch; /* the ps 0 whose orders the server obeyed last */
    uint64_t order;
    int phase;
    int restarts;   /* restarts so far, each as another process */
    int hangs;      /* the server does not write its file */
    int runs;       /* the server does not stop */
    int has_called; /* the server has received a reply */
    uint64_t
        damaged; /* the server cannot read its checkpoint: refuses plans up to this generation */
    int failed;  /* the server has received the job's failure */
    int ended;   /* the server has received the job's end */
};

struct rig {
    struct coordinator_state *c;
    int64_t now, version;
    uint64_t call, generation;
    struct coordinator_worker_event worker[2];
    struct rig_server server[SERVERS];
    int n_servers;            /* servers that send reports */
    int n_plans, n_manifests; /* plans made; manifests ordered */
    int no_memory;            /* number of plans still to fail */
    int disk_hangs;           /* manifests are not written */
    enum status manifest_st,
        owner_st;                   /* results of manifests, and of checks of the folder's owner */
    enum status find_st;            /* result of searches for a checkpoint */
    char no_last[640];              /* text of the last LINE_CHECKPOINT_NO_LAST */
    char given_up[640];             /* text of the last checkpoint that was given up */
    uint32_t manifest;              /* manifest order in progress; 0: none */
    int lines[COORDINATOR_N_LINES]; /* how often each line was logged */
    int64_t line_ns[COORDINATOR_N_LINES]; /* time at which each line was first logged */
    int has_folder, holds_last;           /* holds_last: ps 0's store holds back the last version */
    int epoch_hangs;                      /* epochs are not recorded */
    uint32_t epoch_op;                    /* order in progress to record `epoch` */
    uint64_t epoch;
    uint64_t claim;       /* highest claim that workers report */
    int64_t found;        /* step that the next search for a checkpoint finds; 0: none */
    uint64_t passed_over; /* generation whose checkpoint the last search left out */
    int fenced, unsure;   /* unsure: fenced, since the folder's owner is unknown */
    int n_failed, n_finished, n_done;
    int64_t train_steps; /* train_steps of the last plan; 0: as when the job began */
};

void rig_step(struct rig *r, struct coordinator_event e);
/* Lets server i report the state that the plan in force requires. */
void rig_report_server(struct rig *r, int i);
void rig_disk_ends(struct rig *r, uint32_t op, enum status st, int64_t its_step, uint64_t epoch);
void rig_report_workers(struct rig *r);
void rig_start(struct rig *r, int has_folder, int epoch_hangs);
/* Opens a job with its first plan. */
void rig_open(struct rig *r, int has_folder);
/* Opens a job with a folder, and checkpoints every save_steps steps and every save_ms; 0: none. */
void rig_open_saving(struct rig *r, int64_t save_steps, int64_t save_ms);
/* Opens a job of mode async with a folder, and checkpoints every save_steps steps. */
void rig_open_saving_async(struct rig *r, int64_t save_steps);
/* Moves the clock by LOOK_EVERY_MS, then lets all members report their state. */
void rig_look(struct rig *r);
void rig_let_pass(struct rig *r, int64_t ms);
/* Lets time pass until one new plan is in force on all servers, and checks that this was within
 * most_ms. */
void rig_changes(struct rig *r, int64_t most_ms);
void rig_server_joins(struct rig *r);
/* Runs the operator's command. */
void rig_command(struct rig *r, enum coordinator_command_kind what);
/* Orders ps 0 to finish, and checks that it has finished after `ms`. */
void rig_finish(struct rig *r, int64_t ms);
/* Lets 3 s pass without a training step, so that the next checkpoint is of the present step, and
 * requests a checkpoint. */
void rig_ask(struct rig *r);

#endif
