/* checkpoint/folder.h - ownership of a folder of checkpoints, and its owner's work in it.
 *
 * The owner is the ps 0 that recorded the highest epoch. A claim creates the file
 *     lease-E     {"epoch":E,"incarnation":"16 hex digits","address":"host:port",
 *                  "host":"name of the machine"}
 * Only one process can create it, so no epoch is used twice. A claim does not check whether the
 * previous owner is alive (owner.h does that before): the claim fences it. The fenced owner notices
 * this at its next check of the lease, which it makes before each manifest and each removal, and
 * every few seconds until its first worker joins. Then it ends, and removes nothing. Its actions
 * between a check and its end do no harm:
 *   - names contain the term (names.h), so it replaces no file of the new owner;
 *   - it only removes files that it listed before the check, so none that is newer than the claim;
 *   - it removes a manifest in two steps with a check between them: it renames the manifest to
 *     old-..., then removes it. It removes the manifest's files only if this process removed the
 *     manifest. A claim first renames all such manifests back.
 * Readers accept both names.
 *
 * The file folder-id contains a random number, which shows whether two servers use the same folder.
 *
 * Threads: any, but only one at a time claims, writes manifests and sweeps. All calls wait for the
 *          disk, for ever if it hangs: no other thread should wait for the calling thread.
 * Errors:  ST_REFUSED (fenced), ST_BUSY (another process claimed at the same moment), ST_RANGE (no
 *          epochs left), ST_IO, ST_INVALID, ST_NOMEM; logged, except by
 *          checkpoint_folder_check_files. */
#ifndef CHECKPOINT_FOLDER_H
#define CHECKPOINT_FOLDER_H
#include "checkpoint/manifest.h"
#include <stdbool.h>
#include <time.h>

enum { LEASE_ADDRESS_BYTES = 256, LEASE_HOST_BYTES = 65 };

struct checkpoint_lease {
    uint64_t epoch; /* 0: no lease */
    uint64_t incarnation;
    char address[LEASE_ADDRESS_BYTES]; /* address of ps 0; empty: the lease cannot be read */
    char host[LEASE_HOST_BYTES]; /* name of ps 0's machine; empty: an older Weir wrote the lease */
};

/* Creates the folder, durably, if it does not exist. ST_INVALID, ST_IO, or the status of the
 * errno. */
enum status checkpoint_folder_make(const char *path);
/* Writes the name of this machine for a lease. */
void checkpoint_folder_host(char host[LEASE_HOST_BYTES]);
/* Makes the caller the owner, with an epoch higher than any recorded or used here and than `above`
 * (the highest epoch that servers and workers report; 0: none), durably. It logs which owner it
 * fences.
 * looked_at: the lease whose owner the caller has checked (owner.h); a later lease of another
 * process means that both programs were started at once, and this claim records nothing: ST_BUSY.
 * NULL: the claim fences any owner. */
enum status checkpoint_folder_claim(const char *folder, uint64_t incarnation, const char *address,
                                    uint64_t above, const struct checkpoint_lease *looked_at,
                                    struct checkpoint_lease *out);
/* Reads the current owner's lease; epoch 0: the folder was never claimed, or does not exist. */
enum status checkpoint_folder_lease(const char *folder, struct checkpoint_lease *out);
/* Returns true if the owner, the ps 0 of the last claim, shut down in order. *since: the time of
 * that claim; NULL: the caller needs none. */
bool checkpoint_folder_owner_ended(const char *folder, const struct checkpoint_lease *owner,
                                   struct timespec *since);
/* Checks that no other process has claimed the folder after this one. ST_REFUSED: another process
 * has claimed it, and the caller must end. If the folder was emptied, the lease is recorded
 * again. */
enum status checkpoint_folder_still_owner(const char *folder, const struct checkpoint_lease *mine);

/* Lists checkpoints like checkpoint_retention_list, if the folder has this id. */
enum status checkpoint_retention_list_of(const char *folder, const char *id,
                                         struct checkpoint_manifest_place **out, int *n);

/* Advice for a file of another server that this user may not read. A retry does not help. */
#define FOLDER_USERS                                                                               \
    "start all servers that share the folder as one user, or with a common group and umask 027"

/* Reads the id of the folder: 32 hex digits and a 0. The first call in a folder creates it.
 * ST_INVALID: this user may not read it, or it is damaged; ST_IO, ST_FULL: a retry may succeed.
 * Logged. */
enum status checkpoint_folder_id(const char *folder, char id[FOLDER_ID_BYTES]);
/* Checks that the folder has this id; never creates an id. ST_NOT_FOUND (logged): the folder was
 * lost or emptied, or is not mounted. A checkpoint that is missing there may still exist. */
enum status checkpoint_folder_is(const char *folder, const char *id);

struct checkpoint_folder_check {
    const unsigned char *here; /* [n_files] true: this file is in this folder; NULL: all are */
    int64_t deadline_ns;       /* time limit for files that are missing or short, since a client's
                                  view of a network folder may be late */
    /* Waits until `until_ns`, or for a shorter time. Returns true to cancel the check. wait
     * NULL: each file is checked one time. */
    bool (*wait)(void *ctx, int64_t until_ns);
    void *ctx;
};
/* Checks, before the manifest is written, that each file exists with its size and a header with its
 * checksum, and belongs to this generation, step and server. Not logged; `why` names the first bad
 * file.
 * ST_NOT_FOUND, ST_CORRUPT, ST_IO, ST_NOMEM, ST_CANCELLED. */
enum status checkpoint_folder_check_files(const char *folder, const struct checkpoint_manifest *m,
                                          const struct checkpoint_folder_check *how,
                                          char why[MANIFEST_WHY_BYTES]);

struct checkpoint_sweep {
    const struct checkpoint_lease *owner; /* lease of the caller; NULL: no lease is checked */
    int keep;                             /* number of newest readable checkpoints to keep, besides
                                             those that cannot be read now; 0: all */
    /* further checkpoints to keep; generation 0: none. `writing` is being written now, the
     * current plan resumes from `base`, and the next plan will resume from `found` */
    struct checkpoint_id writing, base, found;
    struct checkpoint_id best;     /* best checkpoint of the folder (best.h); set by the sweep */
    struct checkpoint_id given_up; /* cancelled checkpoint, whose files may still be finished */
};
/* Removes the oldest manifests beyond `keep` and then their files; also removes files that no
 * manifest names, and unfinished files. Writes the file `checkpoint`. Does not change files of a
 * higher epoch. ps 0 calls this function before each checkpoint, to free space, and after each
 * checkpoint, even if it failed. */
enum status checkpoint_retention_sweep(const char *folder, const struct checkpoint_sweep *what);

#endif
