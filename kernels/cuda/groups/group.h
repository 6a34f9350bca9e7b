/* kernels/cuda/groups/group.h - plans whose gradients are added on the cards and leave as one sum;
 * see group.c. A plan with cfg.group is a member of it; plans of no group never come here.
 *
 * Owns:    NCCL's communicators; a member its buckets and counters.
 * Threads: each member's own; cancel: any.
 * Errors:  the plan's; ST_CANCELLED; ST_INTERNAL, logged, in the member whose call failed, and
 *          silently in the others. */
#ifndef KERNELS_CUDA_GROUPS_GROUP_H
#define KERNELS_CUDA_GROUPS_GROUP_H
#include "kernels/cuda/plan/plan.h"
#include <pthread.h>

struct gpu_comm;
struct gpu_group_card {
    int device;
    int n, rank[GPU_SUM_MOST]; /* members; the first one leads */
};

struct gpu_group {
    int n, n_cards;
    float *weight;               /* [n] */
    struct gpu_group_card *card; /* [n_cards], in the order of their leaders' ranks */

    pthread_mutex_t issue; /* guards the four below; not the pointer, and not its cancel */
    struct gpu_comm *comm; /* NULL: one card, or no NCCL */
    int comm_aborted;      /* or would be, if there were one */
    float **buffer;        /* [n_cards] a call's arguments */
    cudaStream_t *stream;

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    struct gpu_plan **plan; /* [n]; NULL: not there. Fixed while layers are under way */
    int n_layers;           /* of the first that came */
    int *arrived;           /* [n_layers] members whose backward is queued */
    int64_t *queued;        /* [n_layers] sums queued so far */
    enum status failed;     /* why there will be no more sums */
};

struct gpu_group_bucket {
    float *d;        /* on the card; NULL: no parameters */
    int64_t share;   /* floats for each card */
    int64_t at_host; /* where it begins in the leader's `host` */
};

struct gpu_group_member {
    struct gpu_group *group;
    int rank, card;
    int leads;
    int64_t *asked;                  /* [n_layers] backwards so far */
    struct gpu_group_bucket *bucket; /* [n_layers], if it leads */
    float *host;                     /* pinned, all buckets, if it leads and there is no NCCL */
};

enum status gpu_group_create(const struct backend_group_config *cfg, struct gpu_group **out);
void gpu_group_destroy(struct gpu_group *g);
void gpu_group_cancel(struct gpu_group *g);

/* A plan on its way in: what it asks the arena for; then, with its memory; and out again. */
enum status gpu_group_plan(struct gpu_plan *plan);
enum status gpu_group_join(struct gpu_plan *plan);
void gpu_group_leave(struct gpu_plan *plan);

/* After ready[layer]: the layer's gradients are on their way when those of all members are. Marks
 * copied[layer], behind which they may be overwritten, before wait returns. */
enum status gpu_group_arrive(struct gpu_plan *plan, int layer);
enum status gpu_group_wait(struct gpu_plan *plan, int layer);

/* group_sum.c: queues a layer's sum of all members; and, when it is through, puts the leader's
 * share of it in place: what the copy left in staging memory, or what the cards' buckets add up to.
 */
enum status gpu_group_queue(struct gpu_group *g, int layer);
void gpu_group_finish(struct gpu_plan *leader, int layer);
struct gpu_plan *gpu_group_leader(const struct gpu_group *g, int card);
int64_t gpu_group_bucket_rounded(int64_t elems); /* to where the next tensor begins */

#endif
