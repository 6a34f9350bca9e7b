/* net/wire/job_steps.h - decides the number of steps of a job. If members have their own data
 * (--data_shard=own), each may compute a different number from the same --epochs: then all members
 * use the job's number. They then also use the job's optimizer of rounds (local_steps), because its
 * default depends on the number of steps.
 * Threads: plain values without a lock. */
#ifndef NET_WIRE_JOB_STEPS_H
#define NET_WIRE_JOB_STEPS_H
#include "net/wire/job.h"
#include <stdbool.h>

enum { JOB_MAX_EPOCHS = 1000000000 };
/* Fields of the servers' optimizer of rounds that a member's command line leaves out. */
enum job_outer {
    JOB_OUTER_KIND = 1,
    JOB_OUTER_RATE = 2,
    JOB_OUTER_MOMENTUM = 4,
    JOB_OUTER_ALL = 7
};

/* Returns the number of steps that were requested when the job began. */
int64_t job_asked_steps(const struct net_job *job);
/* Returns true if the member uses the job's number of steps instead of its own: each member has its
 * own data, and the job and the member compute the number from the same --epochs. */
bool job_steps_follow(const struct net_job *job, const struct net_job *member);
/* Sets the number of steps, and the numbers that the schedules of learning rates derive from it. */
void job_set_steps(struct net_job *job, int64_t steps);
/* Returns the member's `optim`; fields that the member's command line leaves out are those of
 * `outer`, the job's optimizer. */
struct optim_config job_follow_outer(const struct net_job *member,
                                     const struct optim_config *outer);

#endif
