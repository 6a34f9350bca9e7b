/* http/metrics.h - Prometheus' text format 0.0.4, a line at a time: HELP and TYPE once for each
 * family, then its values. Names, units and label names are the caller's; values of labels may be
 * any text.
 * Owns: nothing. Threads: values. Errors: those of the stream. */
#ifndef HTTP_METRICS_H
#define HTTP_METRICS_H
#include <stdint.h>
#include <stdio.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* type: "counter" (the name ends in _total), "gauge", "histogram". */
void metrics_family(FILE *f, const char *name, const char *type, const char *help);
/* labels: name, value, name, value ... NULL; or NULL. */
void metrics_value(FILE *f, const char *name, const char *const *labels, double value);
/* Both, of a family that has one value. */
void metrics_gauge(FILE *f, const char *name, const char *help, double value);
void metrics_counter(FILE *f, const char *name, const char *help, double value);
/* counts[n + 1]: of values in (bounds[i - 1], bounds[i]]; the last: above them all. */
struct metrics_histogram {
    int n;
    const double *bounds;
    const int64_t *counts;
    double sum;
};
void metrics_histogram(FILE *f, const char *name, const char *help,
                       const struct metrics_histogram *h);

/* What every exporter says of its process: CPU, memory, descriptors, start; and weir_build_info. */
void metrics_process(FILE *f, const char *role, int64_t task);
int64_t metrics_resident_bytes(void); /* 0: not known */

#endif
