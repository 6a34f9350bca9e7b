/* ps/checkpoint/snapshot_file.h - a server's file of a checkpoint, from what a snapshot holds.
 * Owns: nothing. Threads: any. Errors: ST_NOMEM (logged), and as checkpoint_shard_file_write. */
#ifndef PS_CHECKPOINT_SNAPSHOT_FILE_H
#define PS_CHECKPOINT_SNAPSHOT_FILE_H
#include "checkpoint/shard_file.h"
#include "ps/store/snapshot.h"

enum status snapshot_file_write(const struct checkpoint_shard_file *cp, const struct snapshot *from,
                                struct safetensors_written *out);

#endif
