/* tests/evaluation_rig.h - ps 0's coordinator (ps/coordinator/coordinator.h) with evaluations of
 * the validation data: one server, two workers, the test's clock and disk. Owns: the coordinator,
 * which the test frees. One thread. */
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
    int file_hangs, stop_hangs; /* the server does not write; it does not report its stop */
    int file_fails;             /* it cannot write: its folder is full */
    int disk_busy;              /* it is still writing an earlier file */
    int n_plans, n_manifests;
    struct coordinator_manifest_view manifest; /* the last manifest */
    int64_t train_steps;                       /* steps of the last plan; 0: unchanged */
    enum status manifest_st, best_st;
    int best_hangs;   /* the file `best` is not written: */
    uint32_t best_op; /* this order */
    struct best_evaluation recorded;
    int64_t found;                        /* step of the newest checkpoint; 0: none */
    uint64_t incarnation;                 /* incarnations of the server after its first */
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
/* Trains to the step, evaluates there as often as necessary, and continues. */
void eval_at(struct rig *r, int64_t at, double loss);
/* Trains to the end, until the last step's checkpoint exists. */
void eval_train_to_the_end(struct rig *r);
/* Checks the best evaluation's step; -1: none. */
void eval_expect_best(const struct rig *r, int64_t at);
/* Lets worker 1's time run out; the Stop that follows does not end. */
void eval_lose_worker(struct rig *r);

#endif
