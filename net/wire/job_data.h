/* net/wire/job_data.h - describes the data set that a job trains on, so that members can check
 * that they read the same one.
 * Threads: plain values without a lock. */
#ifndef NET_WIRE_JOB_DATA_H
#define NET_WIRE_JOB_DATA_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JOB_DATA_NAME_BYTES = 128 };
/* Kind of a sample's labels; with the numbers of weir.proto. */
enum job_labels { JOB_LABELS_UNSAID, JOB_LABELS_CLASSES, JOB_LABELS_TARGETS, JOB_LABELS_N_KINDS };

struct job_data {
    int64_t n_train, n_test; /* numbers of samples; n_train 0: the data are not described */
    int dim[3];              /* dimensions of a sample: channels, rows, columns */
    int classes;             /* classes in the training set; or targets of each sample */
    enum job_labels labels;
    /* CRC-32C of the samples as they are stored in memory, and of the labels as 32-bit
     * little-endian numbers */
    uint32_t train_samples, train_labels, test_samples, test_labels;
    uint32_t class_names; /* CRC-32C of the classes' names in the order of their labels; 0: unset */
    bool own;             /* each member has its own data: --data_shard=own */
    bool standardized;    /* the samples' columns are standardized: --standardize */
    bool files; /* `name` is the path of --train_data, a file with training samples only */
    char
        name[JOB_DATA_NAME_BYTES]; /* path of the data at a member, printable ASCII; may be empty */
};

/* Validation data of an evaluation. n 0: not described. */
struct job_validation {
    int64_t n;                /* samples */
    uint32_t samples, labels; /* CRC-32C, as in struct job_data */
};
static inline bool job_validation_same(const struct job_validation *a,
                                       const struct job_validation *b)
{
    return a->n == b->n && a->samples == b->samples && a->labels == b->labels;
}

/* Returns the number of evaluations after step `behind` and up to step `upto` if there is one after
 * each `every`-th step. every 0: there are none. The two steps need not be multiples of `every`;
 * for example, the last step of a job may not be one. */
static inline int64_t job_evaluations(int64_t behind, int64_t upto, int64_t every)
{
    return every > 0 ? upto / every - behind / every : 0;
}

/* Returns ST_OK if two members may train together with these data, or one of them has no
 * description. Returns ST_MISMATCH with a sentence that names the first difference and both
 * folders. If each member has its own data, only the shape of samples, the kind of labels and
 * the names of classes must agree. */
enum status job_data_compare(const struct job_data *here, const struct job_data *there, char *why,
                             size_t why_bytes);
/* Sets the name to a copy of the path in printable ASCII. If the path is too long, copies only its
 * end. */
void job_data_set_name(struct job_data *d, const char *path);

#endif
