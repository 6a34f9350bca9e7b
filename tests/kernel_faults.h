/* tests/kernel_faults.h - pieces of work for kernel_faults_emulated_test, during which a call to
 * CUDA fails. A job is a small network with its plans and their results. Owns: a job owns all
 * three. Threads: one. Errors: a piece of work returns the backend's status; any other failure
 * fails the running test. */
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
    struct backend_data *data[2]; /* a data set for each card; NULL: not needed */
    float result[FAULT_MAX_RESULTS];
    size_t n_results, end[FAULT_MAX_NOTES]; /* end of each recorded array */
    int n_notes;
    double tolerance; /* relative to an array's largest value; for products by another algorithm */
    long long fault;  /* the call that fails; 0: none */
    int layer;        /* layer whose work failed; -1: none, or several */
    int limited;      /* device 1 has a limit of memory */
    int may_go_on;    /* the work may succeed without the failed call, which is logged */
    int n_silent[2];  /* number of failed clean-up calls, by name, that are not logged */
};

/* Prepares all work. fault_set: emulation_fault_set (tests/emulation/errors.h). */
void fault_begin(const struct backend *backend, void (*fault_set)(long long number));

void fault_build_all(struct reference *r);
void fault_build_words(struct reference *r); /* only layers that the first net lacks */

struct fault_job *fault_job_create(void (*build)(struct reference *r));
void fault_job_end(struct fault_job *j); /* destroys plans, data set and group */
void fault_job_destroy(struct fault_job *j);

/* Runs steps that the host drives, with two batch sizes, and reads outputs. */
enum status fault_work_outside(struct fault_job *j);
/* Runs a step in that precision with gradients that are rounded on the card. */
enum status fault_work_bf16(struct fault_job *j);
enum status fault_work_tf32(struct fault_job *j);
/* Runs steps over samples of a data set on the device. */
enum status fault_work_items(struct fault_job *j);
/* Runs inference on a device whose memory is limited, and reserved at once. */
enum status fault_work_reserved(struct fault_job *j);
/* Measures the rates of copies. */
enum status fault_work_copies(struct fault_job *j);
/* Runs steps that stay on the device. */
enum status fault_work_inside(struct fault_job *j);
/* Runs steps that the host drives, with updates on the device. */
enum status fault_work_updates(struct fault_job *j);
/* Creates a group, which tries whether NCCL works and otherwise continues without it; then runs a
 * forward pass. */
enum status fault_work_trial(struct fault_job *j);
/* Destroys a plan and a data set: if this fails, it does not affect another plan. */
enum status fault_work_ends(struct fault_job *j);
/* Runs three towers on two cards, by one thread; the first function uses NCCL, the second does not.
 * The calls that create the group do not fail. */
enum status fault_work_group(struct fault_job *j);
enum status fault_work_group_host(struct fault_job *j);
/* Runs steps that stay on two cards. The calls that create the group do not fail. */
enum status fault_work_cards(struct fault_job *j);
/* Runs the first half of the layers on one card, the second half on another. */
enum status fault_work_split(struct fault_job *j);
/* Runs steps, then an evaluation, with floats as samples and targets, and another loss. */
enum status fault_work_floats(struct fault_job *j);

#endif
