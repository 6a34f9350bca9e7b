/* worker/data/fingerprint.c - computes CRC-32C of samples and labels over a canonical form, so that
 * the same data in another file format has the same fingerprint. */
#include "worker/data/fingerprint.h"
#include "base/digest.h"
#include "base/log.h"
#include "worker/data/dataset_keys.h"
#include "worker/data/dataset_pass.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Returns the bits of a label or a target (a float). */
static uint32_t label_bits(const struct dataset *d, int64_t i, int k)
{
    uint32_t bits;
    if (!d->targets)
        return (uint32_t)dataset_label(d, i);
    memcpy(&bits, &dataset_targets(d, i)[k], sizeof bits);
    return bits;
}

/* Returns the CRC-32C of labels or targets as 32-bit little-endian numbers, independent of the
 * file's format. *classes: 1 + the largest label, or the number of targets of a sample. */
static uint32_t sum_labels(const struct dataset *d, int *classes)
{
    uint8_t block[4096];
    size_t n = 0;
    uint32_t crc = 0, most = 0;
    int per_sample = d->targets ? d->classes : 1;
    for (int64_t i = 0; i < d->n; i++)
        for (int k = 0; k < per_sample; k++) {
            uint32_t label = label_bits(d, i, k);
            most = label > most ? label : most;
            for (int b = 0; b < 4; b++)
                block[n++] = (uint8_t)(label >> 8 * b);
            if (n == sizeof block) {
                crc = digest_crc32c(crc, block, n);
                n = 0;
            }
        }
    *classes = d->targets ? d->classes : (int)most + 1;
    return digest_crc32c(crc, block, n);
}

/* Continues the CRC-32C with the keys of all samples. A cell's number of keys is included if the
 * cells of the input have different numbers. */
static uint32_t sum_keys(const struct dataset *d, uint32_t crc)
{
    for (int k = 0; d->keys && k < d->keys->n; k++) {
        const struct dataset_key_input *in = &d->keys->input[k];
        for (int64_t i = 0; i < d->n; i++) {
            size_t cell = (size_t)dataset_row(d, i) * (size_t)in->n_columns,
                   n = (size_t)in->n_columns;
            size_t from = in->first ? in->first[cell] : cell;
            size_t to = in->first ? in->first[cell + n] : cell + n;
            for (size_t c = cell; in->first && c < cell + n; c++) {
                uint32_t length = in->first[c + 1] - in->first[c];
                crc = digest_crc32c(crc, &length, sizeof length);
            }
            crc = digest_crc32c(crc, in->keys + from, (to - from) * sizeof *in->keys);
        }
    }
    return crc;
}

/* Computes the CRC-32C of samples and their keys: of bytes unchanged, of other samples as the
 * floats that a network reads. */
static enum status sum_samples(const struct dataset *d, uint32_t *out)
{
    enum status st = ST_OK;
    size_t elems = (size_t)shape_elems(&d->sample);
    uint32_t crc = 0;
    float *sample = d->bytes ? NULL : malloc(elems * sizeof *sample);
    struct dataset_pass p;
    if (!d->bytes && !sample) {
        LOG_E("%s: no memory for a sample", d->path);
        return ST_NOMEM;
    }
    dataset_pass_begin(&p, d, "checksum");
    while (dataset_pass_next(&p)) {
        /* number of samples that follow each other in memory */
        size_t n = d->rows ? 1 : (size_t)(p.end - p.first);
        for (int64_t i = p.first; i < p.end && d->bytes; i += (int64_t)n)
            crc = digest_crc32c(crc, dataset_bytes(d, i), n * elems);
        for (int64_t i = p.first; i < p.end && !d->bytes; i++) {
            TRY(dataset_plain(d, i, sample));
            crc = digest_crc32c(crc, sample, elems * sizeof *sample);
        }
    }
    *out = sum_keys(d, crc);
done:
    dataset_pass_end(&p);
    free(sample);
    return st;
}

enum status fingerprint_compute(const struct dataset *train, const struct dataset *test,
                                const char *dir, int own, struct job_data *out)
{
    enum status st = ST_OK;
    int test_classes;
    memset(out, 0, sizeof *out);
    out->n_train = train->n;
    out->own = own;
    out->standardized = train->standard.n > 0;
    out->labels = train->targets ? JOB_LABELS_TARGETS : JOB_LABELS_CLASSES;
    for (int i = 0; i < 3; i++)
        out->dim[i] = (int)train->sample.dim[i];
    TRY(sum_samples(train, &out->train_samples));
    out->train_labels = sum_labels(train, &out->classes);
    if (test) {
        out->n_test = test->n;
        TRY(sum_samples(test, &out->test_samples));
        out->test_labels = sum_labels(test, &test_classes);
    }
    if (train->class_names)
        out->class_names = digest_crc32c(0, train->class_names, strlen(train->class_names));
    char *full = realpath(dir, NULL);
    job_data_set_name(out, full ? full : dir);
    free(full);
done:
    return st;
}

enum status fingerprint_validation(const struct dataset *d, struct job_validation *out)
{
    struct job_validation v = {.n = d->n};
    int classes;
    enum status st = sum_samples(d, &v.samples);
    if (st != ST_OK)
        return st;
    v.labels = sum_labels(d, &classes);
    *out = v;
    return ST_OK;
}
