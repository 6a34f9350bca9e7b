/* worker/summary.h - the final figures of a run, for machines.
 * Errors: ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_SUMMARY_H
#define WORKER_SUMMARY_H
#include "worker/train/trainer.h"

struct summary {
    int task_index;
    const char *model;
    const struct tower_plan *towers;
    struct trainer_result result;
    double test_accuracy, test_loss;
    int64_t n_params;           /* elements */
    char parameters_sha256[65]; /* of the flat block: all parameters in order, float32 */
    struct net_exchange_stats stats;
};

/* JSON object; the file is replaced whole. */
enum status summary_write(const char *path, const struct summary *s);
enum status summary_digest(const float *flat, int64_t n, char hex[65]);

#endif
