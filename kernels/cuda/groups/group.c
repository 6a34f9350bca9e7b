/* kernels/cuda/groups/group.c - the members of a group and their waits; group_sum.c has the sums.
 *
 * DESIGN. The gradients of a layer form a bucket. The last member to queue its backward of the
 * layer also queues, in its thread, the sum for all members. On each GPU the sum is queued on the
 * stream `down` of the GPU's first member (the leader). The sum runs after the members' backwards
 * of this layer, and in parallel with the backwards of the layers below.
 *
 * No member can hang, because one thread queues the work of all GPUs for a layer: queued work never
 * depends on work that is not queued yet, and each event is recorded before a stream waits for it.
 * Threads wait for missing members only in the functions of this file. A cancel wakes these threads
 * and ends NCCL's pending calls. A member that fails to queue cancels all other members. If one
 * thread queues the steps of all members (resident/cards.c), another thread's cancel only sets
 * `failed` and ends NCCL's pending calls. The queueing thread notices that and aborts.
 *
 * Locks: `issue` ensures that layers are queued in the same order on all GPUs, and that a
 *        communicator is not aborted while it is used. `issue` is held during calls to CUDA and
 *        NCCL. These calls do not wait for other members. They may wait for NCCL's connections, but
 *        a deadline and a cancel end that wait. `lock` guards the fields that follow it in group.h,
 *        and is never held during such a call. No thread holds both locks at the same time. */
#include "kernels/cuda/groups/group.h"
#include "base/log.h"
#include "kernels/cuda/groups/comm.h"
#include <pthread.h>
#include <stdlib.h>

/* ---- the group ---- */

static struct gpu_group_card *card_of(struct gpu_group *g, int device)
{
    for (int i = 0; i < g->n_cards; i++)
        if (g->card[i].device == device)
            return &g->card[i];
    g->card[g->n_cards].device = device;
    return &g->card[g->n_cards++];
}

static enum status cards_fill(struct gpu_group *g, const struct backend_group_config *cfg)
{
    for (int r = 0; r < cfg->n; r++) {
        struct gpu_group_card *card = card_of(g, cfg->device[r]);
        if (card->n == GPU_SUM_MOST) {
            LOG_E("CUDA backend: more than %d towers on device %d; use fewer", GPU_SUM_MOST,
                  card->device);
            return ST_UNSUPPORTED;
        }
        card->rank[card->n++] = r;
        g->weight[r] = cfg->weight[r];
    }
    return ST_OK;
}

/* Creates NCCL's communicators. The group also works without NCCL. */
static enum status comm_open(struct gpu_group *g)
{
    int *device = calloc((size_t)g->n_cards, sizeof *device);
    if (device == NULL)
        return gpu_check_no_host_memory();
    for (int i = 0; i < g->n_cards; i++)
        device[i] = g->card[i].device;
    if (gpu_comm_create(device, g->n_cards, &g->comm) != ST_OK)
        LOG_W(
            "CUDA backend: the host adds the gradients of the %d cards, which is slower than NCCL",
            g->n_cards);
    free(device);
    return ST_OK;
}

enum status gpu_group_create(const struct backend_group_config *cfg, struct gpu_group **out)
{
    enum status st = ST_OK;
    struct gpu_group *g = calloc(1, sizeof *g);
    if (g == NULL)
        return gpu_check_no_host_memory();
    pthread_mutex_init(&g->issue, NULL);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->n = cfg->n;
    g->weight = calloc((size_t)g->n, sizeof *g->weight);
    g->card = calloc((size_t)g->n, sizeof *g->card);
    g->plan = calloc((size_t)g->n, sizeof *g->plan);
    g->buffer = calloc((size_t)g->n, sizeof *g->buffer);
    g->stream = calloc((size_t)g->n, sizeof *g->stream);
    if (!g->weight || !g->card || !g->plan || !g->buffer || !g->stream) {
        st = gpu_check_no_host_memory();
        goto done;
    }
    TRY(cards_fill(g, cfg));
    if (g->n_cards > 1)
        TRY(comm_open(g));
    *out = g;
done:
    if (st != ST_OK)
        gpu_group_destroy(g);
    return st;
}

void gpu_group_destroy(struct gpu_group *g)
{
    if (g == NULL)
        return;
    gpu_comm_destroy(g->comm);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->issue);
    free(g->queued);
    free(g->arrived);
    free(g->stream);
    free(g->buffer);
    free(g->plan);
    free(g->card);
    free(g->weight);
    free(g);
}

enum status gpu_group_begin(struct gpu_group *g)
{
    pthread_mutex_lock(&g->lock);
    enum status st = g->failed;
    g->one_thread = st == ST_OK;
    pthread_mutex_unlock(&g->lock);
    return st;
}

void gpu_group_abort(struct gpu_group *g)
{
    pthread_mutex_lock(&g->issue);
    if (g->comm != NULL && !g->comm_aborted)
        gpu_comm_abort(g->comm);
    g->comm_aborted = 1;
    pthread_mutex_unlock(&g->issue);
}

enum status gpu_group_fail(struct gpu_group *g, enum status why)
{
    pthread_mutex_lock(&g->lock);
    if (g->failed == ST_OK)
        g->failed = why;
    why = g->failed;
    int aborts = !g->one_thread;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->comm != NULL)
        /* ends the wait of a thread that waits for NCCL and holds `issue` */
        gpu_comm_cancel(g->comm);
    if (aborts)
        gpu_group_abort(g);
    return why;
}

void gpu_group_cancel(struct gpu_group *g)
{
    (void)gpu_group_fail(g, ST_CANCELLED);
}

/* ---- members ---- */

int gpu_group_can_gather(const struct gpu_group *g)
{
    return g->n == g->n_cards && g->comm != NULL;
}

int gpu_group_has_bucket(const struct gpu_plan *plan, int layer)
{
    const struct layer *l = &plan->cfg.layers[layer];
    return l->n_params > 0 && plan->params[l->param[0]].layer == layer;
}

static enum status member_create(struct gpu_plan *plan)
{
    struct gpu_group *g = (struct gpu_group *)plan->cfg.group;
    struct gpu_group_member *m = calloc(1, sizeof *m);
    size_t n_layers = (size_t)plan->cfg.n_layers;
    if (m == NULL)
        return gpu_check_no_host_memory();
    plan->member = m;
    m->group = g;
    m->rank = plan->cfg.rank;
    m->asked = calloc(n_layers, sizeof *m->asked);
    m->bucket = calloc(n_layers, sizeof *m->bucket);
    if (m->asked == NULL || m->bucket == NULL)
        return gpu_check_no_host_memory();
    m->card = -1;
    for (int i = 0; i < g->n_cards; i++)
        for (int k = 0; k < g->card[i].n; k++)
            if (g->card[i].rank[k] == m->rank && g->card[i].device == plan->cfg.device) {
                m->card = i;
                m->leads = k == 0;
            }
    if (m->card < 0 || plan->cfg.inference_only) {
        LOG_E(
            "CUDA backend: a plan on device %d is not rank %d of its group of %d, or not for training",
            plan->cfg.device, m->rank, g->n);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status gpu_group_plan(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    int64_t at = 0;
    TRY(member_create(plan));
    struct gpu_group_member *m = plan->member;
    for (int i = 0; i < plan->cfg.n_layers && m->leads; i++) {
        const struct layer *l = &plan->cfg.layers[i];
        struct gpu_group_bucket *b = &m->bucket[i];
        int64_t elems = 0;
        if (!gpu_group_has_bucket(plan, i))
            continue;
        for (int k = 0; k < l->n_params; k++)
            elems += gpu_group_bucket_rounded(plan->params[l->param[k]].elems);
        b->share = gpu_group_bucket_rounded((elems + m->group->n_cards - 1) / m->group->n_cards);
        b->at_host = at;
        at += b->share * m->group->n_cards;
        uint64_t bytes = (uint64_t)(at - b->at_host) * sizeof(float);
        TRY(gpu_arena_reserve(&plan->arena, l->name, "sum of gradients", bytes, &b->d));
        if (gpu_group_can_gather(m->group))
            TRY(gpu_arena_reserve(&plan->arena, l->name, "parameters", bytes, &b->params));
    }
done:
    return st;
}

enum status gpu_group_bind(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    const struct gpu_group_member *m = plan->member;
    for (int i = 0; i < plan->cfg.n_layers && gpu_group_can_gather(m->group); i++) {
        const struct layer *l = &plan->cfg.layers[i];
        const struct gpu_group_bucket *b = &m->bucket[i];
        float *at = b->params;
        if (at == NULL)
            continue;
        /* zeros the gaps, which are sent, too */
        TRY(gpu_check_cuda(&plan->ops[i], "cudaMemsetAsync",
                           cudaMemsetAsync(at, 0,
                                           (size_t)(b->share * m->group->n_cards) * sizeof(float),
                                           plan->up)));
        for (int k = 0; k < l->n_params; k++) {
            plan->params[l->param[k]].d = at;
            at += gpu_group_bucket_rounded(plan->params[l->param[k]].elems);
        }
    }
done:
    return st;
}

/* Sets the memory between the tensors of a bucket to zero. Called once, because no other code
 * writes there. */
static enum status buckets_clear(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_group_member *m = plan->member;
    int64_t elems = 0;
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        const struct gpu_group_bucket *b = &m->bucket[i];
        int64_t all = b->share * m->group->n_cards;
        elems += all;
        if (all > 0)
            TRY(gpu_check_cuda(&plan->ops[i], "cudaMemsetAsync",
                               cudaMemsetAsync(b->d, 0, (size_t)all * sizeof(float), plan->down)));
    }
    if (m->leads && m->group->n_cards > 1 && m->group->comm == NULL && elems > 0)
        TRY(gpu_check_cuda(NULL, "cudaHostAlloc",
                           cudaHostAlloc((void **)&m->host, (size_t)elems * sizeof(float),
                                         cudaHostAllocPortable)));
    TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(plan->down)));
done:
    return st;
}

/* Returns true if both plans copy the same parameters to the same memory. The caller holds the
 * lock. */
static int has_same_params(const struct gpu_plan *a, const struct gpu_plan *b)
{
    int same = a->cfg.n_layers == b->cfg.n_layers && a->cfg.n_params == b->cfg.n_params;
    for (int k = 0; same && k < a->cfg.n_params; k++)
        same = a->params[k].layer == b->params[k].layer &&
               a->params[k].elems == b->params[k].elems &&
               (a->params[k].layer < 0 || a->cfg.grads[k] == b->cfg.grads[k]);
    return same;
}

/* The caller holds the lock. */
static enum status counters_create(struct gpu_group *g, int n_layers)
{
    if (g->arrived != NULL)
        return ST_OK;
    g->arrived = calloc((size_t)n_layers, sizeof *g->arrived);
    g->queued = calloc((size_t)n_layers, sizeof *g->queued);
    g->n_layers = n_layers;
    return g->arrived != NULL && g->queued != NULL ? ST_OK : gpu_check_no_host_memory();
}

enum status gpu_group_join(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_group *g = plan->member->group;
    TRY(buckets_clear(plan));
    pthread_mutex_lock(&g->lock);
    int ok = g->plan[plan->member->rank] == NULL &&
             (g->arrived == NULL || g->n_layers == plan->cfg.n_layers);
    for (int r = 0; r < g->n; r++)
        ok = ok && (g->plan[r] == NULL || has_same_params(g->plan[r], plan));
    st = ok ? counters_create(g, plan->cfg.n_layers) : ST_INVALID;
    if (st == ST_OK)
        g->plan[plan->member->rank] = plan;
    pthread_mutex_unlock(&g->lock);
    if (st == ST_INVALID)
        LOG_E(
            "CUDA backend: rank %d of a group exists already, or its network or memory for gradients differs from that of rank 0",
            plan->member->rank);
done:
    return st;
}

void gpu_group_leave(struct gpu_plan *plan)
{
    struct gpu_group_member *m = plan->member;
    if (m == NULL)
        return;
    struct gpu_group *g = m->group;
    /* work that other members queued may still read this plan's gradients */
    for (int i = 0; i < g->n_cards; i++) {
        const struct gpu_plan *leader = g->plan[g->card[i].rank[0]];
        if (leader == NULL)
            continue;
        cudaStreamSynchronize(leader->down);
        cudaStreamSynchronize(leader->compute); /* waits for sums in graphs */
    }
    pthread_mutex_lock(&g->lock);
    if (m->rank >= 0 && m->rank < g->n && g->plan[m->rank] == plan)
        g->plan[m->rank] = NULL;
    pthread_mutex_unlock(&g->lock);
    if (m->host != NULL)
        cudaFreeHost(m->host);
    free(m->bucket);
    free(m->asked);
    free(m);
    plan->member = NULL;
}

/* ---- a member's steps ---- */

enum status gpu_group_arrive(struct gpu_plan *plan, int layer)
{
    struct gpu_group_member *m = plan->member;
    struct gpu_group *g = m->group;
    if (!gpu_group_has_bucket(plan, layer))
        return ST_OK;
    m->asked[layer]++;
    pthread_mutex_lock(&g->lock);
    enum status st = g->failed;
    int last = st == ST_OK && ++g->arrived[layer] == g->n;
    if (last)
        g->arrived[layer] = 0;
    pthread_mutex_unlock(&g->lock);
    if (!last)
        return st;
    st = gpu_group_queue(g, layer);
    if (st != ST_OK)
        st = gpu_group_fail(g, st);
    pthread_mutex_lock(&g->lock);
    g->queued[layer]++;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return st;
}

enum status gpu_group_check(struct gpu_group *g)
{
    pthread_mutex_lock(&g->lock);
    enum status st = g->failed;
    pthread_mutex_unlock(&g->lock);
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&g->issue);
    if (g->comm_aborted)
        st = ST_CANCELLED;
    else if (g->comm != NULL)
        st = gpu_comm_check(g->comm);
    pthread_mutex_unlock(&g->issue);
    return st;
}

enum status gpu_group_wait(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    struct gpu_group_member *m = plan->member;
    struct gpu_group *g = m->group;
    if (!gpu_group_has_bucket(plan, layer))
        return ST_OK;
    pthread_mutex_lock(&g->lock);
    while (g->failed == ST_OK && g->queued[layer] < m->asked[layer])
        pthread_cond_wait(&g->changed, &g->lock);
    st = g->failed;
    pthread_mutex_unlock(&g->lock);
    if (st != ST_OK || !m->leads)
        return st;
    for (int i = 0; i < g->n_cards; i++)
        if (i == m->card || m->host != NULL)
            TRY(gpu_check_cuda(&plan->ops[layer], "cudaEventSynchronize",
                               cudaEventSynchronize(gpu_group_leader(g, i)->copied[layer])));
    TRY(gpu_group_check(g));
    gpu_group_finish(plan, layer);
done:
    if (st != ST_OK)
        st = gpu_group_fail(g, st);
    return st;
}
