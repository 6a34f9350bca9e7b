/* kernels/cuda/groups/group_sum.c - adds a layer's gradients over all plans of a group, and copies
 * the sum to the host:
 * - Phase 1, on each GPU: the weighted sum of the gradients of the GPU's members, in the order of
 *   their ranks, is written to the leader's bucket.
 * - Phase 2, between GPUs: NCCL's reduce-scatter. Compared with an all-reduce after which a single
 *   GPU copies the sum, half as much data is sent between GPUs, and all GPUs copy a share of the
 *   sum to the host at the same time.
 * - Phase 3: each leader copies its share to the host.
 *
 * Without NCCL each leader copies its whole bucket. When a leader's thread waits for the gradients,
 * it adds the leader's share of all buckets, in the order of the GPUs. */
#include "kernels/cuda/groups/comm.h"
#include "kernels/cuda/groups/group.h"
#include "kernels/cuda/plan/transfer.h"
#include "kernels/vector/vector.h"

/* Alignment of tensors in a bucket, in floats. */
enum { TENSOR_ALIGN = 64 };

int64_t gpu_group_bucket_rounded(int64_t elems)
{
    return (elems + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
}

struct gpu_plan *gpu_group_leader(const struct gpu_group *g, int card)
{
    return g->plan[g->card[card].rank[0]];
}

/* Runs phase 1 on one GPU. */
static enum status card_sum(struct gpu_group *g, int card, int layer)
{
    enum status st = ST_OK;
    const struct gpu_group_card *c = &g->card[card];
    struct gpu_plan *leader = gpu_group_leader(g, card);
    const struct gpu_op *op = &leader->ops[layer];
    float *to = leader->member->bucket[layer].d;
    struct gpu_sum sum = {.n = c->n};
    for (int i = 0; i < c->n; i++) {
        TRY(gpu_check_cuda(
            op, "cudaStreamWaitEvent",
            cudaStreamWaitEvent(leader->down, g->plan[c->rank[i]]->ready[layer], 0)));
        sum.weight[i] = g->weight[c->rank[i]];
    }
    for (int k = 0; k < op->layer->n_params; k++) {
        int param = op->layer->param[k];
        int64_t elems = leader->params[param].elems;
        for (int i = 0; i < c->n; i++)
            sum.src[i] = g->plan[c->rank[i]]->params[param].d_grad;
        TRY(gpu_check_kernel(op, "sum kernel", gpu_sum_weighted(leader->down, &sum, to, elems)));
        to += gpu_group_bucket_rounded(elems);
    }
    for (int i = 1; i < c->n; i++)
        TRY(gpu_check_cuda(op, "cudaEventRecord",
                           cudaEventRecord(g->plan[c->rank[i]]->copied[layer], leader->down)));
done:
    return st;
}

/* Runs `operation` on a buffer of each card, on its stream `down`. */
static enum status cards_run(struct gpu_group *g, int layer, int is_params,
                             enum status (*operation)(struct gpu_comm *comm, float *const *buffers,
                                                      int64_t share, const cudaStream_t *streams))
{
    for (int i = 0; i < g->n_cards; i++) {
        const struct gpu_group_bucket *b = &gpu_group_leader(g, i)->member->bucket[layer];
        g->buffer[i] = is_params ? b->params : b->d;
        g->stream[i] = gpu_group_leader(g, i)->down;
    }
    int64_t share = gpu_group_leader(g, 0)->member->bucket[layer].share;
    enum status st = operation(g->comm, g->buffer, share, g->stream);
    /* the caller would treat ST_DEADLINE as a missing peer that may return */
    return st == ST_DEADLINE ? ST_INTERNAL : st;
}

struct gpu_group_part gpu_group_part(const struct gpu_plan *leader, int layer, int k)
{
    const struct layer *l = &leader->cfg.layers[layer];
    const struct gpu_group_bucket *b = &leader->member->bucket[layer];
    int64_t first = b->share * leader->member->card, at = 0;
    for (int i = 0; i < k; i++)
        at += gpu_group_bucket_rounded(leader->params[l->param[i]].elems);
    int64_t elems = leader->params[l->param[k]].elems;
    struct gpu_group_part p = {l->param[k], first - at, first + b->share - at, b->d + at};
    p.lo = p.lo > 0 ? p.lo : 0;
    p.hi = p.hi < elems ? p.hi : elems;
    p.hi = p.hi > p.lo ? p.hi : p.lo;
    return p;
}

/* Runs phase 3 on one GPU. */
static enum status card_copy(struct gpu_group *g, int card, int layer)
{
    enum status st = ST_OK;
    struct gpu_plan *leader = gpu_group_leader(g, card);
    const struct gpu_op *op = &leader->ops[layer];
    const struct gpu_group_bucket *b = &leader->member->bucket[layer];
    if (leader->member->host != NULL)
        TRY(gpu_check_cuda(op, "cudaMemcpyAsync",
                           cudaMemcpyAsync(leader->member->host + b->at_host, b->d,
                                           (size_t)(b->share * g->n_cards) * sizeof(float),
                                           cudaMemcpyDeviceToHost, leader->down)));
    for (int k = 0; k < op->layer->n_params && leader->member->host == NULL; k++) {
        struct gpu_group_part p = gpu_group_part(leader, layer, k);
        TRY(gpu_transfer_download_part(leader, p.param, p.sum, p.lo, p.hi));
    }
    TRY(gpu_check_cuda(op, "cudaEventRecord",
                       cudaEventRecord(leader->copied[layer], leader->down)));
done:
    return st;
}

enum status gpu_group_reduce(struct gpu_group *g, int layer)
{
    enum status st = ST_OK;
    for (int i = 0; i < g->n_cards; i++) {
        TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(g->card[i].device)));
        TRY(card_sum(g, i, layer));
    }
    if (g->comm != NULL)
        TRY(cards_run(g, layer, 0, gpu_comm_reduce_scatter));
done:
    return st;
}

enum status gpu_group_gather(struct gpu_group *g, int layer)
{
    enum status st = ST_OK;
    TRY(cards_run(g, layer, 1, gpu_comm_all_gather));
    for (int i = 0; i < g->n_cards; i++) {
        struct gpu_plan *leader = gpu_group_leader(g, i);
        TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(g->card[i].device)));
        TRY(gpu_check_cuda(&leader->ops[layer], "cudaEventRecord",
                           cudaEventRecord(leader->copied[layer], leader->down)));
    }
done:
    return st;
}

enum status gpu_group_queue(struct gpu_group *g, int layer)
{
    enum status st = ST_OK;
    pthread_mutex_lock(&g->issue);
    TRY(g->comm_aborted ? ST_CANCELLED : ST_OK);
    TRY(gpu_group_reduce(g, layer));
    for (int i = 0; i < g->n_cards; i++) {
        TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(g->card[i].device)));
        TRY(card_copy(g, i, layer));
    }
done:
    pthread_mutex_unlock(&g->issue);
    return st;
}

void gpu_group_finish(struct gpu_plan *plan, int layer)
{
    const struct gpu_group_member *m = plan->member;
    const struct gpu_group *g = m->group;
    const struct layer *l = &plan->cfg.layers[layer];
    for (int k = 0; k < l->n_params; k++) {
        struct gpu_group_part p = gpu_group_part(plan, layer, k);
        float *to = plan->cfg.grads[p.param] + p.lo;
        int64_t from = m->bucket[layer].at_host + (p.sum - m->bucket[layer].d) + p.lo;
        if (m->host == NULL)
            gpu_transfer_download_place(plan, p.param, p.lo, p.hi);
        for (int i = 0; i < g->n_cards && m->host != NULL; i++) {
            const float *host = gpu_group_leader(g, i)->member->host + from;
            if (i == 0)
                vector_copy(to, host, (size_t)(p.hi - p.lo));
            else
                vector_add_scaled(to, host, 1, (size_t)(p.hi - p.lo));
        }
    }
}
