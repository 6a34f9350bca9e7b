/* kernels/vector/optim_schedule.h - the schedules by which the learning rate changes. The settings
 * are those of struct optim_config (optim.h), which also has the function that computes the rate.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_OPTIM_SCHEDULE_H
#define KERNELS_VECTOR_OPTIM_SCHEDULE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Learning rate of update `step` (from 1), which follows b = step - 1 updates: learning_rate times
 * the factor below. During warm-up (b < warmup_steps) the rate is also multiplied by (b + 1) /
 * warmup_steps. part = (b - warmup_steps) / (total_steps - warmup_steps), 0 during warm-up. */
enum optim_schedule {
    SCHEDULE_CONSTANT,    /* 1 */
    SCHEDULE_LINEAR,      /* 1 - part */
    SCHEDULE_COSINE,      /* (1 + cos(pi part)) / 2 */
    SCHEDULE_STEP,        /* lr_decay, once for each boundary <= b */
    SCHEDULE_EXPONENTIAL, /* lr_decay ^ (b / lr_decay_steps) */
    /* PyTorch's OneCycleLR; the momentum stays constant. The factor rises from 1/25 to 1 at b =
     * R-1, and then falls to 1/250000 at b = total_steps - 1, in half waves of a cosine. R:
     * warmup_steps, which has no other effect here; 0: 30% of total_steps, not rounded */
    SCHEDULE_ONE_CYCLE,
    SCHEDULE_ONE_CYCLE_LINEAR, /* schedule ONE_CYCLE with straight lines */
    SCHEDULE_N_KINDS
};
#define SCHEDULE_NAMES                                                                             \
    "constant|linear|cosine|step|exponential|one_cycle|one_cycle_linear" /* order of the enum */

const char *optim_schedule_name(enum optim_schedule schedule);

#ifdef __cplusplus
}
#endif
#endif
