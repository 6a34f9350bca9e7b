/* worker/data/dataset_standard.c - measures, copies, writes and parses the numbers of
 * --standardize. */
#include "worker/data/dataset_standard.h"
#include "base/float_text.h"
#include "base/log.h"
#include "worker/data/data_words.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_pass.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of one column while the samples are read. */
struct column {
    float first; /* value in the first sample */
    bool varies; /* the number differs in another sample */
    double sum, mean, squares;
};

static enum status allocate_numbers(struct dataset_standard *s, int64_t n)
{
    float *numbers = calloc((size_t)n, 2 * sizeof *numbers);
    if (!numbers)
        return ST_NOMEM;
    *s = (struct dataset_standard){n, numbers, numbers + n};
    return ST_OK;
}

void dataset_standard_free(struct dataset_standard *s)
{
    free(s->mean);
    *s = (struct dataset_standard){0};
}

static enum status check_table(const struct dataset *d)
{
    const int64_t *is = d->sample.dim;
    if (is[0] == 1 && is[1] == 1)
        return ST_OK;
    LOG_E("--standardize is for tables, CSV files and rows of features; %s has samples of %" PRId64
          "x%" PRId64 "x%" PRId64
          " (channels, height, width): for these use --mean=measured --std=measured",
          d->path, is[0], is[1], is[2]);
    return ST_INVALID;
}

/* Adds a sample to each column's sums. The second pass adds the squares of the differences from the
 * mean, which the first pass has computed. */
static void add_sample(struct column *c, int64_t n, const float *sample, int pass)
{
    for (int64_t k = 0; k < n; k++) {
        double x = (double)sample[k] - c[k].mean;
        if (pass == 0)
            c[k].sum += x;
        else
            c[k].squares += x * x;
        c[k].varies |= sample[k] != c[k].first;
    }
}

static enum status read_samples(const struct dataset *d, int64_t n, float *sample, struct column *c)
{
    enum status st = dataset_plain(d, 0, sample);
    for (int64_t k = 0; st == ST_OK && k < n; k++)
        c[k].first = sample[k];
    for (int pass = 0; pass < 2 && st == ST_OK; pass++) {
        struct dataset_pass p;
        dataset_pass_begin(&p, d, pass ? "deviation of columns" : "mean of columns");
        while (st == ST_OK && dataset_pass_next(&p))
            for (int64_t i = p.first; i < p.end && st == ST_OK; i++) {
                st = dataset_plain(d, i, sample);
                if (st == ST_OK)
                    add_sample(c, n, sample, pass);
            }
        dataset_pass_end(&p);
        for (int64_t k = 0; k < n && pass == 0; k++)
            c[k].mean = c[k].sum / (double)d->n;
    }
    return st;
}

static void settle_columns(const struct dataset *d, const struct column *c,
                           struct dataset_standard *s)
{
    int64_t constant = 0, first = 0;
    char name[DATA_WORDS_TEXT_BYTES] = "", more[64] = "";
    for (int64_t k = 0; k < s->n; k++) {
        s->mean[k] = c[k].varies ? (float)c[k].mean : c[k].first;
        s->std[k] = c[k].varies ? (float)sqrt(c[k].squares / (double)d->n) : 0;
        if (s->std[k] > 0)
            continue;
        s->std[k] = 1;
        first = constant++ ? first : k;
    }
    if (constant == 0)
        return;
    if (d->columns)
        data_words_name(d->columns, first, name);
    if (constant > 1)
        snprintf(more, sizeof more, ", and so are %" PRId64 " others", constant - 1);
    LOG_W("--standardize: %s: feature %" PRId64 "%s%s%s is the same number in all %" PRId64
          " samples%s: a model learns nothing from it; its deviation counts as 1",
          d->path, first + 1, *name ? " ('" : "", name, *name ? "')" : "", d->n, more);
}

enum status dataset_standard_measure(struct dataset *d)
{
    enum status st = ST_OK;
    int64_t n = shape_elems(&d->sample);
    struct dataset_standard s = {0};
    struct column *columns = NULL;
    float *sample = NULL;
    TRY(check_table(d));
    columns = calloc((size_t)n, sizeof *columns);
    sample = malloc((size_t)n * sizeof *sample);
    st = columns && sample ? allocate_numbers(&s, n) : ST_NOMEM;
    if (st != ST_OK) {
        LOG_E("--standardize: no memory for the %" PRId64 " columns of %s", n, d->path);
        goto done;
    }
    st = read_samples(d, n, sample, columns);
    if (st == ST_OK) {
        settle_columns(d, columns, &s);
        st = dataset_standard_set(d, &s);
    }
done:
    dataset_standard_free(&s);
    free(columns);
    free(sample);
    return st;
}

enum status dataset_standard_set(struct dataset *d, const struct dataset_standard *from)
{
    int64_t n = shape_elems(&d->sample);
    enum status st = check_table(d);
    if (st != ST_OK)
        return st;
    if (n != from->n) {
        LOG_E("%s has samples of %" PRId64 " numbers, but in training %" PRId64
              " columns were standardized (--standardize); use data with the same columns",
              d->path, n, from->n);
        return ST_MISMATCH;
    }
    st = allocate_numbers(&d->standard, n);
    if (st != ST_OK) {
        LOG_E("--standardize: no memory for the %" PRId64 " columns of %s", n, d->path);
        return st;
    }
    memcpy(d->standard.mean, from->mean, (size_t)n * sizeof *from->mean);
    memcpy(d->standard.std, from->std, (size_t)n * sizeof *from->std);
    d->bytes = NULL;  /* the samples are not the file's numbers any more */
    d->floats = true; /* a standardized number may overflow to infinity */
    return ST_OK;
}

bool dataset_standard_same(const struct dataset_standard *a, const struct dataset_standard *b)
{
    return a->n == b->n && memcmp(a->mean, b->mean, (size_t)a->n * sizeof *a->mean) == 0 &&
           memcmp(a->std, b->std, (size_t)a->n * sizeof *a->std) == 0;
}

char *dataset_standard_text(const float *number, int64_t n)
{
    char *text = malloc((size_t)n * FLOAT_TEXT_BYTES), *to = text, one[FLOAT_TEXT_BYTES];
    for (int64_t k = 0; text && k < n; k++) {
        if (k > 0)
            *to++ = ',';
        size_t length = strlen(float_text(number[k], one));
        memcpy(to, one, length + 1); /* the comma replaces the final 0 of the previous number */
        to += length;
    }
    return text;
}

/* Stores the first `room` numbers of the text, and returns how many numbers it has; -1: the text is
 * malformed, or a number is not finite. */
static int64_t parse_numbers(const char *text, float *to, int64_t room)
{
    int64_t n = 0;
    for (;; text++) {
        char *end;
        float x = strtof(text, &end);
        if (end == text || !isfinite(x) || (*end && *end != ','))
            return -1;
        if (n < room)
            to[n] = x;
        n++;
        text = end;
        if (!*text)
            return n;
    }
}

enum status dataset_standard_parse(const char *mean, const char *std, struct dataset_standard *out)
{
    int64_t n = parse_numbers(mean, NULL, 0);
    *out = (struct dataset_standard){0};
    if (n < 1 || n > DATASET_MAX_ELEMS || parse_numbers(std, NULL, 0) != n)
        return ST_CORRUPT;
    if (allocate_numbers(out, n) != ST_OK) {
        LOG_E("--standardize: no memory for the numbers of %" PRId64 " columns", n);
        return ST_NOMEM;
    }
    parse_numbers(mean, out->mean, n);
    parse_numbers(std, out->std, n);
    for (int64_t k = 0; k < n; k++)
        if (!(out->std[k] > 0)) {
            dataset_standard_free(out);
            return ST_CORRUPT;
        }
    return ST_OK;
}
