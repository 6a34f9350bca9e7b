/* checkpoint/parts.h - a folder of one server, which other servers do not see. It contains the
 * server's parts of checkpoints, but no manifests: these are in ps 0's folder. The server lists its
 * parts, ps 0 answers which of them belong to complete checkpoints, and the server removes all
 * other parts.
 * Threads: any; only one at a time cleans or writes.
 * Errors:  ST_IO, ST_INVALID, ST_NOMEM; logged. A damaged file is logged and skipped. */
#ifndef CHECKPOINT_PARTS_H
#define CHECKPOINT_PARTS_H
#include "checkpoint/names.h"
#include "files/safetensors.h"
#include <stdbool.h>

struct checkpoint_part {
    struct checkpoint_id id;
    int server, n_servers;
    struct safetensors_written file; /* size of the file, checksum of its header */
};

/* Returns true if the server at `address` wrote the file; false: another server did, or it is not
 * known which. */
bool checkpoint_part_is_from(const struct safetensors_file *f, int server, const char *address);

/* Lists the parts that the server at `address` wrote (NULL: any server), newest first. Files of
 * older versions, which did not record the server, count for every server. A part must have the
 * size in its header, and the term, step and server of its name; its data are compared with their
 * checksums when they are read. *out is malloc'd. A missing folder has no parts. n_unread (may be
 * NULL): number of files that could not be read now. */
enum status checkpoint_parts_list(const char *folder, const char *address,
                                  struct checkpoint_part **out, int *n, int *n_unread);

/* Returns true if the newest part is of its job's last step. Then the job is done, unless the part
 * of another server is missing, which only ps 0 can detect. */
bool checkpoint_parts_have_all_steps(const char *folder);

struct checkpoint_keep {
    const struct checkpoint_id *kept; /* complete checkpoints that ps 0 keeps */
    int n_kept;
    const char *home;             /* id of ps 0's folder; NULL: not known */
    bool older_stay;              /* parts older than the last of `kept` stay, too */
    uint64_t generation;          /* current term of the ps 0 that sent this list */
    struct checkpoint_id writing; /* ps 0's current order; generation 0: none */
    /* last order, whatever its result: its unfinished file stays, because it may still be
     * written; this field does not protect its finished parts */
    struct checkpoint_id ordered;
    /* Called just before each removal; returns true if the part must be kept. May be NULL. */
    bool (*needs)(void *ctx, struct checkpoint_id id);
    void *ctx;
};
/* Removes this server's parts that `keep` does not protect, and its unfinished files. A part
 * belongs to this server if it was written at this address, or for this ps 0 at any address.
 * Files of a higher epoch stay; parts of an earlier epoch stay until `kept` has an entry. */
enum status checkpoint_parts_clean(const char *folder, const char *address,
                                   const struct checkpoint_keep *keep);

#endif
