/* kernels/cuda/conv/algo.c - chooses the first algorithm of a list that satisfies the
 * requirements. */
#include "kernels/cuda/conv/algo.h"

int gpu_algo_choose(const struct gpu_algo *list, int n, const struct gpu_algo_wish *wish)
{
    for (int i = 0; i < n; i++) {
        const struct gpu_algo *a = &list[i];
        if (a->usable && a->workspace_bytes <= wish->workspace_limit &&
            (a->deterministic || !wish->deterministic) && (!a->tf32 || wish->tf32))
            return i;
    }
    return -1;
}
