/* worker/train/evaluate.h - runs a tower over samples without training, and returns their figures.
 * A visitor also receives the network's outputs. Batches begin at multiples of EVALUATE_BATCH, so
 * that a batch has the same figures whether all samples are evaluated or only a part.
 * Owns:    nothing.
 * Threads: one at a time. Errors: the backend's, the visitor's. */
#ifndef WORKER_TRAIN_EVALUATE_H
#define WORKER_TRAIN_EVALUATE_H
#include "worker/train/tower.h"

enum { EVALUATE_BATCH = 250 };

struct evaluate_sums {
    /* n: number of samples; right: number of samples whose label is evaluate_class of the outputs
     */
    int64_t n, right;
    double loss; /* sum of the samples' losses */
    double auc; /* AUC, set by evaluate_run; NaN: there are not two classes, or one has no sample */
};

/* Returns the class of a sample with these outputs: the class with the largest output. A single
 * output is the probability of class 1. */
int evaluate_class(const float *output, int n_outputs);

struct evaluate_visitor {
    /* Called after the forward of samples first .. first + n - 1. */
    enum status (*batch)(void *ctx, struct tower *e, int64_t first, int n);
    void *ctx;
};

/* Creates a tower for evaluation; cfg->test is its data set. */
enum status evaluate_tower_create(const struct trainer_config *cfg, struct tower **out);
/* Returns the number of parts, at most `most`, such that each part has samples. */
int evaluate_parts(const struct tower *e, int most);
/* Divides the batches of the tower's test data into n_parts runs of nearly equal size, and
 * evaluates run number `part` with the current parameters. visitor may be NULL. */
enum status evaluate_part(struct tower *e, int part, int n_parts,
                          const struct evaluate_visitor *visitor, struct evaluate_sums *out);
/* Evaluates all samples of the tower's test data. */
enum status evaluate_run(struct tower *e, const struct evaluate_visitor *visitor,
                         struct evaluate_sums *out);

/* Writes "test accuracy: 0.9000, test loss: 0.1000, test AUC: 0.9500"; accuracy NaN (data with
 * targets): only the loss; auc NaN: without the AUC. */
enum { EVALUATE_TEXT_BYTES = 128 };
const char *evaluate_text(char dst[EVALUATE_TEXT_BYTES], const char *what, double accuracy,
                          double loss, double auc);
/* Returns the fraction of samples that are classified correctly; NaN: the samples have regression
 * targets. */
double evaluate_accuracy(const struct dataset *d, const struct evaluate_sums *sums);

#endif
