/* checkpoint/job_check.h - does a joining member belong to the job? Values, no state. Threads:
 * any. */
#ifndef CHECKPOINT_JOB_CHECK_H
#define CHECKPOINT_JOB_CHECK_H
#include "checkpoint/manifest.h"
#include "net/wire/job.h"

/* Checks what a first member brings against this server alone. n_workers: of --worker_hosts; 0:
 * not given. ST_OK, or ST_INVALID with a sentence. */
enum status checkpoint_job_check_first(const struct net_join *join, int n_workers, char *why,
                                       size_t why_bytes);
/* Compares with the job that was set; what the member does not say (0: a worker that joins a
 * running job knows neither of how many it is nor of how many steps) is not compared. ST_OK, or
 * ST_MISMATCH with a sentence that names the first difference. */
enum status checkpoint_job_check(const struct net_job *job, const struct chunks *chunks,
                                 const struct net_join *join, char *why, size_t why_bytes);
/* Compares with the job of a checkpoint, which may have had other chunks, servers and workers, and
 * fewer or more steps. As checkpoint_job_check; the sentence also says what to do. */
enum status checkpoint_job_check_restored(const struct checkpoint_manifest *m,
                                          const struct net_join *join, char *why, size_t why_bytes);
/* Sets the checkpoint's steps and optimizer of rounds in the join where its own follow them
 * (net/wire/job_steps.h); the join matches the checkpoint. Worker 0 brings its own steps. */
void ps_follow_restored(const struct checkpoint_manifest *m, struct net_join *join);

#endif
