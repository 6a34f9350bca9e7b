/* worker/options/options_local.c - --local_steps: what the worker's flags mean where it takes steps
 * by itself, and a step of the servers is a round of them (net/wire/job.h). */
#include "worker/options/options_impl.h"
#include <inttypes.h>
#include <stdlib.h>

int64_t options_rounds(const struct options *o)
{
    return o->local_steps > 1 && o->ps_hosts.n > 0 ? o->local_steps : 1;
}

enum status options_local_check(struct options *o)
{
    if (job_settings_check_outer(&options_raw.job, "--", options_raw.join) != ST_OK)
        return ST_INVALID;
    return options_local_check_rounds(o);
}

enum status options_local_check_rounds(const struct options *o)
{
    if (options_rounds(o) == 1)
        return ST_OK;
    if (job_settings_check_steps(o->train_steps, o->local_steps, "--") != ST_OK)
        return ST_INVALID;
    int moves = options_raw.job.outer_optimizer > OPTIM_SGD || options_raw.job.outer_momentum > 0;
    if (o->sync_mode != JOB_SYNC && moves) {
        LOG_E("%s: momentum is for --sync_mode=sync; that of each worker's contribution by itself "
              "diverges; with %s leave it out, or take --outer_optimizer=sgd",
              options_raw.job.outer_momentum > 0 ? "--outer_momentum" : "--outer_optimizer",
              job_sync_mode_name(o->sync_mode));
        return ST_INVALID;
    }
    if (o->delay_compensation > 0) {
        LOG_E("--delay_compensation corrects gradients, and --local_steps sends none; leave one "
              "of them out");
        return ST_INVALID;
    }
    if (o->batch_size * o->local_steps > JOB_MAX_BATCH) {
        LOG_E("--local_steps: %" PRId64 " steps of %" PRId64 " samples are more than %d; fewer "
              "will do",
              o->local_steps, o->batch_size, JOB_MAX_BATCH);
        return ST_INVALID;
    }
    if (o->eval_every % o->local_steps != 0) {
        LOG_E("--eval_every: %" PRId64 " steps are no multiple of --local_steps=%" PRId64
              ", after which a worker has the servers' parameters",
              o->eval_every, o->local_steps);
        return ST_INVALID;
    }
    return ST_OK;
}

void options_settle_outer(struct options *o, int64_t n_samples, int64_t n_params)
{
    const struct net_job job = {.sync_mode = o->sync_mode,
                                .n_workers = o->n_workers,
                                .train_steps = options_train_steps(o, n_samples)};
    if (!o->outer_known) /* by the job */
        job_settings_outer(&options_raw.job, &job, o->optim.kind >= OPTIM_ADAGRAD, n_params,
                           &o->outer);
    o->outer_known = 1;
}

void options_local_adopt_outer(struct options *o, const struct net_job *job)
{
    if (!options_table_is_given(&options_raw.job.local_steps))
        o->local_steps = job_local_steps(job);
    if (job->local_steps <= 1) /* what was given is told as a difference */
        return;
    o->outer = job->optim;
    if (options_raw.job.outer_optimizer >= 0)
        o->outer.kind = (enum optim_kind)options_raw.job.outer_optimizer;
    if (options_raw.job.outer_rate >= 0)
        o->outer.learning_rate = (float)options_raw.job.outer_rate;
    if (options_raw.job.outer_momentum >= 0)
        o->outer.momentum = (float)options_raw.job.outer_momentum;
    o->outer_known = 1;
}

void options_local_job(const struct options *o, struct net_job *job)
{
    int64_t n = options_rounds(o);
    if (n == 1)
        return;
    job_settings_round(job, n, &o->outer);
    job->outer_unsaid = job_settings_outer_unsaid(&options_raw.job);
}
