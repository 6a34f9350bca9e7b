/* kernels/cuda/group.h - plans whose gradients are added on the cards and leave as one sum; see
 * group.c. A plan with cfg.group is a member of it; plans of no group never come here.
 *
 * Owns:    NCCL's communicators; a member its buckets and counters.
 * Threads: each member's own; cancel: any.
 * Errors:  the plan's; ST_CANCELLED; ST_INTERNAL, logged, in the member whose call failed, and
 *          silently in the others. */
#ifndef KERNELS_CUDA_GROUP_H
#define KERNELS_CUDA_GROUP_H
#include "kernels/cuda/plan.h"

struct cuda_group;
enum status cuda_group_create(const struct backend_group_config *cfg, struct cuda_group **out);
void cuda_group_destroy(struct cuda_group *g);
void cuda_group_cancel(struct cuda_group *g);

/* A plan on its way in: what it asks the arena for; then, with its memory; and out again. */
enum status cuda_group_plan(struct cuda_plan *plan);
enum status cuda_group_join(struct cuda_plan *plan);
void cuda_group_leave(struct cuda_plan *plan);

/* After the layer's backward: its gradients are on their way when those of all members are. Marks
 * copied[layer], behind which they may be overwritten, before wait returns. */
enum status cuda_group_arrive(struct cuda_plan *plan, int layer);
enum status cuda_group_wait(struct cuda_plan *plan, int layer);

#endif
