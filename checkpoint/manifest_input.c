/* checkpoint/manifest_input.c - see manifest_input.h. */
#include "checkpoint/manifest_input.h"
#include <float.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the list; NULL: out of memory. */
static json_t *floats_to_json(const float *value, int n)
{
    json_t *list = json_array();
    for (int i = 0; list && i < n; i++) {
        if (json_array_append_new(list, json_real((double)value[i])) == 0)
            continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* Reads a list of n numbers, each of which fits a float; false: malformed. */
static bool floats_from_json(const json_t *list, float *value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        double number = json_number_value(v);
        if (!json_is_number(v) || !(number >= (double)-FLT_MAX && number <= (double)FLT_MAX))
            return false;
        value[i] = (float)number;
    }
    return json_array_size(list) == n;
}

/* Returns a string with two hex digits for each byte. */
static json_t *rounding_to_json(const struct net_rounding *r)
{
    char text[2 * ROUNDING_MAX_BYTES + 1] = "";
    for (int i = 0; i < r->n_bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", r->bits[i]);
    return json_string(text);
}

static bool rounding_read(const json_t *job, struct net_rounding *to)
{
    const char *text = json_string_value(json_object_get(job, "rounded"));
    size_t n = text ? strlen(text) : 0;
    *to = (struct net_rounding){.n_bytes = (int)(n / 2)};
    if (n % 2 || n / 2 > ROUNDING_MAX_BYTES || (text && strspn(text, "0123456789abcdef") != n))
        return false;
    for (size_t i = 0; i < n / 2; i++) {
        const char digits[] = {text[2 * i], text[2 * i + 1], 0};
        to->bits[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return true;
}

json_t *manifest_input_add(json_t *job, const struct net_job *from)
{
    const struct job_normal *n = &from->normal;
    char augment[JOB_AUGMENT_BYTES];
    bool ok = job != NULL;
    if (ok && n->n > 0)
        ok = json_object_set_new(job, "mean", floats_to_json(n->mean, n->n)) == 0 &&
             json_object_set_new(job, "std", floats_to_json(n->std, n->n)) == 0;
    if (ok && job_input_augments(&from->augment))
        ok = json_object_set_new(job, "augment",
                                 json_string(job_input_augment_text(&from->augment, augment))) == 0;
    if (ok && from->label_smoothing > 0)
        ok = json_object_set_new(job, "label_smoothing",
                                 json_real((double)from->label_smoothing)) == 0;
    if (ok && from->rounding.n_bytes > 0)
        ok = json_object_set_new(job, "rounded", rounding_to_json(&from->rounding)) == 0;
    if (ok)
        return job;
    json_decref(job);
    return NULL;
}

static bool normal_read(const json_t *job, struct net_job *to)
{
    const json_t *mean = json_object_get(job, "mean"), *std = json_object_get(job, "std");
    size_t n = json_array_size(mean);
    to->normal = (struct job_normal){0};
    if (!mean && !std)
        return true;
    if (n < 1 || n > JOB_MAX_CHANNELS)
        return false;
    to->normal.n = (int)n;
    return floats_from_json(mean, to->normal.mean, n) && floats_from_json(std, to->normal.std, n) &&
           !job_input_normal_problem(&to->normal);
}

bool manifest_input_read(const json_t *job, struct net_job *to)
{
    const json_t *augment = json_object_get(job, "augment");
    to->augment = (struct job_augment){0};
    if (augment && (!json_is_string(augment) ||
                    !job_input_augment_parse(json_string_value(augment), &to->augment)))
        return false;
    to->label_smoothing = (float)json_number_value(json_object_get(job, "label_smoothing"));
    return to->label_smoothing >= 0 && to->label_smoothing < 1 && normal_read(job, to) &&
           rounding_read(job, &to->rounding);
}
