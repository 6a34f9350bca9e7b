/* checkpoint/job_check.h - checks that a joining member belongs to the job. Threads: any. */
#ifndef CHECKPOINT_JOB_CHECK_H
#define CHECKPOINT_JOB_CHECK_H
#include "checkpoint/manifest.h"
#include "net/wire/job.h"

/* Checks the job of a first member, which sets the job of this server. n_workers: number in
 * --worker_hosts; 0: not set. ST_OK, or ST_INVALID with a sentence. */
enum status checkpoint_job_check_first(const struct net_join *join, int n_workers, char *why,
                                       size_t why_bytes);
/* Compares the member's job with the running job. Values that the member leaves out (0) are not
 * compared: a worker that joins has neither the number of workers nor of steps. ST_OK, or
 * ST_MISMATCH with a sentence that names the first difference. */
enum status checkpoint_job_check(const struct net_job *job, const struct chunks *chunks,
                                 const struct net_join *join, char *why, size_t why_bytes);
/* Compares like checkpoint_job_check, and also how the member reads its data, and its model file.
 * described: the text in which a worker of the job describes its data and its model, see struct
 * net_join; NULL: unknown. */
enum status checkpoint_job_check_running(const struct net_job *job, const struct chunks *chunks,
                                         const char *described, const struct net_join *join,
                                         char *why, size_t why_bytes);
/* Compares the member's job with that of a checkpoint, which may have had other chunks, servers and
 * workers, and fewer or more steps. Returns like checkpoint_job_check; the sentence also has the
 * fix. */
enum status checkpoint_job_check_restored(const struct checkpoint_manifest *m,
                                          const struct net_join *join, char *why, size_t why_bytes);
/* Sets the join's steps, and the optimizer of its rounds, to those of the checkpoint, if the
 * join's steps follow the job's (job_steps_follow). Worker 0 keeps its own steps. The caller has
 * checked that the join matches the checkpoint. */
void ps_follow_restored(const struct checkpoint_manifest *m, struct net_join *join);

#endif
