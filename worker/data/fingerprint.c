/* worker/data/fingerprint.c - see fingerprint.h. What it needs of a data set comes through `view`
 * alone. */
#include "worker/data/fingerprint.h"
#include "base/digest.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A data set as it is summed. */
struct view {
    int64_t n;
    int dim[3];             /* channels, rows, columns */
    const uint8_t *samples; /* n times sample_bytes */
    size_t sample_bytes;
    const uint8_t *labels; /* n */
};

static struct view view_of(const struct dataset *d)
{
    return (struct view){.n = d->n,
                         .dim = {1, d->rows, d->columns},
                         .samples = d->images,
                         .sample_bytes = (size_t)d->rows * (size_t)d->columns,
                         .labels = d->labels};
}

/* CRC-32C of the labels as 32-bit little-endian numbers, so that it does not depend on how a file
 * writes them. *classes: 1 + the largest. */
static uint32_t sum_labels(const struct view *v, int *classes)
{
    uint8_t block[4096];
    size_t n = 0;
    uint32_t crc = 0, most = 0;
    for (int64_t i = 0; i < v->n; i++) {
        uint32_t label = (uint32_t)v->labels[i];
        most = label > most ? label : most;
        for (int b = 0; b < 4; b++)
            block[n++] = (uint8_t)(label >> 8 * b);
        if (n == sizeof block || i + 1 == v->n) {
            crc = digest_crc32c(crc, block, n);
            n = 0;
        }
    }
    *classes = (int)most + 1;
    return crc;
}

static uint32_t sum_samples(const struct view *v)
{
    return digest_crc32c(0, v->samples, (size_t)v->n * v->sample_bytes);
}

void fingerprint_take(const struct dataset *train, const struct dataset *test, const char *dir,
                      int own, struct job_data *out)
{
    int test_classes;
    const struct view v = view_of(train);
    memset(out, 0, sizeof *out);
    out->n_train = v.n;
    out->own = own;
    memcpy(out->dim, v.dim, sizeof out->dim);
    out->train_samples = sum_samples(&v);
    out->train_labels = sum_labels(&v, &out->classes);
    if (test) {
        const struct view t = view_of(test);
        out->n_test = t.n;
        out->test_samples = sum_samples(&t);
        out->test_labels = sum_labels(&t, &test_classes);
    }
    char *full = realpath(dir, NULL);
    job_data_set_name(out, full ? full : dir);
    free(full);
}
