/* kernels/cuda/memory/bind_separate.c - replaces bind.c for debugging: each record has its own
 * allocation, see bind.h. */
#include "base/log.h"
#include "kernels/cuda/memory/arena.h"
#include "kernels/cuda/memory/bind.h"
#include "kernels/cuda/memory/memory.h"
#include <inttypes.h>
#include <string.h>

enum status gpu_bind_arena(int device, struct gpu_arena *a)
{
    enum status st = ST_OK;
    for (int i = 0; i < a->n_records; i++) {
        struct gpu_arena_record *r = &a->records[i];
        if (r->asked > 0)
            TRY(gpu_memory_alloc(device, r->asked, &r->own));
        memcpy(r->where, &r->own, sizeof r->own);
        LOG_D("layer '%s': its %s: %" PRIu64 " bytes at %p", r->layer, r->what, r->asked, r->own);
    }
done:
    if (st != ST_OK)
        gpu_bind_undo(device, a);
    return st;
}

void gpu_bind_undo(int device, struct gpu_arena *a)
{
    for (int i = 0; i < a->n_records; i++) {
        gpu_memory_free(device, a->records[i].own, a->records[i].asked);
        a->records[i].own = NULL;
    }
}
