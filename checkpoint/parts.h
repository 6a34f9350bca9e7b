/* checkpoint/parts.h - a folder that a server shares with nobody who restores: its own parts of
 * checkpoints, and no manifest, which is in ps 0's folder. The server lists them, ps 0 says which
 * belong to whole checkpoints, the server removes the others.
 * Threads: any; tidying and writing one at a time.
 * Errors:  ST_IO, ST_INVALID, ST_NOMEM; logged. A file that is damaged is passed over, with a
 *          line. */
#ifndef CHECKPOINT_PARTS_H
#define CHECKPOINT_PARTS_H
#include "checkpoint/names.h"
#include "files/safetensors.h"

struct checkpoint_part {
    struct checkpoint_id id;
    int server, n_servers;
    struct safetensors_written file; /* its size, its header's checksum */
};

/* 1: the file says that it was written by the server at `address`; 0: by another, or nothing. */
int checkpoint_part_is_from(const struct safetensors_file *f, int server, const char *address);

/* The folder's files that were written by the server at `address` (NULL: by any; those of versions
 * that did not record it count as everybody's), newest first, each with the size that its header
 * says and of the term, step and server that its name says. The data are compared when they are
 * read. *out is malloc'd. A folder that is not there has none. n_unread (NULL: not wanted): files
 * that could not be read now, and may be another time. */
enum status checkpoint_parts_list(const char *folder, const char *address,
                                  struct checkpoint_part **out, int *n, int *n_unread);

/* The newest part was written at its job's last step: the job is done, as far as can be told here;
 * whether all other servers' were, too, ps 0 knew. */
int checkpoint_parts_have_all_steps(const char *folder);

struct checkpoint_keep {
    const struct checkpoint_id *kept; /* whole checkpoints that ps 0 keeps */
    int n_kept;
    const char *home;             /* id of ps 0's folder; NULL: not known */
    int older_stay;               /* what is older than the last of them stays, too */
    uint64_t generation;          /* present term of who says so */
    struct checkpoint_id writing; /* ps 0's order under way; generation 0: none */
    struct checkpoint_id ordered; /* the last, whatever came of it: it may yet be being written;
                                        what is finished of it does not stay for this */
    /* Asked just before each removal; 1: it stays, whatever is said above. NULL: nobody is. */
    int (*needs)(void *ctx, struct checkpoint_id id);
    void *ctx;
};
/* Removes this server's other parts (those that it has written, at this address or for this ps 0
 * at any), and what it never finished: those of the present epoch, and,
 * once `kept` names any, of those before. Nothing of a higher epoch. */
enum status checkpoint_parts_clean(const char *folder, const char *address,
                                   const struct checkpoint_keep *keep);

#endif
