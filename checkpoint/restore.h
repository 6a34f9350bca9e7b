/* checkpoint/restore.h - reads a checkpoint. Any range of its parameters can be read, with any
 * number of servers and any chunks in which it was written. Files in a server's own folder
 * (`folder` in the manifest) cannot be read here.
 * Owns:    the manifest, the open files, a list of their tensors.
 * Threads: find, open and close from one; the other functions from any.
 * Errors:  ST_NOT_FOUND (a folder without checkpoints), ST_CORRUPT (there are checkpoints, but no
 *          complete one); ST_IO, ST_NOMEM (also: no descriptors): the newest could not be read now,
 *          no older one replaces it, and the caller must try again. Logged, as is each checkpoint
 *          that was skipped. */
#ifndef CHECKPOINT_RESTORE_H
#define CHECKPOINT_RESTORE_H
#include "checkpoint/history.h"
#include "checkpoint/manifest.h"
#include "checkpoint/parts.h"
#include <stdbool.h>

/* Looks for a file in its server's own folder. ST_OK: it exists; ST_BUSY: not known yet, and the
 * search waits for it before it uses an older checkpoint; ST_NOT_FOUND. `why` is set with the last
 * two. */
struct checkpoint_elsewhere {
    enum status (*has)(void *ctx, const struct checkpoint_manifest *m, int file,
                       char why[MANIFEST_WHY_BYTES]);
    void *ctx;
};

struct checkpoint_restore;
/* Opens a checkpoint. `path` names a manifest, a folder (of which the newest complete checkpoint
 * is opened), or a folder's file `best` (which names the checkpoint). All data of the checkpoint
 * in this folder have been compared with their checksums. If `elsewhere` is NULL, files in other
 * folders are assumed to exist. */
enum status checkpoint_restore_find(const char *path, struct checkpoint_restore **out);
enum status checkpoint_restore_find_with(const char *path,
                                         const struct checkpoint_elsewhere *elsewhere,
                                         struct checkpoint_restore **out);

enum { RESTORE_MAX_SAMPLES = 1 << 13 }; /* most numbers in a list of samples */

struct checkpoint_restore_query {
    const char *folder;
    const char *name;            /* name of a manifest in it; NULL: the newest complete one */
    struct checkpoint_id before; /* only checkpoints older than this one; generation 0: all */
    /* history to which the checkpoint must belong; zeros: the one that the folder has recorded */
    struct checkpoint_history history;
    /* true: every byte is checked now; false: only the manifest, and each file's size and header.
     * Data are then checked when they are read, so that a server reads only its own chunks */
    bool whole;
    /* finds files in other folders; NULL: these are assumed to exist */
    const struct checkpoint_elsewhere *elsewhere;
    /* true: the caller exports the checkpoint, and log lines speak of that. ST_INVALID: this user
     * may not read a file of it */
    bool exports;
};
enum status checkpoint_restore_open(const struct checkpoint_restore_query *query,
                                    struct checkpoint_restore **out);
/* Parts of one checkpoint from some servers, without a manifest, as checkpoint_parts_list returns
 * them, with the job and the parameters of ps 0's plan. Only the chunks in these parts can be
 * read. */
struct checkpoint_restore_parts {
    const struct checkpoint_part *part;
    int n_parts; /* > 0 */
    const struct net_job *job;
    const struct chunks *chunks;
};
enum status checkpoint_restore_open_parts(const char *folder,
                                          const struct checkpoint_restore_parts *parts,
                                          struct checkpoint_restore **out);
/* Opens all parts of a checkpoint in the folder. ST_NOT_FOUND: no part; not logged. */
enum status checkpoint_restore_open_own(const char *folder, struct checkpoint_id id,
                                        const struct net_job *job, const struct chunks *chunks,
                                        struct checkpoint_restore **out);

/* Returns true if the checkpoint is of its job's last step. NULL is fine. */
bool checkpoint_restore_has_all_steps(const struct checkpoint_restore *r);
void checkpoint_restore_close(struct checkpoint_restore *r); /* NULL is fine */
/* Returns the manifest. If the checkpoint was opened from parts, its files are only these parts. */
const struct checkpoint_manifest *checkpoint_restore_manifest(const struct checkpoint_restore *r);
/* Records whether the checkpoint's manifest is in this folder, the job's own; NULL: the job has
 * none. It reads the file system, which may hang; is_home does not. */
void checkpoint_restore_note_home(struct checkpoint_restore *r, const char *folder);
/* Returns true if note_home found the manifest in the job's own folder. */
bool checkpoint_restore_is_home(const struct checkpoint_restore *r);
/* Returns true if the file is in this folder. */
bool checkpoint_restore_has_file(const struct checkpoint_restore *r, int file);
/* Returns true if the n elements from `first` on, and their slots, can be read from the open
 * files. */
bool checkpoint_restore_holds(const struct checkpoint_restore *r, int64_t first, int64_t n);
/* Reads `n` elements of the flat block of all parameters, beginning with `first` (at most as many
 * as one chunk has): their values, their slots (NULL: none) one after the other, and the lowest
 * version of any of them. Each tensor is compared with its checksum. ST_CORRUPT: this checkpoint
 * cannot be used. */
enum status checkpoint_restore_read(const struct checkpoint_restore *r, int64_t first, int64_t n,
                                    float *value, float *slots, int64_t *version);
/* Reads `n` elements of one parameter: their averages (optim_config.ema_decay), or their values, if
 * the job or the parameter has no average. */
enum status checkpoint_restore_read_average(const struct checkpoint_restore *r, int64_t first,
                                            int64_t n, float *out);
/* Writes one number for each parameter of a chunk of `chunks`: in how many updates up to `version`
 * the parameter had no gradient, and so did not change. The checkpoint may have been written with
 * other chunks, so elements of one parameter may have different numbers: then the lowest one
 * counts. */
void checkpoint_restore_idle(const struct checkpoint_restore *r, const struct chunks *chunks,
                             int chunk, int64_t version, uint64_t *idle);
/* Reads the list of numbers from which servers continue to assign samples (ps/store/samples.h); it
 * is stored with the model's first chunk. *list is malloc'd; *n 0: the checkpoint has no list.
 * ST_CORRUPT: the stored text is not such a list. */
enum status checkpoint_restore_samples(const struct checkpoint_restore *r, uint64_t **list,
                                       size_t *n);

#endif
