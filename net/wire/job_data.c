/* net/wire/job_data.c - see job_data.h. */
#include "net/wire/job_data.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct comparison {
    const struct job_data *here, *there;
    char *why;
    size_t why_bytes;
};

static const char *name_of(const struct job_data *d)
{
    return d->name[0] ? d->name : "its data";
}

static bool texts_differ(const struct comparison *s, const char *what, const char *here,
                         const char *there)
{
    if (!strcmp(here, there))
        return false;
    snprintf(s->why, s->why_bytes, "%s: the servers have %s in %s, the worker has %s in %s", what,
             here, name_of(s->here), there, name_of(s->there));
    return true;
}

static bool counts_differ(const struct comparison *s, const char *what, int64_t here, int64_t there)
{
    char a[24], b[24];
    snprintf(a, sizeof a, "%" PRId64, here);
    snprintf(b, sizeof b, "%" PRId64, there);
    return texts_differ(s, what, a, b);
}

static bool sums_differ(const struct comparison *s, const char *what, uint32_t here, uint32_t there)
{
    char a[24], b[24];
    snprintf(a, sizeof a, "%08" PRIx32, here);
    snprintf(b, sizeof b, "%08" PRIx32, there);
    return texts_differ(s, what, a, b);
}

static bool shapes_differ(const struct comparison *s)
{
    char a[48], b[48];
    const int *here = s->here->dim, *there = s->there->dim;
    snprintf(a, sizeof a, "%dx%dx%d", here[0], here[1], here[2]);
    snprintf(b, sizeof b, "%dx%dx%d", there[0], there[1], there[2]);
    return texts_differ(s, "shape of a sample", a, b);
}

static bool labels_differ(const struct comparison *s)
{
    static const char *const kinds[JOB_LABELS_N_KINDS] = {"unset", "class labels", "targets"};
    enum job_labels here = s->here->labels, there = s->there->labels;
    return here != JOB_LABELS_UNSAID && there != JOB_LABELS_UNSAID &&
           texts_differ(s, "labels", kinds[here], kinds[there]);
}

/* Compares the names of the classes if the labels themselves are not compared. A label is the index
 * of a class, so other names would change the meaning of the labels. */
static bool class_names_differ(const struct comparison *s)
{
    uint32_t here = s->here->class_names, there = s->there->class_names;
    return here && there &&
           sums_differ(
               s,
               "names of the classes (all workers need the same; an empty folder is a class, too, and a CSV file can have numbers instead of words)",
               here, there);
}

enum status job_data_compare(const struct job_data *here, const struct job_data *there, char *why,
                             size_t why_bytes)
{
    const struct comparison s = {here, there, why, why_bytes};
    if (!here->n_train || !there->n_train)
        return ST_OK;
    if (shapes_differ(&s) || labels_differ(&s))
        return ST_MISMATCH;
    if (here->standardized != there->standardized) {
        const char *const names[2] = {"does not have it", "has it"};
        snprintf(
            why, why_bytes,
            "--standardize: the servers' job %s, the worker %s; set it at all workers or at none",
            names[here->standardized], names[there->standardized]);
        return ST_MISMATCH;
    }
    if (here->own != there->own) {
        const char *const names[2] = {"same", "own"};
        snprintf(why, why_bytes, "--data_shard: the servers have %s, the worker has %s",
                 names[here->own], names[there->own]);
        return ST_MISMATCH;
    }
    if (here->own)
        return class_names_differ(&s) ? ST_MISMATCH : ST_OK;
    return counts_differ(&s, "training samples", here->n_train, there->n_train) ||
                   counts_differ(&s, "test samples", here->n_test, there->n_test) ||
                   counts_differ(&s, "classes", here->classes, there->classes) ||
                   sums_differ(&s, "CRC-32C of the training labels", here->train_labels,
                               there->train_labels) ||
                   sums_differ(&s, "CRC-32C of the training samples", here->train_samples,
                               there->train_samples) ||
                   sums_differ(&s, "CRC-32C of the test labels", here->test_labels,
                               there->test_labels) ||
                   sums_differ(&s, "CRC-32C of the test samples", here->test_samples,
                               there->test_samples)
               ? ST_MISMATCH
               : ST_OK;
}

void job_data_set_name(struct job_data *d, const char *path)
{
    size_t n = strlen(path), most = sizeof d->name - 1;
    if (n > most)
        snprintf(d->name, sizeof d->name, "...%s", path + n - (most - 3));
    else
        snprintf(d->name, sizeof d->name, "%s", path);
    for (char *c = d->name; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}
