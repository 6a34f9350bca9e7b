/* checkpoint/shard_file.h - one server's file of a checkpoint: the contents of a snapshot, as
 * safetensors. A tensor's name consists of its parameter and its range of elements (no parameter's
 * name has a space):
 *
 *   - `conv1/weights`: a whole parameter, with its own shape;
 *   - `fc1/weights [4096:8192]`: a part of a parameter that has several chunks, flat;
 *   - `fc1/weights slot 0 [...]`: the same range of the optimizer's first slot, `slot 1` of its
 *     second.
 *
 * The tensors of buckets follow them (tables_file.h).
 *
 * The metadata are: format, version, step, generation, server, servers, seed, sync_mode, optimizer,
 * chunk_bytes, train_steps, job (checkpoint_manifest_digest). If the id of ps 0's folder is known:
 * folder. If the progress is known: position, members, addresses (of the servers). Except in
 * lockstep: "version NAME" for each tensor whose chunk was not at `step` and, with the model's
 * first chunk, "samples", the numbers of ps/store/samples.h with spaces between them. "idle NAME"
 * is the number of updates in which the parameter of this tensor did not change, because no member
 * had a gradient for it (ps/store/version.h), if that number is not 0. After a restore, servers
 * refuse frames of this generation, so the file need not record which contributions counted.
 * Errors:  see safetensors_write. */
#ifndef CHECKPOINT_SHARD_FILE_H
#define CHECKPOINT_SHARD_FILE_H
#include "checkpoint/manifest.h"
#include <stdbool.h>

struct checkpoint_tables;
/* A version of a chunk, with the slots that belong to it. */
struct checkpoint_shard_chunk {
    int chunk;
    int64_t version;
    const float *value;
    const float *slots;      /* slots, one after the other; NULL: none */
    const uint64_t *samples; /* first chunk of the model: list of checkpoint_restore_samples
                                (restore.h); otherwise NULL */
    size_t n_samples;
    /* number of idle updates of each parameter of the chunk; NULL: all are 0 */
    const uint64_t *idle;
};

struct checkpoint_shard_file {
    const char *folder;
    int64_t step;
    uint64_t generation;
    int server, n_servers;
    const struct net_job *job;
    const struct chunks *chunks;
    struct checkpoint_progress progress; /* progress, whose lists are borrowed for the call */
    char home[FOLDER_ID_BYTES]; /* id of ps 0's folder, which has the manifest; empty: not known */
    const struct checkpoint_tables *tables; /* the server's buckets; NULL: none */
};
/* Opens a file that a manifest or a list of parts names, and checks its size and header against
 * `is`. whole: all of its data are compared with their checksums. A file that cannot be read is
 * opened again, CHECKPOINT_TRIES times in all. Errors: see safetensors_open. */
enum status checkpoint_shard_file_open(const char *path, const struct safetensors_written *is,
                                       bool whole, struct safetensors_file **out,
                                       char why[SAFETENSORS_WHY_BYTES]);
/* Writes the server's chunks, in ascending order. */
enum status checkpoint_shard_file_write(const struct checkpoint_shard_file *cp,
                                        const struct checkpoint_shard_chunk *list, int n,
                                        struct safetensors_written *out);

#endif
