/* member/job_settings.c - see job_settings.h. A setting that has no effect with the chosen
 * optimizer or schedule is an error: otherwise it would be ignored without notice. */
#include "member/job_settings.h"
#include "base/float_text.h"
#include "base/log.h"
#include "net/wire/job_steps.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_if_given(float *field, double value)
{
    if (value >= 0)
        *field = (float)value;
}

/* Checks numbers in which -1, but no other negative number, means the default. */
static enum status check_own(const struct job_settings *s, const char *dash)
{
    const struct {
        const char *name;
        double value;
    } own[] = {{"learning_rate", s->learning_rate},
               {"momentum", s->momentum},
               {"decay", s->decay},
               {"beta1", s->beta1},
               {"beta2", s->beta2},
               {"epsilon", s->epsilon},
               {"weight_decay", s->weight_decay},
               {"lr_decay", s->lr_decay}};
    char text[FLOAT_TEXT_BYTES];
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (own[i].value >= 0 || own[i].value == -1)
            continue;
        LOG_E("%s%s: %s is below 0; write 0 or more, or -1 for the default", dash, own[i].name,
              float_text_double(own[i].value, text));
        return ST_INVALID;
    }
    return ST_OK;
}

/* Refuses settings that the optimizer does not use. A member that joins may leave the optimizer to
 * the job. */
static enum status check_optimizer(const struct job_settings *s, const struct optim_config *o,
                                   const char *dash, int joins)
{
    enum { ADAMS = 1 << OPTIM_ADAM | 1 << OPTIM_ADAMW };
    const struct {
        double value;
        const char *name, *those;
        unsigned kinds;
    } uses[] = {
        {s->momentum, "momentum", "momentum, nesterov and rmsprop",
         1 << OPTIM_MOMENTUM | 1 << OPTIM_NESTEROV | 1 << OPTIM_RMSPROP},
        {s->decay, "decay", "rmsprop", 1 << OPTIM_RMSPROP},
        {s->beta1, "beta1", "adam and adamw", ADAMS},
        {s->beta2, "beta2", "adam and adamw", ADAMS},
        {s->epsilon, "epsilon", "adagrad, rmsprop, adam and adamw",
         1 << OPTIM_ADAGRAD | 1 << OPTIM_RMSPROP | ADAMS},
    };
    int left_to_job = joins && s->optimizer < 0;
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        if (uses[i].value < 0 || left_to_job || uses[i].kinds >> o->kind & 1)
            continue;
        LOG_E("%s%s: %soptimizer=%s has no such setting; it is for %s", dash, uses[i].name, dash,
              optim_name(o->kind), uses[i].those);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status job_settings_boundaries(const char *text, const char *dash, struct optim_config *out)
{
    for (const char *at = text; at;) {
        char *end;
        errno = 0;
        unsigned long long v = strtoull(at, &end, 10);
        int n = out->n_boundaries;
        if (*at < '0' || *at > '9' || errno || (*end && *end != ',') || v < 1 || v > INT64_MAX ||
            (n > 0 && v <= out->boundary[n - 1])) {
            LOG_E("%slr_boundaries: '%.100s' is not a list of rising step numbers, as in 1000,2000",
                  dash, text);
            return ST_INVALID;
        }
        if (n == OPTIM_MAX_BOUNDARIES) {
            LOG_E("%slr_boundaries: more than %d steps", dash, OPTIM_MAX_BOUNDARIES);
            return ST_INVALID;
        }
        out->boundary[out->n_boundaries++] = v;
        at = *end ? end + 1 : NULL;
    }
    return ST_OK;
}

static enum status check_uses(const struct job_settings *s, const struct optim_config *o,
                              const char *dash, int joins)
{
    enum { STEP = 1 << SCHEDULE_STEP, EXPONENTIAL = 1 << SCHEDULE_EXPONENTIAL };
    const struct {
        int given;
        const char *name, *those;
        unsigned kinds;
    } uses[] = {
        {s->lr_boundaries != NULL, "lr_boundaries", "step", STEP},
        {s->lr_decay >= 0, "lr_decay", "step and exponential", STEP | EXPONENTIAL},
        {s->lr_decay_steps > 0, "lr_decay_steps", "exponential", EXPONENTIAL},
    };
    int left_to_job = joins && s->schedule < 0;
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        if (!uses[i].given || left_to_job || uses[i].kinds >> o->schedule & 1)
            continue;
        LOG_E("%s%s: %slr_schedule=%s has no such setting; it is for %s", dash, uses[i].name, dash,
              optim_schedule_name(o->schedule), uses[i].those);
        return ST_INVALID;
    }
    return ST_OK;
}

static enum status check_schedule(const struct optim_config *o, const char *dash, int joins)
{
    if (joins)
        return ST_OK;
    if (o->schedule == SCHEDULE_STEP && o->n_boundaries == 0) {
        LOG_E("%slr_schedule=step needs %slr_boundaries=STEP,...", dash, dash);
        return ST_INVALID;
    }
    if (o->schedule == SCHEDULE_EXPONENTIAL && o->lr_decay_steps == 0) {
        LOG_E("%slr_schedule=exponential needs %slr_decay_steps=N", dash, dash);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status job_settings_optim(const struct job_settings *s, const char *dash, int joins,
                               struct optim_config *out)
{
    enum status st = ST_OK;
    struct optim_config o;
    TRY(check_own(s, dash));
    optim_defaults(s->optimizer < 0 ? OPTIM_ADAM : (enum optim_kind)s->optimizer, &o);
    set_if_given(&o.learning_rate, s->learning_rate);
    set_if_given(&o.momentum, s->momentum);
    set_if_given(&o.decay, s->decay);
    set_if_given(&o.beta1, s->beta1);
    set_if_given(&o.beta2, s->beta2);
    set_if_given(&o.epsilon, s->epsilon);
    set_if_given(&o.weight_decay, s->weight_decay);
    set_if_given(&o.lr_decay, s->lr_decay);
    o.clip_value = (float)s->clip_value;
    o.clip_norm = (float)s->clip_norm;
    o.schedule = s->schedule < 0 ? SCHEDULE_CONSTANT : (enum optim_schedule)s->schedule;
    o.warmup_steps = (uint64_t)s->lr_warmup_steps;
    o.lr_decay_steps = (uint64_t)s->lr_decay_steps;
    TRY(check_uses(s, &o, dash, joins));
    TRY(job_settings_boundaries(s->lr_boundaries, dash, &o));
    TRY(check_schedule(&o, dash, joins));
    TRY(optim_check(&o));
    TRY(check_optimizer(s, &o, dash, joins));
    *out = o;
done:
    return st;
}

enum status job_settings_dtypes(const struct job_settings *s, const char *dash, struct net_job *out)
{
    const char *text = s->wire_dtype ? s->wire_dtype : "fp32";
    out->wire_auto = strcmp(text, "auto") == 0;
    if (dtype_read_two(out->wire_auto ? "fp32" : text, &out->push_dtype, &out->version_dtype))
        return ST_OK;
    LOG_E("%swire_dtype: '%.100s' is not auto, nor one or two names (separated by a comma) of %s",
          dash, text, DTYPE_NAMES);
    return ST_INVALID;
}

enum status job_settings_check_outer(const struct job_settings *s, const char *dash, int joins)
{
    int given = s->outer_optimizer >= 0 || s->outer_rate >= 0 || s->outer_momentum >= 0;
    if (given && s->local_steps <= 1 && !joins) {
        LOG_E(
            "%souter_optimizer, %souter_learning_rate and %souter_momentum are for %slocal_steps; set that too, or leave them out",
            dash, dash, dash, dash);
        return ST_INVALID;
    }
    if (s->outer_optimizer == OPTIM_SGD && s->outer_momentum > 0) {
        LOG_E(
            "%souter_momentum: %souter_optimizer=sgd has no momentum; only momentum and nesterov have one",
            dash, dash);
        return ST_INVALID;
    }
    return ST_OK;
}

void job_settings_outer(const struct job_settings *s, const struct net_job *job, int adaptive,
                        int64_t n_params, struct optim_config *out)
{
    int kind = s->outer_optimizer;
    int64_t n_rounds = (job->train_steps + s->local_steps - 1) / s->local_steps;
    int is_few = job->train_steps > 0 && n_rounds < JOB_FEW_EXCHANGES;
    if (kind < 0 && (job->sync_mode != JOB_SYNC || (is_few && s->outer_momentum <= 0)))
        kind = OPTIM_SGD;
    if (kind < 0)
        kind = adaptive || s->outer_momentum > 0 ? OPTIM_NESTEROV : OPTIM_SGD;
    optim_outer_defaults((enum optim_kind)kind, n_params, out);
    if (job->sync_mode != JOB_SYNC && job->n_workers > 1) /* other workers have already changed the
                                                           * values from which a worker began */
        out->learning_rate = 1 / (float)job->n_workers;
    set_if_given(&out->learning_rate, s->outer_rate);
    set_if_given(&out->momentum, s->outer_momentum); /* the job may have a different optimizer */
}

int job_settings_outer_unsaid(const struct job_settings *s)
{
    int has_kind = s->outer_optimizer >= 0 || s->outer_momentum > 0; /* sgd has no momentum */
    return (has_kind ? 0 : JOB_OUTER_KIND) | (s->outer_rate < 0 ? JOB_OUTER_RATE : 0) |
           (s->outer_momentum < 0 ? JOB_OUTER_MOMENTUM : 0);
}

enum status job_settings_check_steps(int64_t train_steps, int64_t n, const char *dash)
{
    if (n <= 1 || train_steps % n == 0)
        return ST_OK;
    char fewer[40] = "";
    if (train_steps > n)
        snprintf(fewer, sizeof fewer, "%" PRId64 " or ", train_steps / n * n);
    LOG_E("%strain_steps: %" PRId64 " steps are not a multiple of %slocal_steps=%" PRId64
          ", after which the servers average the parameters; write %strain_steps=%s%" PRId64
          ", or another %slocal_steps",
          dash, train_steps, dash, n, dash, fewer, (train_steps / n + 1) * n, dash);
    return ST_INVALID;
}

void job_settings_warn_few(const struct net_job *job)
{
    int64_t each = job_in_lockstep(job) || job->n_workers < 1 ? 1 : job->n_workers;
    int64_t n = job->train_steps / each; /* number of exchanges of one worker */
    if (job_local_steps(job) > 1 && job->n_workers > 1 && job->train_steps > 0 &&
        n < JOB_FEW_EXCHANGES)
        LOG_W(
            "each worker exchanges its parameters only %" PRId64 " times in this job of %" PRId64
            " steps; the result may be much worse than with %d exchanges or more: set a smaller local_steps, or train for more steps",
            n, job->train_steps * job_local_steps(job), JOB_FEW_EXCHANGES);
}

void job_settings_round(struct net_job *job, int64_t n, const struct optim_config *outer)
{
    job->local_steps = (int)n;
    job->local = job->optim;
    job->optim = *outer;
    job->train_steps = (job->train_steps + n - 1) / n;
    job->batch *= (int)n;
    job->optim.total_steps = (uint64_t)job->train_steps;
    job->local.total_steps = (uint64_t)(job->train_steps * n);
}
