/* kernels/cuda/resident/cards.c - training without copies to the host on several cards.
 *
 * DESIGN. One thread queues the steps of all cards. Each card has a copy of the parameters, and
 * computes the gradients of its samples. The sum of a layer's gradients, weighted by samples, is
 * divided among the cards by a reduce-scatter. Each card updates its share of the parameters, and
 * has the optimizer's slots of this share only. Then an all-gather copies the new shares to all
 * cards. So all cards have the same bits by construction: each value is computed on one card. The
 * sum has the same bits as in a group whose gradients are copied to the host (group_sum.c).
 *
 * An all-gather of parameters moves as many bytes as the all-gather of summed gradients with which
 * an all-reduce ends. Each card updates 1/n of the values, and holds 1/n of the slots.
 *
 * The exchange of a layer runs on the stream `down`, while `compute` runs the backward of the
 * layers below. The exchange waits for the event `ready`, recorded after the layer's gradients, and
 * the event `used`, recorded after the last use of the layer's parameters. `compute` waits for the
 * last exchange before the end of the step. In a graph these events are edges. Each card has a
 * graph of its own, and all graphs of a step are captured at once, because a sum must be captured
 * in all graphs of the step.
 *
 * A card that is lost never ends its part of a sum, and the other cards wait for it. So
 * each wait looks at all cards in turn, and the first error, or a cancel, ends NCCL's work on all
 * of them. NCCL does not return from an abort while graphs contain its work. So only the thread
 * that queues aborts, after it has destroyed the graphs of all cards. On a lost card it cannot
 * destroy them: then the process ends without an abort.
 *
 * Without graphs a step has many launches, and CUDA lets a launch wait if too many are queued. No
 * thread would then look at the cards, so at most GPU_CARDS_AHEAD such steps are queued. */
#include "kernels/cuda/resident/cards.h"
#include "base/log.h"
#include "base/process.h"
#include "kernels/cuda/groups/group.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/resident/parts.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { POLL_NS = 50000 };

static struct gpu_group *group_of(const struct gpu_plan *plan)
{
    return plan->member->group;
}

enum status gpu_cards_select(const struct gpu_plan *plan)
{
    if (plan->cfg.group == NULL) /* the caller has selected the only card */
        return ST_OK;
    return gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(plan->cfg.device));
}

enum status gpu_cards_can_begin(const struct gpu_plan *plan, const struct resident_config *cfg)
{
    const struct gpu_group *g = (const struct gpu_group *)plan->cfg.group;
    if ((g == NULL ? 1 : g->n) != 1 + cfg->n_peers) {
        LOG_E("CUDA backend: training without copies to the host needs all plans of a group");
        return ST_UNSUPPORTED;
    }
    if (g != NULL && !gpu_group_can_gather(g)) {
        LOG_I("the cards cannot exchange parameters: that needs NCCL, and one tower on each card");
        return ST_UNSUPPORTED;
    }
    return ST_OK;
}

/* ---- parts ---- */

static int64_t n_parts_of(int64_t elems)
{
    return (elems + GPU_OPTIM_ELEMS - 1) / GPU_OPTIM_ELEMS;
}

enum status gpu_cards_parts_count(struct gpu_plan *plan, int are_several)
{
    struct gpu_resident *r = plan->resident;
    int64_t n = 0;
    if (!are_several) {
        r->n_elems = gpu_parts_elems(plan);
        r->update.n_parts = gpu_parts_count(plan);
        return ST_OK;
    }
    r->first_part = calloc((size_t)plan->cfg.n_layers + 1, sizeof *r->first_part);
    if (r->first_part == NULL)
        return gpu_check_no_host_memory();
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        r->first_part[i] = (int)n;
        for (int k = 0; gpu_group_has_bucket(plan, i) && k < plan->cfg.layers[i].n_params; k++) {
            struct gpu_group_part p = gpu_group_part(plan, i, k);
            r->n_elems += p.hi - p.lo;
            n += n_parts_of(p.hi - p.lo);
        }
    }
    r->first_part[plan->cfg.n_layers] = r->update.n_parts = (int)n;
    return ST_OK;
}

void gpu_cards_parts_list(const struct gpu_plan *plan, const float *keep)
{
    const struct gpu_resident *r = plan->resident;
    struct gpu_optim_part *out = r->parts;
    float *slot = r->d_slots;
    for (int i = 0; i < plan->cfg.n_layers; i++)
        for (int k = 0; gpu_group_has_bucket(plan, i) && k < plan->cfg.layers[i].n_params; k++) {
            struct gpu_group_part p = gpu_group_part(plan, i, k);
            for (int64_t at = p.lo; at < p.hi; at += GPU_OPTIM_ELEMS, out++) {
                int64_t n = p.hi - at < GPU_OPTIM_ELEMS ? p.hi - at : GPU_OPTIM_ELEMS;
                *out = (struct gpu_optim_part){.p = plan->params[p.param].d + at,
                                               .g = p.sum + at,
                                               .slot = {slot, slot + r->n_elems},
                                               .n = (int32_t)n,
                                               .keep = keep[p.param]};
                slot += n;
            }
        }
}

/* ---- steps ---- */

enum status gpu_cards_mark(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[layer];
    if (plan->resident->first_part == NULL || !gpu_group_has_bucket(plan, layer))
        return ST_OK;
    TRY(gpu_check_cuda(op, "cudaEventRecord", cudaEventRecord(plan->used[layer], plan->compute)));
    TRY(gpu_check_cuda(op, "cudaEventRecord",
                       cudaEventRecord(plan->ready[layer], gpu_branch_stream(plan, layer))));
done:
    return st;
}

/* Queues the update of this card's share of a layer. */
static enum status share_update(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    const struct gpu_resident *r = plan->resident;
    const struct gpu_op *op = &plan->ops[layer];
    struct gpu_optim u = r->update;
    u.parts += r->first_part[layer];
    u.n_parts = r->first_part[layer + 1] - r->first_part[layer];
    TRY(gpu_cards_select(plan));
    TRY(gpu_check_cuda(op, "cudaStreamWaitEvent",
                       cudaStreamWaitEvent(plan->down, plan->used[layer], 0)));
    if (u.n_parts > 0) /* otherwise the layer is small, and is in the shares of other cards only */
        TRY(gpu_check_kernel(op, "update kernel", gpu_optim_run(plan->down, &u)));
done:
    return st;
}

enum status gpu_cards_exchange(struct gpu_plan *first, int layer)
{
    enum status st = ST_OK;
    const struct gpu_resident *r = first->resident;
    if (r->n_cards == 1 || !gpu_group_has_bucket(first, layer))
        return ST_OK;
    TRY(gpu_group_reduce(group_of(first), layer));
    for (int c = 0; c < r->n_cards; c++)
        TRY(share_update(r->cards[c], layer));
    TRY(gpu_group_gather(group_of(first), layer));
done:
    return st;
}

enum status gpu_cards_join(struct gpu_plan *plan)
{
    for (int i = 0; i < plan->cfg.n_layers; i++)
        if (gpu_group_has_bucket(plan, i)) /* the exchange of the lowest layer is the last one */
            return gpu_check_cuda(&plan->ops[i], "cudaStreamWaitEvent",
                                  cudaStreamWaitEvent(plan->compute, plan->copied[i], 0));
    return ST_OK;
}

/* ---- the end of a group ---- */

static enum status graphs_destroy(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    for (int k = 0; k < GPU_RESIDENT_GRAPHS; k++) {
        cudaGraphExec_t graph = r->graph[k];
        r->graph[k] = NULL;
        if (graph == NULL)
            continue;
        TRY(gpu_cards_select(plan));
        TRY(gpu_check_cuda(NULL, "cudaGraphExecDestroy", cudaGraphExecDestroy(graph)));
    }
done:
    return st;
}

/* Ends the exchanges of all cards. */
static void group_end(struct gpu_group *g)
{
    enum status st = ST_OK;
    for (int c = 0; c < g->n; c++)
        if (g->plan[c] != NULL && g->plan[c]->resident != NULL)
            TRY(graphs_destroy(g->plan[c]));
    gpu_group_abort(g);
done:
    if (st == ST_OK)
        return;
    LOG_E(
        "CUDA backend: a card is lost, and its CUDA graph of NCCL's work cannot be destroyed. The other cards wait for this card forever, so this process exits without waiting for them");
    log_flush(LOG_END_MS);
    _exit(process_exit_code(EXIT_RETRY));
}

enum status gpu_cards_end(struct gpu_plan *first, enum status st)
{
    if (st == ST_OK || first->resident->n_cards == 1)
        return st;
    st = gpu_group_fail(group_of(first), st);
    group_end(group_of(first));
    return st;
}

void gpu_cards_leave(struct gpu_plan *plan)
{
    if (plan->resident != NULL && plan->resident->first_part != NULL &&
        gpu_group_check(group_of(plan)) != ST_OK)
        group_end(group_of(plan));
}

/* ---- waits ---- */

static cudaEvent_t event_of(const struct gpu_resident *r, enum gpu_cards_event what, int slot)
{
    return what == GPU_CARDS_ITEM_SENT   ? r->item_sent
           : what == GPU_CARDS_STEP_DONE ? r->step_done[slot]
                                         : r->run_done[slot];
}

/* Adds 1 to *n_done if the card's event is over. */
static enum status card_look(const struct gpu_plan *plan, enum gpu_cards_event what, int slot,
                             int *n_done)
{
    enum status st = ST_OK;
    TRY(gpu_cards_select(plan));
    cudaError_t code = cudaEventQuery(event_of(plan->resident, what, slot));
    if (code == cudaErrorNotReady)
        (void)cudaGetLastError(); /* clears it, or the next launch would report it */
    else
        TRY(gpu_check_cuda(NULL, "cudaEventQuery", code));
    *n_done += code == cudaSuccess;
done:
    return st;
}

enum status gpu_cards_wait_for(struct gpu_plan *first, enum gpu_cards_event what, int slot)
{
    enum status st = ST_OK;
    const struct timespec pause = {.tv_nsec = POLL_NS};
    const struct gpu_resident *r = first->resident;
    for (int n_done = 0; n_done < r->n_cards && r->n_cards > 1;) {
        n_done = 0;
        for (int c = 0; c < r->n_cards; c++)
            TRY(card_look(r->cards[c], what, slot, &n_done));
        TRY(gpu_group_check(group_of(first)));
        if (n_done < r->n_cards)
            nanosleep(&pause, NULL);
    }
done:
    return st;
}

enum status gpu_cards_step(struct gpu_plan *first, enum status (*launch)(struct gpu_plan *first))
{
    enum status st = ST_OK;
    struct gpu_resident *r = first->resident;
    int slot = (int)(r->n_launched++ % GPU_CARDS_AHEAD);
    TRY(gpu_cards_wait_for(first, GPU_CARDS_STEP_DONE, slot));
    TRY(launch(first));
    for (int c = 0; c < r->n_cards && r->n_cards > 1; c++) {
        const struct gpu_plan *card = r->cards[c];
        TRY(gpu_cards_select(card));
        TRY(gpu_check_cuda(NULL, "cudaEventRecord",
                           cudaEventRecord(card->resident->step_done[slot], card->compute)));
    }
done:
    return st;
}

enum status gpu_cards_check(const struct gpu_plan *first)
{
    return first->resident->n_cards > 1 ? gpu_group_check(group_of(first)) : ST_OK;
}

enum status gpu_cards_wait(struct gpu_plan *first, int slot, struct resident_result *out)
{
    enum status st = ST_OK;
    struct gpu_resident *r = first->resident;
    double loss = 0.0, batch = (double)r->update.weight;
    int64_t hits = 0;
    TRY(gpu_cards_wait_for(first, GPU_CARDS_RUN_DONE, slot));
    r->n_over++;
    for (int c = 0; c < r->n_cards; c++) {
        const struct gpu_tally *t = &r->cards[c]->resident->tallies[slot];
        loss += (double)(float)t->loss * r->cards[c]->cfg.batch / batch;
        hits += t->hits;
    }
    *out = (struct resident_result){r->tallies[slot].step, (float)loss, (int)hits};
done:
    return gpu_cards_end(first, st);
}
