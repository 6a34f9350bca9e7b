/* kernels/cuda/resident/updates.c - implements kernels/device_updates.h for CUDA.
 *
 * DESIGN. The update runs on `compute`, after the backward of all layers (at its end `compute` has
 * waited for all branches, see branch.h) and before the next forward. It only reads the gradients,
 * which `down` copies to the host at the same time. A kernel then computes the digest of each
 * block, and the digests are copied to pinned memory. Pinned memory holds the digests, and the
 * scalars of the optimizer, of the last DEVICE_UPDATES_KEPT updates. So an update first waits for
 * the earlier update whose entries it overwrites. */
#include "kernels/cuda/resident/updates.h"
#include "base/log.h"
#include "kernels/cuda/memory/bind.h"
#include "kernels/cuda/plan/transfer.h"
#include "kernels/cuda/resident/parts.h"
#include <inttypes.h>
#include <stdlib.h>

_Static_assert((int)DEVICE_UPDATES_BLOCK == (int)GPU_OPTIM_ELEMS, "a block is a part");

struct gpu_updates {
    struct optim_config optim;
    struct gpu_optim update;
    float *d_slots;
    uint64_t slots_bytes;
    struct gpu_optim_part *d_parts;
    struct optim_step *d_scalars;
    uint64_t *d_zero, *d_digest; /* d_zero: index of the scalars for the kernel, always 0 */
    struct gpu_arena arena;      /* holds all device memory above */

    struct gpu_optim_part *parts; /* list of all blocks, which is copied to d_parts */
    int *first;                   /* [n_params] index of each parameter's first block */
    int is_on;                    /* true between the calls of `begin` and `end` */
    void *pinned;                 /* pinned memory of the two arrays below */
    struct optim_step *scalars;   /* [DEVICE_UPDATES_KEPT] update s is at s % DEVICE_UPDATES_KEPT */
    uint64_t *digest;             /* [DEVICE_UPDATES_KEPT][n_parts] */
    uint64_t known;               /* last update that a caller has waited for; 0: none */
    cudaEvent_t done[DEVICE_UPDATES_KEPT]; /* update s: its digests have reached the host */
};

static enum status memory_take(struct gpu_plan *plan, struct gpu_updates *u)
{
    enum status st = ST_OK;
    struct gpu_arena *a = &u->arena;
    const char *who = "(updates on the device)";
    uint64_t n = (uint64_t)u->update.n_parts, digests = n * sizeof *u->digest;
    u->slots_bytes =
        (uint64_t)optim_n_slots(&u->optim) * (uint64_t)gpu_parts_elems(plan) * sizeof(float);
    gpu_arena_init(a, UINT64_MAX, 0);
    TRY(gpu_arena_reserve(a, who, "optimizer's slots", u->slots_bytes, &u->d_slots));
    TRY(gpu_arena_reserve(a, who, "parts", n * sizeof *u->d_parts, &u->d_parts));
    TRY(gpu_arena_reserve(a, who, "scalars", sizeof *u->d_scalars, &u->d_scalars));
    TRY(gpu_arena_reserve(a, who, "index", sizeof *u->d_zero, &u->d_zero));
    TRY(gpu_arena_reserve(a, who, "digests", digests, &u->d_digest));
    st = gpu_bind_arena(plan->cfg.device, a);
    if (st == ST_NOMEM)
        LOG_W("the optimizer's %" PRIu64
              " bytes do not fit in the memory of device %d together with the network",
              a->bytes, plan->cfg.device);
    TRY(st);
    size_t pinned = DEVICE_UPDATES_KEPT * ((size_t)digests + sizeof *u->scalars);
    TRY(gpu_check_cuda(NULL, "cudaHostAlloc",
                       cudaHostAlloc(&u->pinned, pinned, cudaHostAllocDefault)));
    u->digest = u->pinned;
    u->scalars = (struct optim_step *)(u->digest + DEVICE_UPDATES_KEPT * n);
    for (int k = 0; k < DEVICE_UPDATES_KEPT; k++)
        TRY(gpu_transfer_event_create(NULL, &u->done[k]));
done:
    return st;
}

/* Sets the arguments of the kernels, which are the same in each update. */
static void kernels_tell(struct gpu_updates *u, const struct device_updates_config *cfg)
{
    u->update.parts = u->d_parts;
    u->update.kind = u->optim.kind;
    u->update.second_slot = optim_n_slots(&u->optim) > 1;
    u->update.scalar = u->d_scalars;
    u->update.n_scalars = 1;
    u->update.step = u->d_zero;
    u->update.weight = cfg->weight;
    u->update.scale = (float)(1.0 / (double)cfg->weight);
}

/* Sets the slots to zero, and copies the list of parts to the device. Both are complete when the
 * function returns. */
static enum status memory_fill(struct gpu_plan *plan, struct gpu_updates *u)
{
    enum status st = ST_OK;
    if (u->slots_bytes > 0)
        TRY(gpu_check_cuda(NULL, "cudaMemsetAsync",
                           cudaMemsetAsync(u->d_slots, 0, (size_t)u->slots_bytes, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaMemsetAsync",
                       cudaMemsetAsync(u->d_zero, 0, sizeof *u->d_zero, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(u->d_parts, u->parts,
                                       (size_t)u->update.n_parts * sizeof *u->parts,
                                       cudaMemcpyHostToDevice, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(plan->compute)));
done:
    return st;
}

static enum status create(struct gpu_plan *plan, const struct device_updates_config *cfg,
                          struct gpu_updates **out)
{
    enum status st = ST_OK;
    struct gpu_updates *u = calloc(1, sizeof *u);
    if (u == NULL)
        return gpu_check_no_host_memory();
    u->optim = cfg->optim;
    u->update.n_parts = gpu_parts_count(plan);
    u->parts = calloc((size_t)u->update.n_parts + 1, sizeof *u->parts);
    u->first = calloc((size_t)plan->cfg.n_params + 1, sizeof *u->first);
    if (u->parts == NULL || u->first == NULL) {
        st = gpu_check_no_host_memory();
        goto done;
    }
    for (int k = 0; k < plan->cfg.n_params; k++)
        u->first[k] = gpu_parts_before(plan, k);
    TRY(memory_take(plan, u));
    *out = u;
done:
    if (st != ST_OK)
        gpu_updates_destroy(plan, u);
    return st;
}

enum status gpu_updates_begin(struct gpu_plan *plan, const struct device_updates_config *cfg)
{
    enum status st = ST_OK;
    if (plan->cfg.inference_only || plan->cfg.mine != NULL || plan->cfg.group != NULL ||
        plan->cfg.grads16 != NULL) {
        LOG_E(
            "CUDA backend: updates on the device need a training plan of a whole network, outside a group, with gradients of floats");
        return ST_UNSUPPORTED;
    }
    if (plan->updates == NULL)
        TRY(create(plan, cfg, &plan->updates));
    struct gpu_updates *u = plan->updates;
    CHECK(optim_n_slots(&u->optim) == optim_n_slots(&cfg->optim));
    u->optim = cfg->optim;
    kernels_tell(u, cfg);
    gpu_parts_list(plan, u->d_slots, cfg->keep, u->parts);
    TRY(memory_fill(plan, u));
    u->known = 0;
    u->is_on = 1;
done:
    return st;
}

void gpu_updates_end(struct gpu_updates *u)
{
    if (u != NULL)
        u->is_on = 0;
}

int gpu_updates_are_on(const struct gpu_updates *u)
{
    return u != NULL && u->is_on;
}

enum status gpu_updates_run(struct gpu_plan *plan, uint64_t step)
{
    enum status st = ST_OK;
    struct gpu_updates *u = plan->updates;
    CHECK(gpu_updates_are_on(u));
    size_t k = step % DEVICE_UPDATES_KEPT, n = (size_t)u->update.n_parts;
    TRY(gpu_check_cuda(NULL, "cudaEventSynchronize", cudaEventSynchronize(u->done[k])));
    optim_begin(&u->optim, step, &u->scalars[k]);
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(u->d_scalars, &u->scalars[k], sizeof *u->scalars,
                                       cudaMemcpyHostToDevice, plan->compute)));
    TRY(gpu_check_kernel(NULL, "update kernel", gpu_optim_run(plan->compute, &u->update)));
    TRY(gpu_check_kernel(
        NULL, "digest kernel",
        gpu_digest_parts(plan->compute, u->d_parts, u->update.n_parts, u->d_digest)));
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(u->digest + k * n, u->d_digest, n * sizeof *u->digest,
                                       cudaMemcpyDeviceToHost, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaEventRecord", cudaEventRecord(u->done[k], plan->compute)));
done:
    return st;
}

enum status gpu_updates_digests(struct gpu_plan *plan, struct gpu_updates_part part, uint64_t step,
                                const uint64_t **out)
{
    enum status st = ST_OK;
    struct gpu_updates *u = plan->updates;
    CHECK(gpu_updates_are_on(u));
    size_t k = step % DEVICE_UPDATES_KEPT;
    int64_t blocks = (plan->parts.elems + GPU_OPTIM_ELEMS - 1) / GPU_OPTIM_ELEMS;
    *out = u->digest + k * (size_t)u->update.n_parts + u->first[part.param] + part.part * blocks;
    if (u->known == step)
        return ST_OK;
    TRY(gpu_check_cuda(NULL, "cudaEventSynchronize", cudaEventSynchronize(u->done[k])));
    u->known = step;
done:
    return st;
}

void gpu_updates_destroy(struct gpu_plan *plan, struct gpu_updates *u)
{
    if (u == NULL)
        return;
    for (int k = 0; k < DEVICE_UPDATES_KEPT; k++)
        if (u->done[k] != NULL)
            cudaEventDestroy(u->done[k]);
    if (u->pinned != NULL)
        cudaFreeHost(u->pinned);
    gpu_bind_undo(plan->cfg.device, &u->arena);
    gpu_arena_free(&u->arena);
    free(u->parts);
    free(u->first);
    free(u);
}

uint64_t gpu_updates_bytes(const struct gpu_updates *u)
{
    return u != NULL ? u->arena.bytes : 0;
}
