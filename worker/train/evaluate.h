/* worker/train/evaluate.h - a tower goes over samples without training: what they come to, and, for
 * who wants them, the network's outputs. Batches begin at multiples of EVALUATE_BATCH, so that who
 * evaluates all samples and who evaluates some have the same figures of each batch.
 * Owns:    nothing. Threads: one at a time. Errors: the backend's, the visitor's. */
#ifndef WORKER_TRAIN_EVALUATE_H
#define WORKER_TRAIN_EVALUATE_H
#include "worker/train/tower.h"

enum { EVALUATE_BATCH = 250 };

struct evaluate_sums {
    int64_t n, right; /* samples; those whose largest output is the label's */
    double loss;      /* sum over samples */
    double auc;       /* of evaluate_run; NaN: not of two classes, or a class has no sample */
};

struct evaluate_visitor {
    /* After the forward of samples first .. first + n. */
    enum status (*batch)(void *ctx, struct tower *e, int64_t first, int n);
    void *ctx;
};

/* A tower that can; cfg->test is what it goes over. */
enum status evaluate_tower_create(const struct trainer_config *cfg, struct tower **out);
/* At most so many parts have samples. */
int evaluate_parts(const struct tower *e, int most);
/* Of n_parts runs of batches that the tower's test data are in, as even as they can be, the one
 * with this number; with the parameters as they are now. visitor: NULL: none. */
enum status evaluate_part(struct tower *e, int part, int n_parts,
                          const struct evaluate_visitor *visitor, struct evaluate_sums *out);
/* All samples, likewise. */
enum status evaluate_run(struct tower *e, const struct evaluate_visitor *visitor,
                         struct evaluate_sums *out);

/* Writes "test accuracy: 0.9000, test loss: 0.1000, test AUC: 0.9500"; accuracy NaN: of targets,
 * the loss alone; auc NaN: it is left out. */
enum { EVALUATE_TEXT_BYTES = 128 };
const char *evaluate_text(char dst[EVALUATE_TEXT_BYTES], const char *what, double accuracy,
                          double loss, double auc);
/* Of the samples' share; NaN: they have targets. */
double evaluate_accuracy(const struct dataset *d, const struct evaluate_sums *sums);

#endif
