/* worker/events/event_histogram.c - counts numbers in buckets. A bucket is a float's exponent and
 * the first four bits of its fraction; BITS is the number of the remaining bits. */
#include "worker/events/event_histogram.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { BITS = 19, DOUBLINGS = 8 };
static const uint32_t magnitude = 0x7fffffff, infinite = 0x7f800000;

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double float_of(uint32_t bits)
{
    float value;
    if (bits >= infinite)
        return DBL_MAX;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* Adds numbers of which some may be not finite. */
static void careful_bounds(struct event_histogram *h, const float *value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double x = (double)value[i];
        if (!isfinite(x))
            continue;
        const struct event_histogram one = {
            .n = 1, .min = x, .max = x, .sum = x, .sum_squares = x * x};
        event_histogram_add_bounds(h, &one);
    }
}

/* Numbers are added to independent partial sums, so that no addition waits for the previous one. */
enum { LANES = 8 };

static double sum_of(const double lane[LANES])
{
    double sum = 0;
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

void event_histogram_bounds(struct event_histogram *h, const float *value, size_t n)
{
    float min[LANES], max[LANES];
    double sum[LANES] = {0}, squares[LANES] = {0};
    size_t whole = n - n % LANES;
    for (int k = 0; k < LANES && whole > 0; k++)
        min[k] = max[k] = value[k];
    for (size_t i = 0; i < whole; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            float x = value[i + (size_t)k];
            min[k] = x < min[k] ? x : min[k];
            max[k] = x > max[k] ? x : max[k];
            sum[k] += (double)x;
            squares[k] += (double)x * (double)x;
        }
    }
    if (!isfinite(sum_of(squares)))
        whole = 0;
    careful_bounds(h, value + whole, n - whole);
    if (whole == 0)
        return;
    struct event_histogram part = {
        .n = (int64_t)whole, .sum = sum_of(sum), .sum_squares = sum_of(squares)};
    part.min = (double)min[0];
    part.max = (double)max[0];
    for (int k = 1; k < LANES; k++) {
        part.min = fmin(part.min, (double)min[k]);
        part.max = fmax(part.max, (double)max[k]);
    }
    event_histogram_add_bounds(h, &part);
}

void event_histogram_add_bounds(struct event_histogram *h, const struct event_histogram *part)
{
    if (part->n == 0)
        return;
    h->min = h->n == 0 || part->min < h->min ? part->min : h->min;
    h->max = h->n == 0 || part->max > h->max ? part->max : h->max;
    h->n += part->n;
    h->sum += part->sum;
    h->sum_squares += part->sum_squares;
}

void event_histogram_scale(struct event_histogram *h)
{
    float largest = (float)fmax(fabs(h->min), fabs(h->max));
    uint32_t top = bits_of(largest) >> BITS, below = DOUBLINGS * 16 - 1;
    h->lowest = top > below ? top - below : 0;
}

void event_histogram_count(struct event_histogram *h, const float *value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(value[i]), size = bits & magnitude;
        if (size >= infinite)
            continue;
        uint32_t at = (size >> BITS) + 1 > h->lowest ? (size >> BITS) + 1 - h->lowest : 0;
        if (at >= EVENT_HISTOGRAM_SIDE) /* a number larger than all numbers of the first pass */
            at = EVENT_HISTOGRAM_SIDE - 1;
        h->count[at + (bits >> 31) * EVENT_HISTOGRAM_SIDE]++;
    }
}

void event_histogram_add_count(struct event_histogram *h, const struct event_histogram *part)
{
    for (int i = 0; i < EVENT_HISTOGRAM_BUCKETS; i++)
        h->count[i] += part->count[i];
}

/* Returns the upper limit of bucket k. Buckets are in ascending order. The buckets of negative
 * numbers are first; the last of these buckets is next to zero. */
static double upper_limit(const struct event_histogram *h, int k)
{
    if (k < EVENT_HISTOGRAM_SIDE) {
        int at = EVENT_HISTOGRAM_SIDE - 1 - k;
        return at == 0 ? 0 : -float_of((h->lowest + (uint32_t)at - 1) << BITS);
    }
    return float_of((h->lowest + (uint32_t)(k - EVENT_HISTOGRAM_SIDE)) << BITS);
}

static uint64_t count_of(const struct event_histogram *h, int k)
{
    return h->count[k < EVENT_HISTOGRAM_SIDE ? EVENT_HISTOGRAM_BUCKETS - 1 - k
                                             : k - EVENT_HISTOGRAM_SIDE];
}

int event_histogram_buckets(const struct event_histogram *h, double limit[EVENT_HISTOGRAM_BUCKETS],
                            double count[EVENT_HISTOGRAM_BUCKETS])
{
    int first = 0, last = EVENT_HISTOGRAM_BUCKETS - 1, n = 0;
    while (first < last && count_of(h, first) == 0)
        first++;
    while (last > first && count_of(h, last) == 0)
        last--;
    for (int k = first; k <= last; k++, n++) {
        limit[n] = upper_limit(h, k);
        count[n] = (double)count_of(h, k);
    }
    return n;
}
