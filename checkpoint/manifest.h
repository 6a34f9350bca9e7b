/* checkpoint/manifest.h - the manifest of a checkpoint: one step of one job, with all servers'
 * files.
 *
 * A checkpoint of N servers consists of N files (shard_file.h) and a manifest; names.h defines
 * their names. Servers share a folder, or each writes its file to its own folder; the manifest is
 * in ps 0's folder. The manifest is written last, and without it the files are not a checkpoint. It
 * is one line of JSON that ends in ,"crc32c":"XXXXXXXX"}: the CRC-32C of the text before. The file
 * `checkpoint` is TensorFlow's text file, which names the newest checkpoint, and all that are kept.
 *
 * Owns:    a manifest that was read owns its lists and its list of parameters (chunks).
 * Threads: values; only one thread at a time writes in a folder.
 * Errors:  writing: ST_IO, ST_NOMEM, logged. Reading: ST_NOT_FOUND; ST_CORRUPT: the
 *          contents are not valid; ST_IO, ST_NOMEM (also: no descriptors): it could not be read
 *          now, and may be good. Not logged; `why` receives a sentence. */
#ifndef CHECKPOINT_MANIFEST_H
#define CHECKPOINT_MANIFEST_H
#include "base/hosts.h"
#include "checkpoint/lineage.h"
#include "checkpoint/names.h"
#include "files/safetensors.h"
#include "net/wire/plan.h"
#include <stdbool.h>

enum {
    MANIFEST_WHY_BYTES = SAFETENSORS_WHY_BYTES + 128,
    FOLDER_ID_BYTES = 33, /* 32 hex digits and a 0 (folder.h) */
    CHECKPOINT_TRIES = 3, /* attempts to read a file, without a pause; each opens it again, which
                             yields a new handle on a network folder */
};

/* Version of the parent job on which the values of a region are based, with its CRC-32C, and the
 * region's step at which the optimizer's slots were zero. */
struct checkpoint_parent_version {
    bool known;
    int64_t version;
    uint32_t crc32c;
    int64_t slots_since;
};

/* Progress of training at the step, and the programs that the job had at that step. */
struct checkpoint_progress {
    bool known;             /* false: the checkpoint has no progress (older version), and no field
                               below is set */
    uint64_t position;      /* number of samples that were read until the step, in all passes */
    int n_members, *member; /* number of members; their indices, ascending */
    struct hosts servers;   /* addresses; a server's number is its position */
    int n_contributed;      /* number of members that contributed (net/wire/plan.h) */
    struct net_contribution *contributed;
    struct checkpoint_parent_version parent;
};

struct checkpoint_manifest {
    int64_t step;
    uint64_t generation;
    struct net_job job;
    /* parameters of the job, cut into the chunks of the generation that wrote the checkpoint */
    struct chunks *chunks;
    int n_files; /* number of servers */
    struct safetensors_written *files;
    /* [n_files] id of the server's own folder in which the file is; empty: it is in the
     * manifest's folder. NULL: all files are in the manifest's folder */
    char (*folder)[FOLDER_ID_BYTES];
    int *shard; /* [chunks->n_chunks] file that has the chunk; NULL: not recorded */
    /* text of the member that joined last (net_join.trained_on); NULL: not known */
    char *trained_on;
    struct checkpoint_progress progress;
    struct checkpoint_lineage lineage; /* restores before this checkpoint */
    uint32_t crc32c;                   /* checksum at the end of the manifest that was read */
};

/* Writes the digest of the job's parameters, optimizer, seed and mode: 64 hex digits and a 0. */
enum status checkpoint_manifest_digest(const struct net_job *job, const struct chunks *chunks,
                                       char hex[65]);

enum status checkpoint_manifest_write(const char *folder, const struct checkpoint_manifest *m);
enum status checkpoint_manifest_read(const char *path, struct checkpoint_manifest **out,
                                     char why[MANIFEST_WHY_BYTES]);
/* Returns the number of samples that were read up to the checkpoint. */
uint64_t checkpoint_manifest_position(const struct checkpoint_manifest *m);
void checkpoint_manifest_free(struct checkpoint_manifest *m); /* NULL is fine */

/* Entry for one of a folder's manifests. */
struct checkpoint_manifest_place {
    struct checkpoint_id id; /* id in the manifest, or in its name if it cannot be read */
    bool old;                /* the manifest is about to be removed */
    int n_files;
    bool readable; /* false: `why` names the fault */
    bool unread;   /* the manifest could not be read now, but may be good */
    char why[MANIFEST_WHY_BYTES];
};
/* Lists all manifests of the folder, newest first; unreadable ones are ordered by name. *out is
 * malloc'd. A missing folder has none. ST_INVALID, ST_IO, ST_NOMEM; logged. */
enum status checkpoint_retention_list(const char *folder, struct checkpoint_manifest_place **out,
                                      int *n);

#endif
