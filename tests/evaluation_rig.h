/* tests/evaluation_rig.h - runs the coordinator of ps 0 (ps/coordinator/coordinator.h) with
 * evaluations of the validation data. There are one server and two workers; the test simulates
 * clock and disk. Owns: the coordinator, which the test frees. One thread. */
#ifndef TESTS_EVALUATION_RIG_H
#define TESTS_EVALUATION_RIG_H
#include "ps/coordinator/coordinator_view.h"
#include "tests/check.h"

enum { STEPS = 100, EVERY = 5, PATIENCE = 2, SAMPLES = 100 };
#define MS ((int64_t)1000000)

struct rig {
    struct coordinator_state *c;
    int64_t now, version;
    uint64_t call, generation, order;
    int phase;
    int file_hangs, stop_hangs; /* the server does not write its file; does not report its stop */
    int file_fails;             /* the server cannot write its file: its folder is full */
    int disk_busy;              /* the server is still writing an earlier file */
    int n_plans, n_manifests;
    struct coordinator_manifest_view manifest; /* the last manifest */
    int64_t train_steps;                       /* steps of the last plan; 0: unchanged */
    enum status manifest_st, best_st;
    int best_hangs;   /* the order to write `best` does not end */
    uint32_t best_op; /* number of that order */
    struct best_evaluation recorded;
    int64_t found;                        /* step of the newest checkpoint; 0: none */
    uint64_t incarnation;                 /* number of restarts of the server */
    int n_finished, n_fenced, is_patient; /* is_patient: no evaluation ends the job early */
    int lines[COORDINATOR_N_LINES];
    struct coordinator_worker_event worker[2];
};

void eval_step(struct rig *r, struct coordinator_event e);
/* Lets the server report the state that the plan in force requires, and carry out its orders. */
void eval_server_calls(struct rig *r);
void eval_report_workers(struct rig *r);
/* Opens ps 0 alone, without a job. */
void eval_open_ps0(struct rig *r, struct coordinator_start start, int64_t from);
/* Opens a job with its first plan; from: the step where it resumes, 0: at its start. */
void eval_open_start(struct rig *r, struct coordinator_start start, int lockstep, int64_t from);
void eval_open_with(struct rig *r, int has_folder, int lockstep, const struct best_evaluation *best,
                    int64_t from);
/* Opens a job with a folder, from its start. */
void eval_open(struct rig *r);
/* Returns an evaluation of all samples, at the present step. */
struct net_evaluation eval_whole(const struct rig *r, double loss);
enum evaluation_go eval_ask(struct rig *r, const struct net_evaluation *v);
/* Trains to step `at`, and reports its evaluation until the coordinator lets training continue. */
void eval_at(struct rig *r, int64_t at, double loss);
/* Trains to the end, until the last step's checkpoint exists. */
void eval_train_to_the_end(struct rig *r);
/* Checks the best evaluation's step; -1: none. */
void eval_expect_best(const struct rig *r, int64_t at);
/* Lets the timeout of worker 1 expire. The server does not report the stop that follows. */
void eval_lose_worker(struct rig *r);

#endif
