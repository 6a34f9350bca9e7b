/* checkpoint/job_over.h - has this member's job ended before it was started? One that is started
 * again after its job's end finds no server, and nobody is left who could tell it. What the servers
 * leave in their folder can (--checkpoint_dir, where the worker sees it, too). It is taken for the
 * end only where all of this holds:
 *   - the newest manifest is of the job's last step, and the job is this worker's (its model, data,
 *     batch size, optimizer, seed, mode, and no fewer steps);
 *   - the folder's last owner is the ps 0 of this worker's --ps_hosts;
 *   - that one ended in order: what says that it is up, or was killed (`up-ADDRESS`), is gone;
 *   - the files of --export and --summary_json are there, of this step, and no older than that
 *     owner's claim (lease-E): else the worker has something left to do, for which it waits for the
 * servers to be started again. Not looked at: with --restore, which begins anew, and with --join,
 * whose job is not known. Owns:    nothing; reads, and writes no file. Threads: one at a time.
 * Errors:  none: what cannot be read says nothing, and the worker goes on waiting. */
#ifndef CHECKPOINT_JOB_OVER_H
#define CHECKPOINT_JOB_OVER_H
#include "net/wire/job.h"

struct job_over {
    const char *folder;                     /* all borrowed */
    const char *ps0;                        /* its address in --ps_hosts */
    const char *export_file, *summary_json; /* NULL: none */
    const struct net_join *join;            /* what this worker joins with */
    int said;                               /* that it waits, for an output that is missing */
};

/* 1: it has ended, which is logged. */
int job_over_look(struct job_over *o);

#endif
