/* http/metrics.c - see metrics.h. */
#include "http/metrics.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

void metrics_family(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Writes the shortest text that strtod reads back as the same number. */
static void write_number(FILE *f, double v)
{
    char text[32];
    if (isnan(v))
        fputs("NaN", f);
    else if (isinf(v))
        fputs(v > 0 ? "+Inf" : "-Inf", f);
    else if (snprintf(text, sizeof text, "%.15g", v) > 0 && strtod(text, NULL) == v)
        fputs(text, f);
    else
        fprintf(f, "%.17g", v);
}

/* Writes a label's value. Peers choose such names, so '?' replaces all but printable ASCII. */
static void write_text(FILE *f, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\\' || *c == '"')
            fputc('\\', f);
        fputc(*c >= ' ' && *c <= '~' ? *c : '?', f);
    }
}

void metrics_value(FILE *f, const char *name, const char *const *labels, double value)
{
    fputs(name, f);
    for (int i = 0; labels && labels[i]; i += 2) {
        fprintf(f, "%c%s=\"", i == 0 ? '{' : ',', labels[i]);
        write_text(f, labels[i + 1]);
        fputc('"', f);
    }
    fputs(labels && labels[0] ? "} " : " ", f);
    write_number(f, value);
    fputc('\n', f);
}

void metrics_gauge(FILE *f, const char *name, const char *help, double value)
{
    metrics_family(f, name, "gauge", help);
    metrics_value(f, name, NULL, value);
}

void metrics_counter(FILE *f, const char *name, const char *help, double value)
{
    metrics_family(f, name, "counter", help);
    metrics_value(f, name, NULL, value);
}

void metrics_histogram(FILE *f, const char *name, const char *help,
                       const struct metrics_histogram *h)
{
    int64_t below = 0;
    metrics_family(f, name, "histogram", help);
    for (int i = 0; i < h->n; i++) {
        below += h->counts[i];
        fprintf(f, "%s_bucket{le=\"%.15g\"} %" PRId64 "\n", name, h->bounds[i], below);
    }
    below += h->counts[h->n];
    fprintf(f, "%s_bucket{le=\"+Inf\"} %" PRId64 "\n%s_sum ", name, below, name);
    write_number(f, h->sum);
    fprintf(f, "\n%s_count %" PRId64 "\n", name, below);
}
