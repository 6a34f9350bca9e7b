/* ps/checkpoint/snapshot_file.h - writes a server's file of a checkpoint from a snapshot.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  ST_NOMEM (logged), and those of checkpoint_shard_file_write. */
#ifndef PS_CHECKPOINT_SNAPSHOT_FILE_H
#define PS_CHECKPOINT_SNAPSHOT_FILE_H
#include "checkpoint/shard_file.h"
#include "ps/store/snapshot.h"

/* Writes the dense chunks, and then copies and writes the buckets one after the other; the hold of
 * each ends when it was copied. */
enum status snapshot_file_write(const struct checkpoint_shard_file *cp, struct snapshot *from,
                                struct safetensors_written *out);

#endif
