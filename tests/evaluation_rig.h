/* tests/evaluation_rig.h - ps 0's coordinator (ps/coordinator/coordinator.h) with evaluations of
 * the validation data: one server, two workers, a clock and a disk of the test's. Owns: the
 * coordinator, which the test frees. One thread. */
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
    int file_hangs, stop_hangs; /* the server does not write, does not say that it has stopped */
    int file_fails;             /* it cannot write: its folder takes no files */
    int disk_busy;              /* it is still at an earlier file */
    int n_plans, n_manifests;
    struct coordinator_manifest_view manifest; /* the last */
    int64_t train_steps;                       /* of the last plan: 0: as it was */
    enum status manifest_st, best_st;
    int best_hangs;   /* the file `best` is not written: */
    uint32_t best_op; /* this order */
    struct best_evaluation recorded;
    int64_t found;                        /* step of the newest checkpoint; 0: there is none */
    uint64_t incarnation;                 /* of the server, beyond its first */
    int n_finished, n_fenced, is_patient; /* is_patient: no evaluation ends the job early */
    int lines[COORDINATOR_N_LINES];
    struct coordinator_worker_event worker[2];
};

void eval_step(struct rig *r, struct coordinator_event e);
/* The server is where the plan in force wants it, and does what it is told. */
void eval_server_calls(struct rig *r);
void eval_tell_workers(struct rig *r);
/* ps 0 alone: there is no job yet. */
void eval_open_ps0(struct rig *r, struct coordinator_start start, int64_t from);
/* A job has its first plan; from: the step where it goes on, 0: at its start. */
void eval_open_start(struct rig *r, struct coordinator_start start, int lockstep, int64_t from);
void eval_open_with(struct rig *r, int has_folder, int lockstep, const struct best_evaluation *best,
                    int64_t from);
/* With a folder, from the start. */
void eval_open(struct rig *r);
/* Of all samples, at the present step. */
struct net_evaluation eval_whole(const struct rig *r, double loss);
enum evaluation_go eval_ask(struct rig *r, const struct net_evaluation *v);
/* As often as it takes: training comes to the step, stands there, and goes on. */
void eval_at(struct rig *r, int64_t at, double loss);
/* Training is over, and its last step's checkpoint is there. */
void eval_comes_to_the_end(struct rig *r);
/* at -1: there is none. */
void eval_expect_best(const struct rig *r, int64_t at);
/* Worker 1's time runs out; the Stop that follows does not come to its end. */
void eval_loses_a_worker(struct rig *r);

#endif
