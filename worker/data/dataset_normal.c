/* worker/data/dataset_normal.c - normalises samples, and measures their mean and deviation: see
 * dataset.h. The measurement of bytes counts the occurrences of each value, so its result does not
 * depend on the order of the samples. The measurement of floats adds sample by sample, in two
 * passes. */
#include "base/log.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_VALUES = 256 };

static int64_t places_of(const struct dataset *d)
{
    return d->sample.dim[1] * d->sample.dim[2];
}

enum status dataset_normalise(const struct dataset *d, int64_t i, float *dst)
{
    int64_t places = places_of(d);
    int finite = 1;
    for (int c = 0; c < d->normal.n; c++) {
        float mean = d->normal.mean[c], std = d->normal.std[c];
        for (int64_t k = c * places; k < (c + 1) * places; k++) {
            dst[k] = (dst[k] - mean) / std;
            finite &= isfinite(dst[k]) != 0;
        }
    }
    if (finite)
        return ST_OK;
    LOG_E(
        "%s: sample %lld has a number that is not finite after --mean and --std; set other numbers for these flags",
        d->path, (long long)dataset_row(d, i));
    return ST_INVALID;
}

enum status dataset_sample(const struct dataset *d, int64_t i, float *dst)
{
    enum status st = dataset_plain(d, i, dst);
    return st == ST_OK ? dataset_normalise(d, i, dst) : st;
}

enum status dataset_check_finite(const struct dataset *d)
{
    enum status st = ST_OK;
    struct dataset_pass pass;
    if (!d->floats)
        return ST_OK;
    float *sample = malloc((size_t)shape_elems(&d->sample) * sizeof *sample);
    if (!sample) {
        LOG_E("%s: no memory for a sample", d->path);
        return ST_NOMEM;
    }
    dataset_pass_begin(&pass, d, "finite numbers");
    while (st == ST_OK && dataset_pass_next(&pass))
        for (int64_t i = pass.first; i < pass.end && st == ST_OK; i++)
            st = dataset_plain(d, i, sample);
    dataset_pass_end(&pass);
    free(sample);
    return st;
}

static void count_values(const uint8_t *pixels, int64_t n, uint64_t *count)
{
    for (int64_t k = 0; k < n; k++)
        count[pixels[k]]++;
}

static enum status measure_bytes(const struct dataset *d, double *mean, double *std)
{
    int64_t places = places_of(d), channels = d->sample.dim[0];
    uint64_t *counts = calloc((size_t)channels * N_VALUES, sizeof *counts);
    double n = (double)d->n * (double)places;
    struct dataset_pass pass;
    if (!counts) {
        LOG_E("%s: no memory for the mean of %lld channels", d->path, (long long)channels);
        return ST_NOMEM;
    }
    dataset_pass_begin(&pass, d, "mean and deviation");
    while (dataset_pass_next(&pass))
        for (int64_t i = pass.first; i < pass.end; i++)
            for (int64_t c = 0; c < channels; c++)
                count_values(dataset_bytes(d, i) + c * places, places, counts + c * N_VALUES);
    dataset_pass_end(&pass);
    for (int64_t c = 0; c < channels; c++) {
        const uint64_t *count = counts + c * N_VALUES;
        double sum = 0, squares = 0;
        for (int v = 0; v < N_VALUES; v++)
            sum += (double)count[v] * v;
        for (int v = 0; v < N_VALUES; v++)
            squares += (double)count[v] * (v - sum / n) * (v - sum / n);
        mean[c] = sum / n / 255;
        std[c] = sqrt(squares / n) / 255;
    }
    free(counts);
    return ST_OK;
}

/* For each channel c, adds (x - from[c])^power to sum[c] for each number x of that channel. */
static enum status add_powers(const struct dataset *d, const double *from, int power, double *sum,
                              float *sample)
{
    enum status st = ST_OK;
    int64_t places = places_of(d);
    struct dataset_pass pass;
    dataset_pass_begin(&pass, d, power == 1 ? "mean" : "deviation");
    while (dataset_pass_next(&pass))
        for (int64_t i = pass.first; i < pass.end; i++) {
            TRY(dataset_plain(d, i, sample));
            for (int64_t c = 0; c < d->sample.dim[0]; c++) {
                double s = 0;
                for (int64_t k = c * places; k < (c + 1) * places; k++) {
                    double x = (double)sample[k] - from[c];
                    s += power == 2 ? x * x : x;
                }
                sum[c] += s;
            }
        }
done:
    dataset_pass_end(&pass);
    return st;
}

static enum status measure_floats(const struct dataset *d, double *mean, double *std)
{
    enum status st = ST_OK;
    size_t channels = (size_t)d->sample.dim[0];
    double n = (double)d->n * (double)places_of(d);
    float *sample = malloc((size_t)shape_elems(&d->sample) * sizeof *sample);
    double *sum = calloc(2 * channels, sizeof *sum), *zero = sum ? sum + channels : NULL;
    if (!sample || !sum) {
        LOG_E("%s: no memory for the mean of %zu channels", d->path, channels);
        st = ST_NOMEM;
        goto done;
    }
    TRY(add_powers(d, zero, 1, sum, sample));
    for (size_t c = 0; c < channels; c++)
        mean[c] = sum[c] / n;
    memset(sum, 0, channels * sizeof *sum);
    TRY(add_powers(d, mean, 2, sum, sample));
    for (size_t c = 0; c < channels; c++)
        std[c] = sqrt(sum[c] / n);
done:
    free(sample);
    free(sum);
    return st;
}

enum status dataset_measure(const struct dataset *d, double *mean, double *std)
{
    return d->bytes ? measure_bytes(d, mean, std) : measure_floats(d, mean, std);
}
