/* kernels/cuda/resident/optim.cu - updates all parameters in one launch. The formulas have the same
 * operations in the same order as those of kernels/vector/optim.c. This file is compiled without
 * fused multiply-add, so that a GPU rounds as the CPU does. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/resident/steps.h"

enum { THREADS = 256 };

template <enum optim_kind KIND>
static __device__ inline float update_one(const struct optim_step &k, float g, float old,
                                          const struct gpu_optim_part &part, int i, int second)
{
    float *a = part.slot[0], *b = part.slot[1];
    if (KIND == OPTIM_MOMENTUM || KIND == OPTIM_NESTEROV) {
        float v = k.momentum * a[i] + g;
        a[i] = v;
        return old - k.rate * (KIND == OPTIM_NESTEROV ? g + k.momentum * v : v);
    }
    if (KIND == OPTIM_ADAGRAD) {
        float s = a[i] + g * g;
        a[i] = s;
        return old - k.rate * (g / (sqrtf(s) + k.epsilon));
    }
    if (KIND == OPTIM_RMSPROP) {
        float s = k.keep2 * a[i] + k.rest2 * (g * g);
        a[i] = s;
        if (!second)
            return old - k.rate * (g / (sqrtf(s) + k.epsilon));
        float v = k.momentum * b[i] + g / (sqrtf(s) + k.epsilon);
        b[i] = v;
        return old - k.rate * v;
    }
    if (KIND == OPTIM_ADAM) {
        float m = k.keep1 * a[i] + k.rest1 * g;
        float v = k.keep2 * b[i] + k.rest2 * (g * g);
        a[i] = m;
        b[i] = v;
        return k.keep * old - k.rate * (m / (sqrtf(v) * k.root + k.epsilon));
    }
    return old - k.rate * g;
}

/* Launch: a block of THREADS threads per part of a tensor (at most GPU_OPTIM_ELEMS values). Moves
 * 12 bytes per value (parameter in and out, gradient in), plus 8 per slot. */
template <enum optim_kind KIND> static __global__ void weir_update(struct gpu_optim u)
{
    const struct gpu_optim_part part = u.parts[blockIdx.x];
    const struct optim_step k = u.scalar[*u.step % u.n_scalars];
    float rest = (float)(1.0 - (double)part.keep);
    for (int i = (int)threadIdx.x; i < part.n; i += THREADS) {
        float old = part.p[i], g = part.g[i] * u.weight * u.scale;
        part.p[i] = part.keep >= 1.0f ? old
                    : part.keep >= 0.0f
                        ? part.keep * old + rest * g
                        : update_one<KIND>(k, g + k.added_decay * old, old, part, i, u.second_slot);
    }
}

template <enum optim_kind KIND>
static int launch(struct CUstream_st *stream, const struct gpu_optim *u)
{
    return LAUNCH(weir_update<KIND>, (unsigned)u->n_parts, THREADS, stream, *u);
}

extern "C" int gpu_optim_run(struct CUstream_st *stream, const struct gpu_optim *u)
{
    if (u->parts == nullptr || u->scalar == nullptr || u->step == nullptr || u->n_parts < 1 ||
        u->n_scalars < 1)
        return GPU_KERNEL_REFUSED;
    switch (u->kind) {
    case OPTIM_SGD:
        return launch<OPTIM_SGD>(stream, u);
    case OPTIM_MOMENTUM:
        return launch<OPTIM_MOMENTUM>(stream, u);
    case OPTIM_NESTEROV:
        return launch<OPTIM_NESTEROV>(stream, u);
    case OPTIM_ADAGRAD:
        return launch<OPTIM_ADAGRAD>(stream, u);
    case OPTIM_RMSPROP:
        return launch<OPTIM_RMSPROP>(stream, u);
    case OPTIM_ADAM:
    case OPTIM_ADAMW:
        return launch<OPTIM_ADAM>(stream, u);
    default:
        return GPU_KERNEL_REFUSED;
    }
}
