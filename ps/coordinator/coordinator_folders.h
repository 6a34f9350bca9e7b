/* ps/coordinator/coordinator_folders.h - what servers have said of their folders of checkpoints: a
 * folder with another id than ps 0's is its server's own, and ps 0 knows of the parts in it what
 * that server says. Private to the shell.
 * Threads: values; copies may be used anywhere. Errors: ST_NOMEM. */
#ifndef PS_COORDINATOR_COORDINATOR_FOLDERS_H
#define PS_COORDINATOR_COORDINATOR_FOLDERS_H
#include "checkpoint/restore.h"
#include "net/wire/plan.h"

struct coordinator_folder {
    char address[CONTROL_TEXT_BYTES];
    char id[CONTROL_FOLDER_BYTES];
    int called; /* in this life of ps 0 */
    int is_own, knows_parts, n_parts;
    struct net_part *parts;
};

struct coordinator_folders {
    int n;
    struct coordinator_folder *list;
    uint64_t version;             /* another one whenever something is */
    char why[MANIFEST_WHY_BYTES]; /* of the last file that was not there, or not yet */
};

void coordinator_folders_free(struct coordinator_folders *f);
int coordinator_folders_any_own(const struct coordinator_folders *f);
/* NULL: nothing is known of it. */
const struct coordinator_folder *coordinator_folders_at(const struct coordinator_folders *f,
                                                        const char *address);
/* As checkpoint_elsewhere's; ctx: struct coordinator_folders, of the servers that may be asked. */
enum status coordinator_folders_has(void *ctx, const struct checkpoint_manifest *m, int file,
                                    char why[MANIFEST_WHY_BYTES]);
/* Gives each chunk of a plan that resumes from a checkpoint to a server that can read it. is_named:
 * it is what --restore names. ST_NOT_FOUND: nobody can; logged. */
enum status coordinator_folders_restrict(const struct coordinator_folders *f, struct net_plan *p,
                                         const struct checkpoint_restore *from, int is_named);

#endif
