/* tests/kernel_faults.h - pieces of work for kernel_faults_emulated_test, during which a call to
 * CUDA fails: each has a small network with its plans, and their results. Owns: a job its network,
 * its plans and its results. Threads: one. Errors: a piece of work returns the backend's status;
 * any other failure fails the running test. */
#ifndef TESTS_KERNEL_FAULTS_H
#define TESTS_KERNEL_FAULTS_H
#include "kernels/backend.h"
#include "tests/kernel_reference.h"

enum {
    FAULT_BATCH = 4,
    FAULT_SIDE = 9, /* images are FAULT_SIDE x FAULT_SIDE, of one channel */
    FAULT_PIXELS = FAULT_SIDE * FAULT_SIDE,
    FAULT_ITEMS = 8,
    FAULT_MAX_RESULTS = 1 << 16,
    FAULT_MAX_NOTES = 256,
    FAULT_MAX_PLANS = 3
};

/* A network, its plans, and their results. */
struct fault_job {
    struct reference *r;
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    uint8_t images[FAULT_ITEMS * FAULT_PIXELS], labels[FAULT_ITEMS];
    struct plan *plan[FAULT_MAX_PLANS];
    struct backend_group *group;
    struct backend_data *data;
    float result[FAULT_MAX_RESULTS];
    size_t n_results, end[FAULT_MAX_NOTES]; /* end of each recorded array */
    int n_notes;
    double tolerance; /* relative to an array's largest value, if a product is computed in another
                         way */
    long long fault;  /* the call that fails; 0: none */
    int layer;        /* layer whose work failed; -1: none, or several */
    int limited;      /* device 1 has a limit of memory */
    int may_go_on;    /* continues without the failed call, which is logged, */
    int n_silent[2];  /* except for so many cleaning calls of these names */
};

/* Prepares all work. fault_set: emulation_fault_set (tests/emulation/errors.h). */
void fault_begin(const struct backend *backend, void (*fault_set)(long long number));

void fault_build_all(struct reference *r);
void fault_build_words(struct reference *r); /* the layers that this net lacks, and no more */

struct fault_job *fault_job_create(void (*build)(struct reference *r));
void fault_job_end(struct fault_job *j); /* keeps the results */
void fault_job_destroy(struct fault_job *j);

/* Runs steps from outside, of two sizes; outputs are read, dropped, or not read. */
enum status fault_work_outside(struct fault_job *j);
/* Runs a step in that precision with gradients that are rounded on the card. */
enum status fault_work_bf16(struct fault_job *j);
enum status fault_work_tf32(struct fault_job *j);
/* Runs steps over samples of a data set on the device. */
enum status fault_work_items(struct fault_job *j);
/* Runs inference on a device whose memory is limited, and reserved at once. */
enum status fault_work_reserved(struct fault_job *j);
/* Runs steps that stay on the device. */
enum status fault_work_inside(struct fault_job *j);
/* Runs the trial of a group that finds out whether NCCL works, and continues without it; and a
 * tower of it. */
enum status fault_work_trial(struct fault_job *j);
/* Destroys a plan and a data set: their failures do not affect the next plan. */
enum status fault_work_ends(struct fault_job *j);
/* Runs three towers on two cards, by one thread, with NCCL and without. Calls count once the group
 * exists. */
enum status fault_work_group(struct fault_job *j);
enum status fault_work_group_host(struct fault_job *j);
/* Runs the first half of the layers on one card, the second half on another. */
enum status fault_work_split(struct fault_job *j);
/* Runs steps with samples and targets of floats, with another loss; and an evaluation beside it. */
enum status fault_work_floats(struct fault_job *j);

#endif
