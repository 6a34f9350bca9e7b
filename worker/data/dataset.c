/* worker/data/dataset.c - the samples of an open data set, and of sets that share its samples.
 * dataset_open.c opens them. */
#include "worker/data/dataset.h"
#include "base/log.h"
#include "base/rng.h"
#include "worker/data/dataset_impl.h"
#include "worker/data/dataset_standard.h"
#include <math.h>
#include <stdlib.h>

/* Returns an array [n] with 1 for each held-out sample: the first k of a shuffle. NULL: no
 * memory. */
static uint8_t *choose_held_out(int64_t n, int64_t k, uint64_t seed)
{
    uint64_t key = rng_key(seed, RNG_SPLIT, 0);
    uint8_t *out = calloc((size_t)n, 1);
    uint32_t *item = malloc((size_t)n * sizeof *item);
    for (int64_t i = 0; out && item && i < n; i++)
        item[i] = (uint32_t)i;
    for (int64_t i = 0; out && item && i < k; i++) {
        int64_t j = i + (int64_t)rng_below(key, (uint64_t)i, (uint64_t)(n - i));
        out[item[j]] = 1;
        item[j] = item[i];
    }
    if (!item) {
        free(out);
        out = NULL;
    }
    free(item);
    return out;
}

/* Moves the files of the set to a source that its subsets share. NULL: no memory. */
static struct source *share_source(struct source *s)
{
    if (s->of)
        return s->of;
    struct source *of = malloc(sizeof *of);
    if (!of)
        return NULL;
    *of = *s;
    if (of->d.keys)
        of->d.keys = &of->keys;
    if (of->d.key_columns)
        of->d.key_columns = (const char *const *)of->key_columns;
    *s = (struct source){.d = of->d, .of = of};
    of->n_subsets = 1;
    return of;
}

/* Lists the rows of the samples i with chosen[i] == which. */
static uint32_t *list_rows(const struct dataset *d, const uint8_t *chosen, int which, int64_t n)
{
    uint32_t *rows = malloc((size_t)n * sizeof *rows), *to = rows;
    for (int64_t i = 0; rows && i < d->n; i++)
        if (chosen[i] == which)
            *to++ = (uint32_t)dataset_row(d, i);
    return rows;
}

enum status dataset_split(struct dataset *d, double share_of, uint64_t seed,
                          struct dataset **held_out)
{
    struct source *s = (struct source *)d;
    int64_t n = d->n, k = (int64_t)(share_of * (double)n);
    if (k < 1 || k >= n) {
        LOG_E(
            "--validation_split: %g of %lld training samples is %lld; at least one must be held out and one left",
            share_of, (long long)n, (long long)k);
        return ST_INVALID;
    }
    uint8_t *chosen = choose_held_out(n, k, seed);
    uint32_t *held_rows = chosen ? list_rows(d, chosen, 1, k) : NULL;
    uint32_t *kept_rows = chosen ? list_rows(d, chosen, 0, n - k) : NULL;
    struct source *held = calloc(1, sizeof *held);
    struct source *of = held_rows && kept_rows && held ? share_source(s) : NULL;
    free(chosen);
    if (!of) {
        LOG_E("--validation_split: no memory for the indices of %lld samples", (long long)n);
        free(held_rows);
        free(kept_rows);
        free(held);
        return ST_NOMEM;
    }
    *held = (struct source){.d = *d, .of = of};
    of->n_subsets++;
    held->d.n = k;
    held->d.rows = held_rows;
    free((void *)(uintptr_t)d->rows);
    d->n = n - k;
    d->rows = kept_rows;
    *held_out = &held->d;
    return ST_OK;
}

static void close_files(struct source *s)
{
    free((void *)(uintptr_t)s->d.labels);
    free((void *)(uintptr_t)s->d.targets);
    for (int i = 0; i < N_ROLES; i++) {
        free(s->array[i].unpacked);
        data_file_close(s->file[i]);
    }
    for (int i = 0; i < DATASET_MAX_KEY_INPUTS; i++) {
        free(s->key_array[i].unpacked);
        free(s->own_keys[i]);
        free(s->own_first[i]);
        free(s->key_columns[i]);
    }
    free(s->class_names);
    free(s->columns);
    free(s->label_names);
    free(s->ignored_names);
    free(s->csv_roles);
    free(s->names);
    dataset_standard_free(&s->d.standard);
    free(s);
}

void dataset_destroy(struct dataset *d)
{
    struct source *s = (struct source *)d;
    if (!s)
        return;
    if (!s->of) {
        close_files(s);
        return;
    }
    if (--s->of->n_subsets == 0)
        close_files(s->of);
    free((void *)(uintptr_t)d->rows);
    free(s);
}

enum status dataset_check_classes(const struct dataset *d, int classes)
{
    for (int64_t i = 0; i < d->n && d->classes > classes; i++) {
        int label = dataset_label(d, i);
        if (label < classes)
            continue;
        LOG_E(
            "%s: label %lld is %d, but the model has %d classes (0 to %d); choose a model with \"classes\": \"auto\"",
            d->labels_path, (long long)dataset_row(d, i), label, classes, classes - 1);
        return ST_MISMATCH;
    }
    return ST_OK;
}

static enum status not_finite(const struct source *s, int64_t row)
{
    const struct data_array *a = &s->array[SAMPLES];
    int64_t first = row * data_array_row_elems(a), k = first;
    while (k < first + data_array_row_elems(a) - 1 && isfinite((float)data_array_plain(a, k)))
        k++;
    double value = data_array_plain(a, k);
    LOG_E("%s: sample %lld (from byte %llu on) has the number %g, which is %s", s->d.path,
          (long long)row,
          (unsigned long long)(a->offset +
                               (uint64_t)data_array_type_bytes(a->type) * (uint64_t)first),
          value,
          isfinite(value) ? DATA_BEYOND_FLOAT "; scale the samples"
                          : "not finite; fix it or remove the sample");
    return ST_CORRUPT;
}

/* Converts (H,W,C) to (C,H,W): bytes, which are the usual case, channel by channel; other numbers
 * pixel by pixel. */
static void turn_sample(const struct source *s, int64_t first, float *dst)
{
    const struct data_array *a = &s->array[SAMPLES];
    const struct shape *to = &s->d.sample;
    int64_t places = to->dim[1] * to->dim[2], channels = to->dim[0];
    float pixel[64];
    for (int64_t c = 0; a->type == DATA_U8 && c < channels; c++) {
        const uint8_t *from = a->data + first + c;
        for (int64_t p = 0; p < places; p++)
            dst[c * places + p] = s->value[from[p * channels]];
    }
    for (int64_t p = 0; a->type != DATA_U8 && p < places; p++) {
        for (int64_t c = 0; c < channels; c += 64) {
            int64_t n = channels - c < 64 ? channels - c : 64;
            data_array_floats(a, first + p * channels + c, n, pixel);
            for (int64_t k = 0; k < n; k++)
                dst[(c + k) * places + p] = pixel[k];
        }
    }
}

static const struct source *files_of(const struct dataset *d)
{
    const struct source *s = (const struct source *)d;
    return s->of ? s->of : s;
}

const void *dataset_place(const struct dataset *d, int64_t i, size_t *bytes)
{
    const struct data_array *a = &files_of(d)->array[SAMPLES];
    *bytes = (size_t)data_array_row_elems(a) * (size_t)data_array_type_bytes(a->type);
    return a->data + (size_t)dataset_row(d, i) * *bytes;
}

/* Returns ST_INVALID if standardizing made a number too large for a float. */
static enum status standardize_sample(const struct dataset *d, int64_t i, float *sample)
{
    const struct dataset_standard *s = &d->standard;
    int finite = 1;
    for (int64_t k = 0; k < s->n; k++) {
        sample[k] = (sample[k] - s->mean[k]) / s->std[k];
        finite &= isfinite(sample[k]) != 0;
    }
    if (finite)
        return ST_OK;
    LOG_E(
        "%s: sample %lld has a number that is not finite after --standardize: the number is too far from the numbers of the training set; fix it or remove the sample",
        d->path, (long long)dataset_row(d, i));
    return ST_INVALID;
}

enum status dataset_plain(const struct dataset *d, int64_t i, float *dst)
{
    const struct source *s = files_of(d);
    const struct data_array *a = &s->array[SAMPLES];
    int64_t elems = data_array_row_elems(a), row = dataset_row(d, i), first = row * elems;
    if (s->nhwc && a->n_dims == 4)
        turn_sample(s, first, dst);
    else
        data_array_floats(a, first, elems, dst);
    for (int64_t k = 0; data_array_type_is_float(a->type) && k < elems; k++)
        if (!isfinite(dst[k]))
            return not_finite(s, row);
    return d->standard.n > 0 ? standardize_sample(d, i, dst) : ST_OK;
}
