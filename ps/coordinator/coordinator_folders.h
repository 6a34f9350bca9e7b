/* ps/coordinator/coordinator_folders.h - the servers' reports of their checkpoint folders. A folder
 * whose id differs from that of ps 0's folder belongs to its server alone, and ps 0 learns of the
 * parts in it only by that server's reports. Private to the shell.
 * Threads: none; these are values, and copies may be used anywhere.
 * Errors:  ST_NOMEM. */
#ifndef PS_COORDINATOR_COORDINATOR_FOLDERS_H
#define PS_COORDINATOR_COORDINATOR_FOLDERS_H
#include "checkpoint/restore.h"
#include "net/wire/plan.h"
#include <stdbool.h>

struct coordinator_folder {
    char address[CONTROL_TEXT_BYTES];
    char id[CONTROL_FOLDER_BYTES];
    int called; /* the server has called this process of ps 0 */
    int is_own, knows_parts, n_parts;
    struct net_part *parts;
};

struct coordinator_folders {
    int n;
    struct coordinator_folder *list;
    uint64_t version; /* changes with every change of the list */
    /* why the file that was checked last does not exist, or why that is not known yet */
    char why[MANIFEST_WHY_BYTES];
};

void coordinator_folders_free(struct coordinator_folders *f);
bool coordinator_folders_any_own(const struct coordinator_folders *f);
/* Returns the server's folder; NULL: no report of it has arrived. */
const struct coordinator_folder *coordinator_folders_at(const struct coordinator_folders *f,
                                                        const char *address);
/* Checks whether a server has a file in its own folder; a function for struct
 * checkpoint_elsewhere. ctx is a struct coordinator_folders with the folders of the servers that
 * may be asked. */
enum status coordinator_folders_has(void *ctx, const struct checkpoint_manifest *m, int file,
                                    char why[MANIFEST_WHY_BYTES]);
/* Assigns each chunk of a plan that resumes from a checkpoint to a server that can read it.
 * is_named: --restore names the checkpoint. ST_NOT_FOUND, logged: no server can read a chunk. */
enum status coordinator_folders_restrict(const struct coordinator_folders *f, struct net_plan *p,
                                         const struct checkpoint_restore *from, int is_named);

#endif
