/* checkpoint/folder.h - who owns a folder of checkpoints, and what its owner does there.
 *
 * The owner is ps 0: the one that recorded the highest epoch. A claim creates the file
 *     lease-E     {"epoch":E,"incarnation":"16 hex digits","address":"host:port",
 *                  "host":"name of the machine"}
 * which exists once or not at all, so no epoch is given twice. It does not ask whether the owner
 * before is alive (owner.h does, before a claim): that one is fenced. It finds out at its next
 * look, which it takes before each manifest and each removal, and every few seconds until its first
 * worker comes. It ends, and removes nothing. What it
 * does between a look and its end harms nothing:
 *   - names have the term in them (names.h): nothing of the new owner is replaced;
 *   - it only touches what it listed before the look, so nothing that was made after the claim;
 *   - a manifest is removed in two steps with a look between: renamed to old-..., then removed, and
 *     its files only if it was this process that removed it. A claim renames all back first.
 * Readers know both names.
 *
 * folder-id: a random number, to see whether two servers have the same folder.
 *
 * Threads: any, but one at a time claims, writes manifests and sweeps. All of it waits for the disk
 *          (a hung one: for ever): call from a thread that nothing else waits for.
 * Errors:  ST_REFUSED (fenced), ST_BUSY (somebody else claimed at the same moment), ST_RANGE (no
 *          epochs left), ST_IO, ST_INVALID, ST_NOMEM; logged, but for
 * checkpoint_folder_check_files. */
#ifndef CHECKPOINT_FOLDER_H
#define CHECKPOINT_FOLDER_H
#include "checkpoint/manifest.h"

enum { LEASE_ADDRESS_BYTES = 256, LEASE_HOST_BYTES = 65 };

struct checkpoint_lease {
    uint64_t epoch; /* 0: there is none */
    uint64_t incarnation;
    char address[LEASE_ADDRESS_BYTES]; /* of ps 0; empty: the lease cannot be read */
    char host[LEASE_HOST_BYTES]; /* name of its machine; empty: an older Weir wrote the lease */
};

/* Creates the folder, durably, if it does not exist. ST_INVALID, ST_IO, or as errno says. */
enum status checkpoint_folder_make(const char *path);
/* Writes the name of this machine, as leases have it. */
void checkpoint_folder_host(char host[LEASE_HOST_BYTES]);
/* Makes the caller the owner, with an epoch higher than any recorded or used here and than `above`
 * (the highest that servers and workers name; 0: none does), durably. A line tells who is fenced.
 * looked_at: the lease whose owner the caller has checked (owner.h); a later lease of another
 * process means that both programs were started at once, and this claim records nothing: ST_BUSY.
 * NULL: the claim fences any owner. */
enum status checkpoint_folder_claim(const char *folder, uint64_t incarnation, const char *address,
                                    uint64_t above, const struct checkpoint_lease *looked_at,
                                    struct checkpoint_lease *out);
/* The present owner's; epoch 0: nobody ever claimed the folder, or it is not there. */
enum status checkpoint_folder_lease(const char *folder, struct checkpoint_lease *out);
/* ST_OK: nobody claimed the folder since. ST_REFUSED: somebody did; the caller ends. Where the
 * folder was emptied, the lease is recorded again. */
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
/* ST_NOT_FOUND (logged): it was lost, emptied or is not mounted: what is seen there says nothing of
 * what was kept. Makes no id. */
enum status checkpoint_folder_is(const char *folder, const char *id);

struct checkpoint_folder_check {
    const unsigned char *here; /* [n_files] 1: this file is in this folder; NULL: all are */
    int64_t deadline_ns;       /* for files that are missing or short: another client's view of a
                                  network folder is late */
    /* Waits until then, or less; 1: give up. NULL: nothing is tried again. */
    int (*wait)(void *ctx, int64_t until_ns);
    void *ctx;
};
/* Before the manifest is written: each file is there, has its size, a header with its checksum, and
 * is of this generation, step and server. Not logged; `why` names the first file that is not.
 * ST_NOT_FOUND, ST_CORRUPT, ST_IO, ST_NOMEM, ST_CANCELLED. */
enum status checkpoint_folder_check_files(const char *folder, const struct checkpoint_manifest *m,
                                          const struct checkpoint_folder_check *how,
                                          char why[MANIFEST_WHY_BYTES]);

struct checkpoint_sweep {
    const struct checkpoint_lease *owner; /* NULL: the folder has no lease, nobody is asked */
    int keep;                             /* the newest that can be read, and what could not be
                                             read now; 0: all */
    /* These are kept besides; generation 0: none. base, found: that the plan in force resumes from,
     * that the next one will. */
    struct checkpoint_id writing, base, found;
    struct checkpoint_id best;     /* set by the sweep, from the folder (best.h) */
    struct checkpoint_id given_up; /* of this one, files that may yet be finished */
};
/* Removes manifests that are more than `keep`, then their files; files that no manifest names; what
 * was never finished. Writes `checkpoint`. Nothing of a higher epoch is touched. Before a
 * checkpoint is written (it makes room) and after it, whether it was made or not. */
enum status checkpoint_retention_sweep(const char *folder, const struct checkpoint_sweep *what);

#endif
