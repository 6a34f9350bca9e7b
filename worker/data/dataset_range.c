/* worker/data/dataset_range.c - reads numbers of a set at regular intervals, and compares the
 * ranges of two sets. */
#include "worker/data/dataset_range.h"
#include "base/float_text.h"
#include "base/log.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOKED_AT = 256, ENOUGH = 32, MOST_NUMBERS = 1 << 25 };
/* Allowed ratio of the largest numbers of two sets. The ratio is higher for two sets of the same
 * type, because a column of a table may well have larger numbers in one of the sets. */
enum { TIMES = 8, TIMES_OF_ONE_TYPE = 100 };

enum status dataset_range_measure(const struct dataset *d, struct dataset_range *out)
{
    enum status st = ST_OK;
    int64_t elems = shape_elems(&d->sample), n = d->n < LOOKED_AT ? d->n : LOOKED_AT;
    float *sample = malloc((size_t)elems * sizeof *sample);
    struct dataset_range r = {.floats = d->floats, .least = INFINITY, .most = -INFINITY};
    if (!sample) {
        LOG_E("%s: no memory for a sample", d->path);
        return ST_NOMEM;
    }
    if (n > 1 && n * elems > MOST_NUMBERS)
        n = MOST_NUMBERS / elems + 1;
    for (int64_t i = 0; i < n; i++) {
        TRY(dataset_plain(d, i * d->n / n, sample));
        for (int64_t k = 0; k < elems; k++) {
            r.least = sample[k] < r.least ? sample[k] : r.least;
            r.most = sample[k] > r.most ? sample[k] : r.most;
        }
    }
    r.enough = n >= ENOUGH;
    *out = r;
done:
    free(sample);
    return st;
}

static float largest(const struct dataset_range *r)
{
    return fmaxf(fabsf(r->least), fabsf(r->most));
}

/* Returns a bound for all numbers of the set, derived from the samples that were read. */
static float largest_possible(const struct dataset_range *r)
{
    if (r->enough)
        return largest(r);
    return r->floats ? INFINITY : fmaxf(1, largest(r));
}

bool dataset_range_fits(const struct dataset_range *a, const struct dataset_range *b)
{
    float times = a->floats == b->floats ? TIMES_OF_ONE_TYPE : TIMES;
    if (largest(a) == 0 || largest(b) == 0)
        return true;
    const struct dataset_range *low = largest(a) < largest(b) ? a : b, *high = low == a ? b : a;
    return largest(high) <= times * largest_possible(low);
}

const char *dataset_range_text(const struct dataset_range *r, char dst[DATASET_RANGE_TEXT_BYTES])
{
    char least[FLOAT_TEXT_BYTES], most[FLOAT_TEXT_BYTES];
    snprintf(dst, DATASET_RANGE_TEXT_BYTES, "%s, from %s to %s",
             r->floats ? "floats" : "whole numbers divided by 255", float_text(r->least, least),
             float_text(r->most, most));
    return dst;
}
