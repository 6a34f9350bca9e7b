/* tests/kernel_faults.h - what kernel_faults_emulated_test does while a call to CUDA fails: pieces
 * of work with a small network, each with all that it needs, and what comes of them. Owns: a job
 * its network, its plans and its results. Threads: one. Errors: of a piece of work what the backend
 * answers; all else fails the test that runs. */
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

/* A network, its plans, and what came of them. */
struct fault_job {
    struct reference *r;
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    uint8_t images[FAULT_ITEMS * FAULT_PIXELS], labels[FAULT_ITEMS];
    struct plan *plan[FAULT_MAX_PLANS];
    struct backend_group *group;
    struct backend_data *data;
    float result[FAULT_MAX_RESULTS];
    size_t n_results, end[FAULT_MAX_NOTES]; /* behind each of the arrays noted in it */
    int n_notes;
    double tolerance; /* of an array's largest value, where a product is computed another way */
    long long fault;  /* the call that fails; 0: none */
    int layer;        /* whose work failed; -1: nobody's alone */
    int limited;      /* device 1 has a limit of memory */
    int may_go_on;    /* without what failed: it is said, */
    int n_silent[2];  /* but for so many calls of cleaning up, of these names */
};

/* Before all else. fault_set: emulation_fault_set (tests/emulation/errors.h). */
void fault_begin(const struct backend *backend, void (*fault_set)(long long number));

void fault_build_all(struct reference *r);
void fault_build_words(struct reference *r); /* what that one has not, and no more */

struct fault_job *fault_job_create(void (*build)(struct reference *r));
void fault_job_end(struct fault_job *j); /* results stay */
void fault_job_destroy(struct fault_job *j);

/* Steps from outside, of two sizes; and outputs that are read, dropped and not. */
enum status fault_work_outside(struct fault_job *j);
/* A step in that precision with gradients that are rounded on the card. */
enum status fault_work_bf16(struct fault_job *j);
enum status fault_work_tf32(struct fault_job *j);
/* Samples of a data set on the device. */
enum status fault_work_items(struct fault_job *j);
/* On a device whose memory is limited, and taken at once; inference. */
enum status fault_work_reserved(struct fault_job *j);
/* Steps that stay on the device. */
enum status fault_work_inside(struct fault_job *j);
/* A group finds out whether NCCL works, and does without it; a tower of it. */
enum status fault_work_trial(struct fault_job *j);
/* What fails in the end of a plan and of a data set is not the next plan's. */
enum status fault_work_ends(struct fault_job *j);
/* Three towers on two cards, by one thread, with NCCL and without. Calls are counted once the group
 * is there. */
enum status fault_work_group(struct fault_job *j);
enum status fault_work_group_host(struct fault_job *j);
/* The first half of the layers on one card, the others on the second. */
enum status fault_work_split(struct fault_job *j);
/* Samples and targets of floats, with another loss; and an evaluation beside it. */
enum status fault_work_floats(struct fault_job *j);

#endif
