/* worker/checkpoint/alone_folder.h - the folder of checkpoints of a worker without servers. Files,
 * claims and epochs are the same as those of servers (checkpoint/folder.h), so a job that began
 * without servers can continue with servers, and the reverse. After the claim, the previous owner
 * may not write there any more. In addition the process locks the file `worker-lock`, so that a
 * second worker without servers, or a ps 0, is refused while this process lives (if the file system
 * supports locks; checkpoint/owner.h).
 * Owns:    the lock.
 * Threads: one at a time.
 * Errors:  logged: ST_INVALID (no folder), ST_REFUSED (another process uses the folder),
 *          ST_MISMATCH (a checkpoint of another job), ST_NOT_FOUND (nothing at the path of
 *          --restore), ST_CORRUPT, ST_IO, ST_NOMEM. */
#ifndef WORKER_CHECKPOINT_ALONE_FOLDER_H
#define WORKER_CHECKPOINT_ALONE_FOLDER_H
#include "checkpoint/folder.h"
#include "member/updates.h"
#include <stdbool.h>

enum { ALONE_NAME_BYTES = 128 };

struct alone_folder_config {
    const char *path;
    /* a manifest or folder from which to restore, instead of this folder's checkpoints; NULL:
     * none */
    const char *restore;
    /* claim the folder even if its owner may be alive; false: refuse to start then */
    bool take_over;
    const char *host;
    const struct net_job *job;
    /* epochs from which the number of steps was computed; 0: the operator set the steps */
    double epochs;
    const struct chunks *chunks;
    const char *trained_on; /* JSON text on data and model, see struct net_join */
    /* local updates (updates.h), which continue from the checkpoint that is found */
    struct updates *updates;
};

struct alone_folder {
    const char *path; /* borrowed */
    int lock_fd;      /* -1: none */
    struct checkpoint_lease lease;
    char id[FOLDER_ID_BYTES];          /* id of the folder; empty: it could not be created */
    char name[ALONE_NAME_BYTES];       /* name of this process in the lease and in files */
    uint64_t generation;               /* generation of the files that this process writes */
    struct checkpoint_lineage lineage; /* restores before these files */
    int64_t step;                      /* step from which training continues; 0: training begins */
    uint64_t position;                 /* position of the step's first sample */
    /* rounding of the steps before `step`; empty: there are no such steps */
    struct net_rounding rounding;
};

/* Creates the folder, locks it, loads its newest complete checkpoint, and claims it. */
enum status alone_folder_open(const struct alone_folder_config *cfg, struct alone_folder *out);
void alone_folder_close(struct alone_folder *f);

#endif
