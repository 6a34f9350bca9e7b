/* worker/checkpoint/alone_folder.h - the folder of checkpoints of a worker without servers: the
 * files, the claim and the epochs are those of servers (checkpoint/folder.h), so that a job begun
 * alone goes on with servers, and back. Beside the claim, which fences who had the folder before,
 * the process holds a lock on the file `worker-lock`, so that a second worker alone, or a ps 0, is
 * refused while the first one lives (where the file system has locks; checkpoint/owner.h).
 * Owns:    the lock.
 * Threads: one at a time.
 * Errors:  logged: ST_INVALID (no folder), ST_REFUSED (another process has it), ST_MISMATCH (of
 *          another job), ST_NOT_FOUND (nothing where --restore says), ST_CORRUPT, ST_IO, ST_NOMEM.
 */
#ifndef WORKER_CHECKPOINT_ALONE_FOLDER_H
#define WORKER_CHECKPOINT_ALONE_FOLDER_H
#include "checkpoint/folder.h"
#include "member/updates.h"
#include <stdbool.h>

enum { ALONE_NAME_BYTES = 128 };

struct alone_folder_config {
    const char *path;
    const char *restore; /* a manifest or a folder that wins over what is in this one; NULL: none */
    bool take_over;      /* the folder's owner may be alive; false: its life is an error */
    const char *host;
    const struct net_job *job;
    double epochs; /* that make its steps; 0: they were given as steps */
    const struct chunks *chunks;
    const char *trained_on;  /* as in struct net_join */
    struct updates *updates; /* of the local kind; goes on from what is found */
};

struct alone_folder {
    const char *path; /* borrowed */
    int lock_fd;      /* -1: none */
    struct checkpoint_lease lease;
    char id[FOLDER_ID_BYTES];     /* empty: none could be made */
    char name[ALONE_NAME_BYTES];  /* of this process, in the lease and in files */
    uint64_t generation;          /* of what this process writes */
    int64_t step;                 /* that training goes on from; 0: it begins */
    uint64_t position;            /* of the step's first sample */
    struct net_rounding rounding; /* of the steps so far; of none nothing is said */
};

/* Makes the folder, locks it, goes on from its newest checkpoint that is whole, and claims it. */
enum status alone_folder_open(const struct alone_folder_config *cfg, struct alone_folder *out);
void alone_folder_close(struct alone_folder *f);

#endif
