/* http/metrics.h - writes Prometheus' text format 0.0.4, a line at a time: HELP and TYPE once for
 * each family, then its values. The caller chooses valid names of metrics and labels; values of
 * labels may be any text.
 * Owns: nothing. Threads: plain values without a lock. Errors: those of the stream. */
#ifndef HTTP_METRICS_H
#define HTTP_METRICS_H
#include <stdint.h>
#include <stdio.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Writes HELP and TYPE. type: "counter" (its name ends in _total), "gauge" or "histogram". */
void metrics_family(FILE *f, const char *name, const char *type, const char *help);
/* Writes one value. labels: names and values in turn, ended by NULL; NULL: no labels. */
void metrics_value(FILE *f, const char *name, const char *const *labels, double value);
/* Writes the family and its only value. */
void metrics_gauge(FILE *f, const char *name, const char *help, double value);
void metrics_counter(FILE *f, const char *name, const char *help, double value);
/* counts[i], i < n, counts the values in (bounds[i - 1], bounds[i]]; counts[n] those above. */
struct metrics_histogram {
    int n;
    const double *bounds;
    const int64_t *counts;
    double sum;
};
void metrics_histogram(FILE *f, const char *name, const char *help,
                       const struct metrics_histogram *h);

/* Writes the process metrics that every exporter has (CPU, memory, descriptors, start time), and
 * weir_build_info. */
void metrics_process(FILE *f, const char *role, int64_t task);
int64_t metrics_resident_bytes(void); /* 0: unknown */

#endif
