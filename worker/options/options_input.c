/* worker/options/options_input.c - the flags of what is done with samples before the model reads
 * them, checked: see options_impl.h. How many channels there are is known when the data are open:
 * see worker/input.c. */
#include "worker/options/options_impl.h"
#include <stdio.h>
#include <string.h>

static enum status read_list(const char *flag, const char *text, struct options_list *out)
{
    int positive = strcmp(flag, "std") == 0;
    *out = (struct options_list){0};
    if (!text)
        return ST_OK;
    if (strcmp(text, "measured") == 0) {
        out->measured = 1;
        return ST_OK;
    }
    out->n = job_input_numbers_parse(text, out->value);
    for (int i = 0; positive && i < out->n; i++)
        if (out->value[i] <= 0)
            out->n = 0;
    if (out->n > 0)
        return ST_OK;
    LOG_E("--%s: '%.100s' is no list of at most %d numbers%s, as in 0.5 or 0.49,0.48,0.45, nor the "
          "word measured",
          flag, text, JOB_MAX_CHANNELS, positive ? " above 0" : "");
    return ST_INVALID;
}

static bool is_given(const struct options_list *l)
{
    return l->n > 0 || l->measured;
}

/* Of a worker's own flags, or with the job's that it joins. */
static enum status check_together(const struct options *o)
{
    const char *wrong = NULL;
    int measured = o->mean.measured || o->std.measured;
    if (o->mean.n > 1 && o->std.n > 1 && o->mean.n != o->std.n)
        wrong = "--mean and --std have not as many numbers; give one for each channel, or one for "
                "all";
    else if (measured && o->data_own && (o->ps_hosts.n > 0 || o->join))
        wrong = "--mean=measured, --std=measured: with --data_shard=own each worker would measure "
                "its own part; give numbers";
    else if (measured && (o->evaluate || o->predict))
        wrong = "--mean=measured, --std=measured: --evaluate and --predict have no training set; "
                "leave them out, the file says what it was trained with";
    else if (o->standardize && (is_given(&o->mean) || is_given(&o->std)))
        wrong = "--standardize and --mean or --std are both given: each column has numbers of its "
                "own, leave --mean and --std out";
    else if (o->standardize && o->data_own && (o->ps_hosts.n > 0 || o->join))
        wrong =
            "--standardize: with --data_shard=own each worker would measure its own part; scale "
            "the columns of all parts before";
    else if (o->standardize && (o->evaluate || o->predict))
        wrong = "--standardize: --evaluate and --predict have no training set; leave it out, the "
                "export says the numbers of training";
    if (!wrong)
        return ST_OK;
    LOG_E("%s", wrong);
    return ST_INVALID;
}

static enum status read_augment(struct options *o)
{
    const char *text = options_raw.augment;
    if (text && !job_input_augment_parse(text, &o->augment)) {
        LOG_E("--augment: '%.100s' is no list of flip, shift:N, crop:N and cutout:N, each once at "
              "most, with N from 1 to %d",
              text, JOB_MAX_AUGMENT);
        return ST_INVALID;
    }
    if (text && (o->evaluate || o->predict)) {
        LOG_E("--augment changes training samples; --evaluate and --predict have none: leave it "
              "out");
        return ST_INVALID;
    }
    return ST_OK;
}

enum status options_input_check(struct options *o)
{
    enum status st = ST_OK;
    TRY(read_list("mean", options_raw.mean, &o->mean));
    TRY(read_list("std", options_raw.std, &o->std));
    o->standardize = options_raw.standardize;
    TRY(check_together(o));
    TRY(read_augment(o));
done:
    return st;
}

static void take_list(struct options_list *to, const float *value, int n)
{
    to->n = n;
    memcpy(to->value, value, (size_t)n * sizeof *value);
}

enum status options_input_adopt(struct options *o, const struct net_job *job)
{
    if (!options_table_is_given(&options_raw.mean))
        take_list(&o->mean, job->normal.mean, job->normal.n);
    if (!options_table_is_given(&options_raw.std))
        take_list(&o->std, job->normal.std, job->normal.n);
    if (!options_table_is_given(&options_raw.standardize))
        o->standardize = job->data.standardized;
    if (!options_table_is_given(&options_raw.augment))
        o->augment = job->augment;
    return check_together(o);
}
