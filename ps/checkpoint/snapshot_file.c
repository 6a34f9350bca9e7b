/* ps/checkpoint/snapshot_file.c - see snapshot_file.h. */
#include "ps/checkpoint/snapshot_file.h"
#include "base/log.h"
#include "checkpoint/restore.h"
#include "ps/store/samples.h"
#include <inttypes.h>
#include <stdlib.h>

_Static_assert((int)SAMPLES_MAX_LIST == (int)RESTORE_MAX_SAMPLES, "what is written is read again");

enum status snapshot_file_write(const struct checkpoint_shard_file *cp, const struct snapshot *from,
                                struct safetensors_written *out)
{
    int n;
    const struct snapshot_chunk *held = snapshot_chunks(from, &n);
    struct checkpoint_shard_chunk *list = calloc((size_t)n + 1, sizeof *list);
    if (!list) {
        LOG_E("checkpoint at step %" PRId64 ": out of memory for a list of %d chunks", cp->step, n);
        return ST_NOMEM;
    }
    for (int i = 0; i < n; i++)
        list[i] = (struct checkpoint_shard_chunk){
            .chunk = held[i].chunk,
            .version = held[i].version,
            .value = held[i].value->data,
            .slots = held[i].slots ? held[i].slots->data : NULL,
            .samples = held[i].samples,
            .n_samples = held[i].n_samples,
            .idle = held[i].idle ? held[i].idle->data : NULL,
        };
    enum status st = checkpoint_shard_file_write(cp, list, n, out);
    free(list);
    return st;
}
