/* kernels/cpu/kinds.h - the table of each kind of layer, and helper functions for their loops.
 * Owns: nothing. Threads: as for the plan. Errors: none. */
#ifndef KERNELS_CPU_KINDS_H
#define KERNELS_CPU_KINDS_H
#include "kernels/cpu/pass.h"

extern const struct cpu_kind cpu_conv, cpu_pool, cpu_dense, cpu_relu, cpu_dropout, cpu_batch_norm,
    cpu_flatten, cpu_softmax_xent, cpu_sigmoid_xent, cpu_squared, cpu_add, cpu_concat,
    cpu_layer_norm, cpu_embedding, cpu_activation, cpu_multiply, cpu_sum, cpu_factorization;

/* Returns the number of threads for Weir's own loops: one under ThreadSanitizer, which does not
 * recognise OpenMP's barriers. */
static inline int cpu_threads(int n_threads)
{
#if defined(CPU_THREAD_SANITIZED)
    return 1;
#else
    return n_threads;
#endif
}

static inline int cpu_loop_threads(const struct cpu_pass *pass)
{
    return cpu_threads(pass->plan->cfg.n_threads);
}

/* loss.c: returns the mean loss and the number of correct samples of the last forward. */
void cpu_loss_result(const struct cpu_pass *pass, float *loss, int *n_correct);

#endif
