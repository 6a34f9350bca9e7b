/* net/wire/job_rates.c - see job_rates.h. */
#include "net/wire/job_rates.h"

struct optim_factors job_rates_factors(const struct net_job *job, const struct net_param *param)
{
    return job_local_steps(job) > 1 ? (struct optim_factors){1, 1} : param->factors;
}

const char *job_rates_step_problem(const struct net_job *job, bool in_region)
{
    if (job_local_steps(job) > 1)
        return "a factor of a step's learning rate cannot be used with local_steps";
    if (job->sync_mode == JOB_SYNC && !job_in_lockstep(job))
        return "a factor of a step's learning rate cannot be used with backup workers";
    return in_region ? "a factor of a step's learning rate cannot be used in a region" : NULL;
}
