/* ps/checkpoint.h - one server's file of a checkpoint: what a capture holds, as safetensors.
 * Tensors are named by parameter and range, in elements:
 *     conv1/weights               a whole parameter, with its own shape
 *     fc1/weights [4096:8192]     a part of one that lies in several chunks, flat
 *     fc1/weights slot 0 [...]    the same of the optimizer's first slot, ... slot 1 of its second
 * (no parameter's name has a space). Metadata: format, version, step, generation, server, servers,
 * seed, sync_mode, optimizer, chunk_bytes, job (ps_manifest_digest); where the progress is known
 * position, members and addresses (of the servers); "version NAME" of each tensor whose chunk was
 * not at `step` (never in lockstep). Frames of the generation are refused once it was restored, so
 * that nothing has to be kept of what was counted.
 * Errors: as safetensors_write. */
#ifndef PS_CHECKPOINT_H
#define PS_CHECKPOINT_H
#include "ps/capture.h"
#include "ps/manifest.h"

struct ps_checkpoint_file {
    const char *folder;
    int64_t step;
    uint64_t generation;
    int server, n_servers;
    const struct net_job *job;
    const struct chunks *chunks;
    struct ps_progress progress; /* its lists are borrowed for the call */
};
enum status ps_checkpoint_write(const struct ps_checkpoint_file *cp, const struct ps_capture *from,
                                struct safetensors_written *out);

#endif
