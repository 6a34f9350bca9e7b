/* checkpoint/job_over.h - detects that this member's job ended before the member was started. A
 * member that is started again after its job's end finds no server. If it can read the servers'
 * folder (--checkpoint_dir), it checks the files there. The job is over only if all of this holds:
 *   - the newest manifest is of the job's last step, and the job is this worker's (its model, data,
 *     batch size, optimizer, seed, mode, and no fewer steps);
 *   - the folder's last owner is the ps 0 of this worker's --ps_hosts;
 *   - that ps 0 shut down in order: its file `up-ADDRESS`, which a killed ps 0 leaves, is gone;
 *   - the files of --export and --summary_json exist, are of this step, and are no older than that
 *     owner's claim (lease-E). Otherwise the worker must still write them, and waits until the
 *     servers are started again.
 * There is no check if --restore is set, which starts a new training, or --join, since the worker
 * then does not have the job's settings. If the job is not over by these rules, the worker waits,
 * and a log line explains once how to end the worker.
 * Owns:    nothing; reads, and writes no file. Threads: one at a time.
 * Errors:  none: if a file cannot be read, the worker continues to wait. */
#ifndef CHECKPOINT_JOB_OVER_H
#define CHECKPOINT_JOB_OVER_H
#include "net/wire/job.h"
#include <stdbool.h>

struct job_over {
    const char *folder;                     /* all borrowed; NULL: there is no check */
    const char *ps0;                        /* address of ps 0 in --ps_hosts */
    const char *export_file, *summary_json; /* NULL: none */
    const struct net_join *join;            /* request with which this worker joins */
    int n_looks;
    bool has_logged; /* a line reported the wait for a missing file */
};

/* Returns true, and logs it, if the job is over. A caller to which ps 0 has not answered since its
 * start calls it every ten seconds. */
bool job_over_look(struct job_over *o);

#endif
