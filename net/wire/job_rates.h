/* net/wire/job_rates.h - decides which optimizer uses the factors of a parameter's learning rate
 * and weight decay, and in which jobs a contribution may have a factor for its step. If members
 * make local steps, their own optimizer uses the factors of the parameters, and the servers'
 * optimizer, which receives only changes, does not.
 * Threads: plain values without a lock. */
#ifndef NET_WIRE_JOB_RATES_H
#define NET_WIRE_JOB_RATES_H
#include "net/wire/job.h"

/* Returns the factors with which the servers update the parameter. */
struct optim_factors job_rates_factors(const struct net_job *job, const struct net_param *param);
/* Returns NULL, or the reason why contributions in this job may not have a factor of the learning
 * rate (static text). in_region: the servers are a region. */
const char *job_rates_step_problem(const struct net_job *job, bool in_region);

#endif
