/* net/wire/job_data.h - which data set a job trains on: enough of it to see that two members read
 * the same one. Threads: values. */
#ifndef NET_WIRE_JOB_DATA_H
#define NET_WIRE_JOB_DATA_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { JOB_DATA_NAME_BYTES = 128 };
/* What a sample's labels are; numbered as in weir.proto. */
enum job_labels { JOB_LABELS_UNSAID, JOB_LABELS_CLASSES, JOB_LABELS_TARGETS, JOB_LABELS_N_KINDS };

struct job_data {
    int64_t n_train, n_test; /* samples; n_train 0: nothing is said of the data */
    int dim[3];              /* of a sample: channels, rows, columns */
    int classes;             /* of the training set; or targets of each sample */
    enum job_labels labels;
    /* CRC-32C: of samples as they lie in memory, of labels as 32-bit little-endian numbers */
    uint32_t train_samples, train_labels, test_samples, test_labels;
    uint32_t class_names; /* of the classes' names in the order of their labels; 0: not said */
    int own;              /* each member has data of its own: --data_shard=own */
    int standardized;     /* the samples' columns are standardized: --standardize */
    int files; /* the name is of training samples that were given by themselves, --train_data */
    char
        name[JOB_DATA_NAME_BYTES]; /* where its member found it, in printable ASCII; may be empty */
};

/* Which validation data an evaluation is of. n 0: nothing is said of them. */
struct job_validation {
    int64_t n;                /* samples */
    uint32_t samples, labels; /* CRC-32C, as above */
};
static inline int job_validation_same(const struct job_validation *a,
                                      const struct job_validation *b)
{
    return a->n == b->n && a->samples == b->samples && a->labels == b->labels;
}

/* Evaluations behind one step up to another, one each `every` steps; 0: none are. Either step may
 * lie between two of them, as a job's last does. */
static inline int64_t job_evaluations(int64_t behind, int64_t upto, int64_t every)
{
    return every > 0 ? upto / every - behind / every : 0;
}

/* ST_OK if two members may train with these together, or one of them says nothing. ST_MISMATCH with
 * a sentence that names the first difference and both folders. Where each member has data of its
 * own, samples of one shape, labels of one kind and classes of the same names are asked for. */
enum status job_data_compare(const struct job_data *here, const struct job_data *there, char *why,
                             size_t why_bytes);
/* A copy of the path in printable ASCII, its end if it is too long. */
void job_data_set_name(struct job_data *d, const char *path);

#endif
