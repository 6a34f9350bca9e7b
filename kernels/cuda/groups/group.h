/* kernels/cuda/groups/group.h - plans whose gradients are added on the GPUs and copied to the host
 * as one sum; see group.c. A plan with cfg.group is a member; these functions are called for
 * members only.
 * Owns:    NCCL's communicators; a member owns its buckets and counters.
 * Threads: each member has a thread of its own; gpu_group_cancel: any.
 * Errors:  the plan's; ST_CANCELLED; ST_INTERNAL, logged only in the member whose call failed, but
 *          returned in all members. */
#ifndef KERNELS_CUDA_GROUPS_GROUP_H
#define KERNELS_CUDA_GROUPS_GROUP_H
#include "kernels/cuda/plan/plan.h"
#include <pthread.h>

struct gpu_comm;
struct gpu_group_card {
    int device;
    int n, rank[GPU_SUM_MOST]; /* ranks of the members; the first one is the leader */
};

struct gpu_group {
    int n, n_cards;
    float *weight;               /* [n] */
    struct gpu_group_card *card; /* [n_cards], in the order of their leaders' ranks */

    /* held while the four fields below are used. The pointer `comm` may be read, and
     * gpu_comm_cancel called, without this lock */
    pthread_mutex_t issue;
    struct gpu_comm *comm; /* NULL: one GPU, or no NCCL */
    int comm_aborted; /* the communicators were aborted, or the group must not be used at all */
    float **buffer;   /* [n_cards] arguments of a call of comm.h */
    cudaStream_t *stream;

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    /* [n] plans of the members; NULL: not a member yet. Does not change while layers are in
     * flight */
    struct gpu_plan **plan;
    int n_layers;       /* number of layers of the first member's plan */
    int *arrived;       /* [n_layers] number of members that have queued their backward */
    int64_t *queued;    /* [n_layers] number of sums queued so far */
    enum status failed; /* reason why the group computes no further sums */
    /* only the thread that queues the steps of all members aborts the communicators */
    int one_thread;
};

struct gpu_group_bucket {
    float *d; /* memory on the GPU; NULL: the layer has no parameters */
    /* the layer's parameters, laid out as the sums in `d`; NULL: the layer has none, or the cards
     * do not exchange parameters */
    float *params;
    int64_t share;   /* number of floats in each GPU's share */
    int64_t at_host; /* offset of this layer's share in the leader's `host` */
};

struct gpu_group_member {
    struct gpu_group *group;
    int rank, card;
    int leads;
    int64_t *asked;                  /* [n_layers] number of backwards so far */
    struct gpu_group_bucket *bucket; /* [n_layers] set only in a leader */
    float *host; /* pinned memory for all buckets; set only in a leader, if there is no NCCL */
};

enum status gpu_group_create(const struct backend_group_config *cfg, struct gpu_group **out);
void gpu_group_destroy(struct gpu_group *g);
void gpu_group_cancel(struct gpu_group *g);

/* Returns true if the cards can exchange sums and parameters by NCCL, and each card has one member.
 * The parameters of each layer are then one block, so that the cards can exchange them. */
int gpu_group_can_gather(const struct gpu_group *g);
/* Reserves memory for the plan in its arena. gpu_group_bind sets the pointers to the parameters
 * when the arena is bound, gpu_group_join then adds the plan to its group, and gpu_group_leave
 * removes it. */
enum status gpu_group_plan(struct gpu_plan *plan);
enum status gpu_group_bind(struct gpu_plan *plan);
enum status gpu_group_join(struct gpu_plan *plan);
void gpu_group_leave(struct gpu_plan *plan);

/* Records that this member has queued its gradients of the layer; the last member queues the
 * layer's sum. Called when ready[layer] is recorded. copied[layer] is recorded before
 * gpu_group_wait returns; work that waits for this event may overwrite the gradients. */
enum status gpu_group_arrive(struct gpu_plan *plan, int layer);
enum status gpu_group_wait(struct gpu_plan *plan, int layer);

/* ---- for steps that one thread queues for all members (resident/cards.h) ---- */

int gpu_group_has_bucket(const struct gpu_plan *plan, int layer);
/* Leaves the abort of the communicators to the thread that queues, so that gpu_group_fail and
 * gpu_group_cancel do not abort. After a failure this thread must call gpu_group_abort, when no
 * CUDA graph contains the group's sums, because NCCL waits for that. Returns the group's failure,
 * if it has failed before. */
enum status gpu_group_begin(struct gpu_group *g);
void gpu_group_abort(struct gpu_group *g);
/* Queues a layer's sum on `down` of all members, after the events `ready`. Each GPU then has its
 * share of the sum. */
enum status gpu_group_reduce(struct gpu_group *g, int layer);
/* Queues the exchange of the shares of a layer's parameters, and then records `copied`. */
enum status gpu_group_gather(struct gpu_group *g, int layer);
/* The elements [lo, hi) of a layer's k-th tensor that are in a member's share. `sum`: address of
 * element 0 of the tensor's sum, even if that element is in another share. */
struct gpu_group_part {
    int param;
    int64_t lo, hi;
    float *sum;
};
struct gpu_group_part gpu_group_part(const struct gpu_plan *leader, int layer, int k);
/* Returns an error if NCCL has reported one, a call to NCCL has failed or a member has cancelled;
 * then the sums are invalid. */
enum status gpu_group_check(struct gpu_group *g);
/* Ends all sums of the group. Returns the reason of the first call, because later failures are its
 * consequences. */
enum status gpu_group_fail(struct gpu_group *g, enum status why);

/* Queues a layer's sum over all members (group_sum.c). When the sum has ended, gpu_group_finish
 * completes the leader's share on the host: it copies the share from staging memory, or adds the
 * GPUs' buckets. */
enum status gpu_group_queue(struct gpu_group *g, int layer);
void gpu_group_finish(struct gpu_plan *leader, int layer);
struct gpu_plan *gpu_group_leader(const struct gpu_group *g, int card);
/* returns the distance in floats from a tensor of `elems` floats to the next tensor of the
 * bucket */
int64_t gpu_group_bucket_rounded(int64_t elems);

#endif
