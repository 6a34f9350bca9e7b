/* net/wire/job_input.c - see job_input.h. */
#include "net/wire/job_input.h"
#include "base/float_text.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *job_input_normal_problem(const struct job_normal *n)
{
    if (n->n < 0 || n->n > JOB_MAX_CHANNELS)
        return "mean and std have too many numbers";
    for (int c = 0; c < n->n; c++) {
        if (!isfinite(n->mean[c]))
            return "a mean is not finite";
        if (!isfinite(n->std[c]) || n->std[c] <= 0)
            return "a std is not finite, or not above 0";
    }
    return NULL;
}

int job_input_normal_differ(const struct job_normal *a, const struct job_normal *b, const char **of)
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

const char *job_input_numbers_text(const float *value, int n, char text[JOB_NUMBERS_BYTES])
{
    char one[FLOAT_TEXT_BYTES];
    size_t at = 0;
    snprintf(text, JOB_NUMBERS_BYTES, "none");
    for (int i = 0; i < n && at < JOB_NUMBERS_BYTES; i++)
        at += (size_t)snprintf(text + at, JOB_NUMBERS_BYTES - at, "%s%s", i ? "," : "",
                               float_text(value[i], one));
    return text;
}

int job_input_numbers_parse(const char *text, float out[JOB_MAX_CHANNELS])
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

bool job_input_augments(const struct job_augment *a)
{
    return a->flip || a->shift > 0 || a->crop > 0 || a->cutout > 0;
}

const char *job_input_augment_text(const struct job_augment *a, char text[JOB_AUGMENT_BYTES])
{
    const struct {
        const char *name;
        int pixels;
    } sized[] = {{"shift", a->shift}, {"crop", a->crop}, {"cutout", a->cutout}};
    size_t at = (size_t)snprintf(text, JOB_AUGMENT_BYTES, "%s", a->flip ? "flip" : "");
    for (size_t i = 0; i < sizeof sized / sizeof *sized && at < JOB_AUGMENT_BYTES; i++)
        if (sized[i].pixels > 0)
            at += (size_t)snprintf(text + at, JOB_AUGMENT_BYTES - at, "%s%s:%d", at ? "," : "",
                                   sized[i].name, sized[i].pixels);
    return text;
}

/* Parses one change of n bytes, such as "shift:2". Returns false if it is not valid. */
static bool parse_one(const char *text, size_t n, struct job_augment *a)
{
    struct {
        const char *name;
        int *pixels;
    } sized[] = {{"shift:", &a->shift}, {"crop:", &a->crop}, {"cutout:", &a->cutout}};
    if (n == 4 && memcmp(text, "flip", 4) == 0 && !a->flip) {
        a->flip = true;
        return true;
    }
    for (size_t i = 0; i < sizeof sized / sizeof *sized; i++) {
        size_t k = strlen(sized[i].name);
        int pixels = 0;
        if (n <= k || memcmp(text, sized[i].name, k) != 0 || *sized[i].pixels > 0)
            continue;
        for (; k < n && text[k] >= '0' && text[k] <= '9' && pixels <= JOB_MAX_AUGMENT; k++)
            pixels = pixels * 10 + (text[k] - '0');
        *sized[i].pixels = pixels;
        return k == n && pixels >= 1 && pixels <= JOB_MAX_AUGMENT;
    }
    return false;
}

bool job_input_augment_parse(const char *text, struct job_augment *out)
{
    struct job_augment a = {0};
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        if (!parse_one(at, n, &a))
            return false;
        at += n;
        if (!*at)
            break;
    }
    *out = a;
    return true;
}
