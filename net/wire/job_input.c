/* net/wire/job_input.c - see job_input.h. */
#include "net/wire/job_input.h"
#include "base/float_text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *job_normal_problem(const struct job_normal *n)
{
    if (n->n < 0 || n->n > JOB_MAX_CHANNELS)
        return "mean and std have too many numbers";
    for (int c = 0; c < n->n; c++) {
        if (!isfinite(n->mean[c]))
            return "a mean is not finite";
        if (!isfinite(n->std[c]) || n->std[c] <= 0)
            return "a std is not finite and above 0";
    }
    return NULL;
}

int job_normal_differ(const struct job_normal *a, const struct job_normal *b, const char **of)
{
    *of = "mean";
    if (a->n != b->n)
        return 0;
    for (int c = 0; c < a->n; c++) {
        if (a->mean[c] == b->mean[c] && a->std[c] == b->std[c])
            continue;
        *of = a->mean[c] == b->mean[c] ? "std" : "mean";
        return c;
    }
    return -1;
}

const char *job_numbers_text(const float *value, int n, char text[JOB_NUMBERS_BYTES])
{
    char one[FLOAT_TEXT_BYTES];
    size_t at = 0;
    snprintf(text, JOB_NUMBERS_BYTES, "none");
    for (int i = 0; i < n && at < JOB_NUMBERS_BYTES; i++)
        at += (size_t)snprintf(text + at, JOB_NUMBERS_BYTES - at, "%s%s", i ? "," : "",
                               float_text(value[i], one));
    return text;
}

int job_numbers_parse(const char *text, float out[JOB_MAX_CHANNELS])
{
    int n = 0;
    for (const char *at = text;; at++) {
        char *end;
        if (n == JOB_MAX_CHANNELS || !*at || !strchr("0123456789+-.", *at))
            return 0;
        out[n] = strtof(at, &end);
        if (end == at || !isfinite(out[n]) || (*end && *end != ','))
            return 0;
        n++;
        at = end;
        if (!*at)
            return n;
    }
}
