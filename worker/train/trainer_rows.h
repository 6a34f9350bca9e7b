/* worker/train/trainer_rows.h - the layers on the host in the steps of a trainer: their outputs are
 * bags of a table's rows. Private to the trainer, see trainer_impl.h. Before the forward of such a
 * layer all towers meet, and the last one reads the rows of all of them. After the backward, the
 * last tower that arrives at the layer adds and pushes their gradients.
 * Owns:    the tables of the training towers.
 * Threads: the towers. Locks: the trainer's.
 * Errors:  those of table_step.h and of the backend. */
#ifndef WORKER_TRAIN_TRAINER_ROWS_H
#define WORKER_TRAIN_TRAINER_ROWS_H
#include "worker/train/tower_tables.h"

struct trainer;

struct trainer_rows {
    struct table_step **tables; /* [n_layers] see tower_tables.h; NULL: none */
    /* [n_layers] towers that have arrived before the layer's forward; guarded by the trainer's
     * lock, and so is the next field */
    int *met;
    int64_t *n_read; /* [n_layers] number of steps whose rows were read */
    /* gradients of the layer that is pushed, [n_sums]; used by the thread that pushes it */
    float *sums;
    size_t n_sums;
};

enum status trainer_rows_create(struct trainer *t);
void trainer_rows_free(struct trainer *t);
/* Begins a generation at t->first_step, while no tower runs. */
void trainer_rows_start(struct trainer *t);
/* Returns true if the layer is on the host. */
static inline bool trainer_rows_has(const struct trainer_rows *r, int layer)
{
    return r->tables && r->tables[layer];
}
/* Sets the layer's output in the tower, after the wait for the versions of the layer's buckets. If
 * the step has become invalid, the tower may have no output, unless it is in a group. */
enum status trainer_rows_load(struct trainer *t, struct tower *w, int layer, int64_t step);
/* Copies the gradient of the layer's output, and sets the keys of the tower's next step. */
enum status trainer_rows_collect(struct trainer *t, struct tower *w, int layer);
/* Adds the gradients of all towers. */
enum status trainer_rows_sum(struct trainer *t, int layer);
/* Pushes the sums to the layer's buckets. */
enum status trainer_rows_push(struct trainer *t, int layer, int64_t step, float weight);

#endif
