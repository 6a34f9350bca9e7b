/* kernels/cuda/memory/arena.c - records the requests for a plan's memory, assigns offsets when the
 * arena is bound, and logs a request that exceeds the limit. */
#include "kernels/cuda/memory/arena.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void gpu_arena_init(struct gpu_arena *a, uint64_t limit, int is_set)
{
    *a = (struct gpu_arena){.limit = limit, .full = is_set ? ST_RANGE : ST_NOMEM};
}

void gpu_arena_free(struct gpu_arena *a)
{
    free(a->records);
    *a = (struct gpu_arena){.limit = 0};
}

uint64_t gpu_arena_left(const struct gpu_arena *a)
{
    return a->limit - a->bytes;
}

enum status gpu_arena_reserve(struct gpu_arena *a, const char *layer, const char *what,
                              uint64_t bytes, void *where)
{
    uint64_t left = gpu_arena_left(a);
    uint64_t rounded = bytes + (GPU_ARENA_ALIGN - bytes % GPU_ARENA_ALIGN) % GPU_ARENA_ALIGN;
    if (rounded < bytes || rounded > left) {
        char more[512] = "; use a smaller batch, or allow more memory";
        if (a->more != NULL)
            a->more(a->device, a->full == ST_RANGE, more, sizeof more);
        LOG_E("layer '%s': out of GPU memory: its %s needs %" PRIu64 " bytes, but of the %" PRIu64
              " bytes that this plan may allocate %" PRIu64 " are left%s",
              layer, what, bytes, a->limit, left, more);
        return a->full;
    }
    if (a->n_records == a->cap_records) {
        int cap = a->cap_records * 2 + 64;
        struct gpu_arena_record *more = realloc(a->records, (size_t)cap * sizeof *more);
        if (more == NULL) {
            LOG_E("CUDA backend: out of memory on the host");
            return ST_NOMEM;
        }
        a->records = more;
        a->cap_records = cap;
    }
    a->records[a->n_records++] = (struct gpu_arena_record){
        .layer = layer,
        .what = what,
        .at = a->bytes,
        .bytes = rounded,
        .asked = bytes,
        .where = where,
    };
    a->bytes += rounded;
    return ST_OK;
}

void gpu_arena_bind(const struct gpu_arena *a, void *base)
{
    for (int i = 0; i < a->n_records; i++) {
        void *at = (char *)base + a->records[i].at;
        memcpy(a->records[i].where, &at, sizeof at);
    }
}

void gpu_arena_largest(const struct gpu_arena *a, const char **layer, const char **what,
                       uint64_t *bytes)
{
    *layer = *what = "";
    *bytes = 0;
    for (int i = 0; i < a->n_records; i++)
        if (a->records[i].bytes > *bytes) {
            *layer = a->records[i].layer;
            *what = a->records[i].what;
            *bytes = a->records[i].bytes;
        }
}
