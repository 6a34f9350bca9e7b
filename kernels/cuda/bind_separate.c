/* kernels/cuda/bind_separate.c - in place of bind.c where errors are looked for; see the header. */
#include "base/log.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/bind.h"
#include "kernels/cuda/memory.h"
#include <inttypes.h>
#include <string.h>

enum status cuda_bind(int device, struct cuda_arena *a)
{
    enum status st = ST_OK;
    for (int i = 0; i < a->n_records; i++) {
        struct cuda_arena_record *r = &a->records[i];
        if (r->asked > 0)
            TRY(cuda_memory_take(device, r->asked, &r->own));
        memcpy(r->where, &r->own, sizeof r->own);
        LOG_D("layer '%s': its %s: %" PRIu64 " bytes at %p", r->layer, r->what, r->asked, r->own);
    }
done:
    if (st != ST_OK)
        cuda_unbind(device, a);
    return st;
}

void cuda_unbind(int device, struct cuda_arena *a)
{
    for (int i = 0; i < a->n_records; i++) {
        cuda_memory_give(device, a->records[i].own, a->records[i].asked);
        a->records[i].own = NULL;
    }
}
