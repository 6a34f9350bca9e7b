/* worker/train/table_step.h - a table in the steps of a worker: the keys of all towers, their rows,
 * the gradients of the rows, and the contribution to the table's buckets. The keys of a step are
 * one list, in the order of the towers, so a worker requests each key once, and the gradients of a
 * key are added in one order.
 *
 * In each step: each tower calls table_step_set; then one thread calls table_step_read; then each
 * tower calls table_step_output, writes the gradients of its bags to table_step_grads, and calls
 * table_step_spread; then one thread calls table_step_sum, and table_step_push.
 * Owns:    copies of the keys; rows and gradients, in memory that grows with the steps.
 * Threads: calls for different towers may run at the same time; the calls without a tower run when
 *          no other call does.
 * Errors:  ST_NOMEM; ST_INVALID: a bucket has more keys than its share of step_rows. Both are
 *          logged. The functions that send also return the errors of member/row_reads.h and
 *          net_exchange_push_rows. */
#ifndef WORKER_TRAIN_TABLE_STEP_H
#define WORKER_TRAIN_TABLE_STEP_H
#include "member/updates.h"
#include "worker/train/bags.h"
#include "worker/train/table_reader.h"

struct table_step_config { /* pointers are borrowed while the object exists */
    const struct updates *updates;
    const struct net_table *table;
    /* reader of the rows of table number `index`, for inference; NULL: servers have them */
    const struct table_reader *reader;
    int index;
    bool mean; /* rule of the bags; false: sum */
    int n_towers;
    bool own_pace; /* each bucket advances independently; steps are those of this worker */
    /* true: nothing is pushed, so a step may have more keys than a bucket's share of step_rows */
    bool reads_only;
};

struct table_step;
enum status table_step_create(const struct table_step_config *cfg, struct table_step **out);
void table_step_destroy(struct table_step *s); /* NULL is fine */

/* Finds the chunks of the table's buckets. */
void table_step_buckets(const struct table_step *s, int *first, int *n);
/* Sets the tower's bags of the step. The keys are borrowed until table_step_push. */
void table_step_set(struct table_step *s, int tower, const struct bags *bags);
/* Reads the rows of all towers in the version `step`; with own_pace, in any version. */
enum status table_step_read(struct table_step *s, int64_t step);
/* Sets *out to the tower's bags, [n_cells][dim], valid until table_step_grads. */
enum status table_step_output(struct table_step *s, int tower, const struct crew *crew,
                              const float **out);
/* Returns memory for the gradients of the tower's bags, [n_cells][dim]. */
float *table_step_grads(struct table_step *s, int tower);
/* Computes the gradients of the tower's rows, multiplied by its weight in the sum. */
void table_step_spread(struct table_step *s, int tower, const struct crew *crew, float weight);
/* Adds the gradients of each key. *sums: their sums, [*n] floats, valid until the next step. */
enum status table_step_sum(struct table_step *s, float **sums, size_t *n);
/* Sets the tower's bags of the next step, before table_step_push. Its keys are borrowed until then.
 * NULL: the tower does not have them yet, so the push names no keys. */
void table_step_set_next(struct table_step *s, int tower, const struct bags *bags);
/* Pushes the sums to all buckets, also to those without keys. The push names the keys of the next
 * step, if they are set for all towers. Buckets that have had all updates of the job are left out.
 * weight 0: the contribution counts, and changes nothing. */
enum status table_step_push(struct table_step *s, int64_t step, int64_t train_steps, float weight);

#endif
