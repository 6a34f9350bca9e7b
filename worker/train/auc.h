/* worker/train/auc.h - the area under the ROC curve of a classifier with two classes: among all
 * pairs of a sample of class 1 and a sample of class 0, the fraction of pairs in which the sample
 * of class 1 has the higher score. A pair with equal scores counts as half. The area is computed
 * exactly, from the ranks of all scores.
 * Owns:    a score and a label for each sample. Threads: one at a time. Errors: ST_NOMEM;
 *          logged. */
#ifndef WORKER_TRAIN_AUC_H
#define WORKER_TRAIN_AUC_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct auc;
/* Allocates memory for up to `most` samples. */
enum status auc_create(int64_t most, struct auc **out);
void auc_destroy(struct auc *a); /* NULL is fine */
void auc_add(struct auc *a, float score, bool is_positive);
/* Returns the area; NaN if a class has no sample, or a score is not a number. Sorts the samples. */
double auc_value(struct auc *a);

#endif
