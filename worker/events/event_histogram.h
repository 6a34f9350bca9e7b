/* worker/events/event_histogram.h - how numbers are distributed: buckets whose width grows with
 * their distance from zero, 16 for each doubling, over the eight doublings below the largest
 * magnitude; what is smaller is one bucket around zero. So there is no search, and the largest
 * numbers, which a linear axis shows, are seen as finely as TensorFlow's buckets show them.
 * Made in two passes over the numbers, in parts: see event_histogram_bounds.
 * Numbers that are not finite are not counted.
 * Owns: nothing; a value. Threads: one for each value. Errors: none. */
#ifndef WORKER_EVENTS_EVENT_HISTOGRAM_H
#define WORKER_EVENTS_EVENT_HISTOGRAM_H
#include <stddef.h>
#include <stdint.h>

enum {
    EVENT_HISTOGRAM_SIDE = 8 * 16 + 1, /* of one sign; the first is next to zero */
    EVENT_HISTOGRAM_BUCKETS = 2 * EVENT_HISTOGRAM_SIDE
};

struct event_histogram {
    int64_t n; /* finite ones */
    double min, max, sum, sum_squares;
    uint32_t lowest;                         /* where buckets begin; set by the scale */
    uint64_t count[EVENT_HISTOGRAM_BUCKETS]; /* positive ones, from zero upwards; then negative */
};

/* First: n, min, max and sums, of each part; added up. A histogram begins as {0}. */
void event_histogram_bounds(struct event_histogram *h, const float *value, size_t n);
void event_histogram_add_bounds(struct event_histogram *h, const struct event_histogram *part);
/* Then the scale follows from these; and with it parts are counted and added up. */
void event_histogram_scale(struct event_histogram *h);
void event_histogram_count(struct event_histogram *h, const float *value, size_t n);
void event_histogram_add_count(struct event_histogram *h, const struct event_histogram *part);
/* Upper limits, ascending, and counts, from the first to the last that is not empty (none: one
 * bucket). Returns how many. */
int event_histogram_buckets(const struct event_histogram *h, double limit[EVENT_HISTOGRAM_BUCKETS],
                            double count[EVENT_HISTOGRAM_BUCKETS]);

#endif
