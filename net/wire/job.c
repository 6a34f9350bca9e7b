/* net/wire/job.c - see job.h. */
#include "net/wire/job.h"
#include "net/wire/job_steps.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

const char *job_sync_mode_name(enum job_sync_mode mode)
{
    static const char *const names[JOB_N_MODES] = {
        [JOB_SYNC] = "sync", [JOB_ASYNC] = "async", [JOB_SSP] = "ssp"};
    return (unsigned)mode < JOB_N_MODES ? names[mode] : NULL;
}

int job_aggregate(const struct net_job *job)
{
    if (job->sync_mode != JOB_SYNC)
        return 1;
    return job->aggregate > 0 ? job->aggregate : job->n_workers;
}

bool job_in_lockstep(const struct net_job *job)
{
    return job->sync_mode == JOB_SYNC && job_aggregate(job) == job->n_workers;
}

int job_local_steps(const struct net_job *job)
{
    return job->local_steps > 1 ? job->local_steps : 1;
}

int64_t job_asked_steps(const struct net_job *job)
{
    return job->asked_steps ? job->asked_steps : job->train_steps;
}

bool job_steps_follow(const struct net_job *job, const struct net_job *member)
{
    return job->data.own && member->data.own && job->epochs > 0 && job->epochs == member->epochs;
}

void job_set_steps(struct net_job *job, int64_t steps)
{
    job->train_steps = steps;
    job->optim.total_steps = (uint64_t)steps;
    job->local.total_steps = (uint64_t)(steps * job_local_steps(job));
}

struct optim_config job_follow_outer(const struct net_job *member, const struct optim_config *outer)
{
    struct optim_config c = member->optim;
    if (member->outer_unsaid & JOB_OUTER_KIND)
        c.kind = outer->kind;
    if (member->outer_unsaid & JOB_OUTER_RATE)
        c.learning_rate = outer->learning_rate;
    if (member->outer_unsaid & JOB_OUTER_MOMENTUM)
        c.momentum = outer->momentum;
    return c;
}

enum dtype job_push_dtype(const struct net_job *job, const struct chunks *chunks, int chunk)
{
    bool averages = chunk < chunks->n_dense &&
                    chunks->params[chunks->chunks[chunk].param].rule == PARAM_AVERAGE;
    if (job->local_steps > 1 && averages)
        return DTYPE_F32;
    return chunks_dtype(chunks, chunk, job->push_dtype);
}

bool job_sends_changes(const struct net_job *job)
{
    return dtype_block(job->version_dtype) > 1;
}

int job_n_slots(const struct net_job *job)
{
    return optim_n_slots(&job->optim) + job_sends_changes(job);
}

bool job_servers_clip(const struct net_job *job)
{
    return job->optim.clip_norm > 0 && job_in_lockstep(job);
}

/* Returns the length of the part of `arithmetic` before its description of the vector loops. Only
 * that part affects the bits of results. */
static size_t ordering_part(const char *arithmetic)
{
    const char *loops = strstr(arithmetic, JOB_VECTOR_LOOPS);
    return loops ? (size_t)(loops - arithmetic) : strlen(arithmetic);
}

bool job_arithmetic_differs(const struct net_job *a, const struct net_job *b)
{
    size_t n = ordering_part(a->arithmetic);
    return a->sync_mode == JOB_SYNC && a->arithmetic[0] && b->arithmetic[0] &&
           (n != ordering_part(b->arithmetic) || memcmp(a->arithmetic, b->arithmetic, n) != 0);
}

const char *job_check_mode(const struct net_job *job)
{
    bool sync = job->sync_mode == JOB_SYNC;
    if (job->aggregate < 0 || job->aggregate > job->n_workers)
        return "aggregate is not between 1 and n_workers";
    if (!sync && job->aggregate > 0 && job->aggregate < job->n_workers)
        return "aggregate is only for the mode sync";
    if (job->staleness < 0 || (job->staleness > 0 && job->sync_mode != JOB_SSP))
        return "staleness is only for the mode ssp, and not below 0";
    if (!isfinite(job->delay_compensation) || job->delay_compensation < 0)
        return "delay_compensation must be finite and at least 0";
    if (sync && job->delay_compensation > 0)
        return "delay_compensation is only for the modes async and ssp";
    if (!sync && job->local_steps > 1 && job->optim.kind != OPTIM_SGD)
        return "local_steps with momentum at the servers is only for the mode sync";
    if (job->local_steps > 1 && job->delay_compensation > 0)
        return "delay_compensation is for gradients, not for local_steps";
    if (job->fragments > 1 && (!job_in_lockstep(job) || job->optim.clip_norm > 0))
        return "fragments are for the mode sync without backup workers and without clip_norm";
    if ((job->optim.ema_decay > 0 || job->local.ema_decay > 0) &&
        (job->local_steps > 1 || job->fragments > 1 || job_sends_changes(job) || job->wire_auto))
        return "ema_decay cannot be used with local_steps, fragments, wire_auto, and version_dtype int8, int4 and topk";
    if (job_sends_changes(job) && !job_in_lockstep(job))
        return "version_dtype int8, int4 and topk are for the mode sync without backup workers";
    if (job->optim.clip_norm > 0 && job->optim.clip_value > 0)
        return "clip_value and clip_norm are both set";
    if (sync && job->optim.clip_norm > 0 && !job_in_lockstep(job))
        return "clip_norm in the mode sync is for jobs without backup workers (aggregate)";
    return NULL;
}

const char *job_check_asked(const struct net_job *job)
{
    struct net_job known = *job;
    if (known.n_workers == 0)
        known.n_workers = JOB_MAX_WORKERS;
    return job_check_mode(&known);
}
