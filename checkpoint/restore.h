/* checkpoint/restore.h - reads a checkpoint. Any range of its parameters can be read, with any
 * number of servers and any chunks in which it was written. Files in a server's own folder
 * (`folder` in the manifest) cannot be read here. Owns:    the manifest, the open files, a table of
 * their tensors. Threads: find, open and close from one; the rest from any. Errors:  ST_NOT_FOUND
 * (a folder without checkpoints), ST_CORRUPT (there are, none is whole); ST_IO, ST_NOMEM (also: no
 * descriptors): the newest could not be read now, and nothing older was taken for that: to be tried
 * again. Logged, as is each checkpoint that was passed over. */
#ifndef CHECKPOINT_RESTORE_H
#define CHECKPOINT_RESTORE_H
#include "checkpoint/manifest.h"
#include "checkpoint/parts.h"

/* A file that is in its server's own folder: ST_OK: it is there; ST_BUSY: that is not known yet,
 * and is waited for before an older checkpoint is taken; ST_NOT_FOUND. `why` goes with both. */
struct checkpoint_elsewhere {
    enum status (*has)(void *ctx, const struct checkpoint_manifest *m, int file,
                       char why[MANIFEST_WHY_BYTES]);
    void *ctx;
};

struct checkpoint_restore;
/* path: a manifest; a folder: the newest checkpoint in it that is whole; or a folder's `best`: the
 * one that it names. Every byte of it that
 * is here was compared with its checksum. elsewhere: NULL: nobody is asked. */
enum status checkpoint_restore_find(const char *path, struct checkpoint_restore **out);
enum status checkpoint_restore_find_with(const char *path,
                                         const struct checkpoint_elsewhere *elsewhere,
                                         struct checkpoint_restore **out);

enum { RESTORE_MAX_SAMPLES = 1 << 13 }; /* numbers in a list of samples */

struct checkpoint_restore_query {
    const char *folder;
    const char *name;            /* of a manifest in it; NULL: the newest that is whole */
    struct checkpoint_id before; /* of those older than this one; generation 0: of all */
    int whole; /* 1: every byte is compared now. 0: the manifest, and each file's size and header;
                  data when they are read, so that a server reads its own chunks alone */
    const struct checkpoint_elsewhere *elsewhere; /* NULL: nobody is asked */
};
enum status checkpoint_restore_open(const struct checkpoint_restore_query *query,
                                    struct checkpoint_restore **out);
/* Some servers' parts of one checkpoint, without a manifest, as checkpoint_parts_list gave them; of
 * the job and the parameters that ps 0's plan names. Has the chunks that lie in them. */
struct checkpoint_restore_parts {
    const struct checkpoint_part *part;
    int n_parts; /* > 0 */
    const struct net_job *job;
    const struct chunks *chunks;
};
enum status checkpoint_restore_open_parts(const char *folder,
                                          const struct checkpoint_restore_parts *parts,
                                          struct checkpoint_restore **out);
/* All of a checkpoint's that lie in the folder. ST_NOT_FOUND: none does; not logged. */
enum status checkpoint_restore_open_own(const char *folder, struct checkpoint_id id,
                                        const struct net_job *job, const struct chunks *chunks,
                                        struct checkpoint_restore **out);

int checkpoint_restore_has_all_steps(
    const struct checkpoint_restore *r);                     /* of its job; NULL is fine */
void checkpoint_restore_close(struct checkpoint_restore *r); /* NULL is fine */
/* Of parts: its files are those alone. */
const struct checkpoint_manifest *checkpoint_restore_manifest(const struct checkpoint_restore *r);
int checkpoint_restore_has_file(const struct checkpoint_restore *r, int file); /* it is here */
/* Returns 1 if those elements and their slots can be read here. */
int checkpoint_restore_holds(const struct checkpoint_restore *r, int64_t first, int64_t n);
/* Reads `n` elements of the flat block of all parameters, beginning with `first` (at most those of
 * one chunk): their values, their slots (NULL: none) one after the other, and the lowest version of
 * any of them. Each tensor is compared with its checksum. ST_CORRUPT: this checkpoint cannot be
 * used. */
enum status checkpoint_restore_read(const struct checkpoint_restore *r, int64_t first, int64_t n,
                                    float *value, float *slots, int64_t *version);
/* Reads the samples that were stored with the model's first chunk (ps/store/samples.h), malloc'd;
 * *n 0: the checkpoint has none. ST_CORRUPT: they are no list of numbers. */
enum status checkpoint_restore_samples(const struct checkpoint_restore *r, uint64_t **list,
                                       size_t *n);

#endif
