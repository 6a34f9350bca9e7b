/* worker/results/summary.h - the final figures of a run as JSON, for programs. Errors: ST_IO,
 * ST_FULL, ST_NOMEM; logged with the path. */
#ifndef WORKER_RESULTS_SUMMARY_H
#define WORKER_RESULTS_SUMMARY_H
#include "worker/results/validation.h"
#include "worker/train/trainer.h"

struct summary {
    int task_index;
    const char *model;
    const struct tower_plan *towers;
    struct trainer_result result;
    /* NaN: there are no test data; the accuracy is also NaN if the data have targets */
    double test_accuracy, test_loss;
    double test_auc; /* NaN also if there are not exactly two classes */
    const struct validation *validation;
    int64_t n_params;           /* number of elements of all parameters */
    char parameters_sha256[65]; /* digest of all parameters in order, float32 */
    struct net_exchange_stats stats;
};

/* Results of --evaluate and --predict. */
struct summary_inference {
    const char *model, *file, *output; /* output may be NULL */
    int64_t step;                      /* -1: unknown */
    int64_t images;
    bool has_figures; /* false: the data have no labels, and the fields below are omitted */
    double test_accuracy, test_loss, test_auc;
    int64_t n_params;
    char parameters_sha256[65];
};
enum status summary_write_inference(const char *path, const struct summary_inference *s);

/* Logs the time of training, and its speed; unit: noun for samples, such as images. */
void summary_log_elapsed(const struct trainer_result *r, const char *unit);
/* Writes a JSON object and replaces the file atomically. */
enum status summary_write(const char *path, const struct summary *s);
enum status summary_digest(const float *flat, int64_t n, char hex[65]);

#endif
