/* worker/events/event_histogram.h - the distribution of numbers: buckets whose width grows with
 * their distance from zero, 16 per doubling, over the eight doublings below the largest magnitude.
 * Smaller numbers share one bucket around zero. So a bucket is found without a search. The largest
 * numbers, which are the visible ones on a linear axis, have the resolution of TensorFlow's
 * buckets. A histogram needs two passes over the numbers; each pass may be divided into parts.
 * Numbers that are not finite are not counted.
 * Owns:    nothing; a histogram is a plain value.
 * Threads: one for each value. Errors: none. */
#ifndef WORKER_EVENTS_EVENT_HISTOGRAM_H
#define WORKER_EVENTS_EVENT_HISTOGRAM_H
#include <stddef.h>
#include <stdint.h>

enum {
    EVENT_HISTOGRAM_SIDE = 8 * 16 + 1, /* buckets of one sign; the first is next to zero */
    EVENT_HISTOGRAM_BUCKETS = 2 * EVENT_HISTOGRAM_SIDE
};

struct event_histogram {
    int64_t n; /* number of finite values */
    double min, max, sum, sum_squares;
    /* lowest exponent and fraction that have a bucket; set by event_histogram_scale */
    uint32_t lowest;
    uint64_t count[EVENT_HISTOGRAM_BUCKETS]; /* counts of positive values, from zero upwards; then
                                                of negative values */
};

/* Adds n, min, max and sums of a part of the numbers, in the first pass. A new histogram is {0}. */
void event_histogram_bounds(struct event_histogram *h, const float *value, size_t n);
void event_histogram_add_bounds(struct event_histogram *h, const struct event_histogram *part);
/* Derives the scale of the buckets from the first pass. The second pass then counts parts of the
 * numbers and adds their counts. */
void event_histogram_scale(struct event_histogram *h);
void event_histogram_count(struct event_histogram *h, const float *value, size_t n);
void event_histogram_add_count(struct event_histogram *h, const struct event_histogram *part);
/* Writes the buckets' upper limits, ascending, and their counts, from the first to the last bucket
 * that is not empty (one bucket if there are no numbers). Returns the number of these buckets. */
int event_histogram_buckets(const struct event_histogram *h, double limit[EVENT_HISTOGRAM_BUCKETS],
                            double count[EVENT_HISTOGRAM_BUCKETS]);

#endif
