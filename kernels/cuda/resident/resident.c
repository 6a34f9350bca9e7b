/* kernels/cuda/resident/resident.c - implements kernels/resident.h for CUDA.
 *
 * DESIGN. The device counts the steps itself (gpu_tally). From this count the gather kernel derives
 * the next samples, and the update kernel finds the scalars of the optimizer. So each step consists
 * of the same launches and can be captured as one graph. The host sends in advance the data that
 * changes: the order of each pass, and the scalars of each run. A ring holds the scalars of all
 * runs that can be queued. A run ends with a copy of the count, the loss and the number of correct
 * samples to the host. The very first step is launched kernel by kernel, because libraries
 * initialise themselves in it; then the step is captured. If a capture fails, steps are launched
 * kernel by kernel. TUNING_MULTI_STEP adds graphs of several steps, which repeat the launches of a
 * step. Each graph is captured when a run has that number of steps for the first time. A run always
 * launches the longest graph that fits its remaining steps. If a capture fails, shorter graphs are
 * used. */
#include "kernels/resident.h"
#include "base/log.h"
#include "kernels/cuda/groups/group.h"
#include "kernels/cuda/memory/bind.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/edges.h"
#include "kernels/cuda/plan/transfer.h"
#include "kernels/cuda/resident/cards.h"
#include "kernels/cuda/resident/parts.h"
#include "kernels/cuda/resident/resident.h"
#include "kernels/cuda/resident/steps.h"
#include "kernels/tuning.h"
#include <inttypes.h>
#include <stdlib.h>

/* ---- begin ---- */

static enum status memory_take(struct gpu_plan *plan, struct gpu_resident *r, int64_t n_elems)
{
    enum status st = ST_OK;
    struct gpu_arena *a = &r->arena;
    const char *who = "(training on the device)";
    uint64_t n_slots = (uint64_t)optim_n_slots(&r->optim), pass = (uint64_t)r->order.n_items * 4;
    gpu_arena_init(a, UINT64_MAX, 0);
    TRY(gpu_arena_reserve(a, who, "optimizer's slots", n_slots * (uint64_t)n_elems * sizeof(float),
                          &r->d_slots));
    TRY(gpu_arena_reserve(a, who, "parts", (uint64_t)r->update.n_parts * sizeof *r->d_parts,
                          &r->d_parts));
    for (int k = 0; k < 2; k++)
        TRY(gpu_arena_reserve(a, who, "order", pass, &r->d_item[k]));
    TRY(gpu_arena_reserve(a, who, "scalars", GPU_RESIDENT_SCALARS * sizeof *r->d_scalars,
                          &r->d_scalars));
    TRY(gpu_arena_reserve(a, who, "tally", sizeof *r->d_tally, &r->d_tally));
    st = gpu_bind_arena(plan->cfg.device, a);
    if (st == ST_NOMEM)
        LOG_W(
            "the optimizer's %" PRIu64
            " bytes do not fit in the memory of device %d together with the network and the data set",
            a->bytes, plan->cfg.device);
    TRY(st);
    size_t scalars = GPU_RESIDENT_SCALARS * sizeof *r->scalars,
           tallies = RESIDENT_RUNS * sizeof *r->tallies;
    TRY(gpu_check_cuda(
        NULL, "cudaHostAlloc",
        cudaHostAlloc(&r->pinned, tallies + scalars + (size_t)pass, cudaHostAllocDefault)));
    r->tallies = r->pinned;
    r->scalars = (struct optim_step *)(r->tallies + RESIDENT_RUNS);
    r->item = (uint32_t *)(r->scalars + GPU_RESIDENT_SCALARS);
done:
    return st;
}

/* Writes the initial state to the device. `parts` and the tally are copied before this function
 * returns. */
static enum status memory_fill(struct gpu_plan *plan, struct gpu_resident *r, int64_t n_elems)
{
    enum status st = ST_OK;
    struct gpu_tally start = {.step = r->step};
    size_t slots = (size_t)optim_n_slots(&r->optim) * (size_t)n_elems * sizeof(float);
    TRY(gpu_transfer_event_create(NULL, &r->item_sent));
    for (int k = 0; k < RESIDENT_RUNS; k++)
        TRY(gpu_transfer_event_create(NULL, &r->run_done[k]));
    for (int k = 0; k < GPU_CARDS_AHEAD && r->first_part != NULL; k++)
        TRY(gpu_transfer_event_create(NULL, &r->step_done[k]));
    if (slots > 0)
        TRY(gpu_check_cuda(NULL, "cudaMemsetAsync",
                           cudaMemsetAsync(r->d_slots, 0, slots, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(r->d_parts, r->parts,
                                       (size_t)r->update.n_parts * sizeof *r->parts,
                                       cudaMemcpyHostToDevice, plan->compute)));
    TRY(gpu_check_cuda(
        NULL, "cudaMemcpyAsync",
        cudaMemcpyAsync(r->d_tally, &start, sizeof start, cudaMemcpyHostToDevice, plan->compute)));
    for (int i = 0; i < plan->cfg.n_layers; i++)
        TRY(gpu_transfer_wait_params(plan, i, 0));
    TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(plan->compute)));
done:
    return st;
}

/* Sets the arguments of the kernels, which are the same in each step. batch: samples of all
 * cards. */
static void kernels_tell(struct gpu_plan *plan, struct gpu_resident *r,
                         const struct resident_peer *own, uint64_t stride, int batch)
{
    const struct gpu_input_data *d = (const struct gpu_input_data *)own->data;
    r->gather = (struct gpu_gather){.n = plan->cfg.batch,
                                    .pixels = d->pixels,
                                    .images = d->images,
                                    .labels = d->labels,
                                    .x = plan->input,
                                    .label = plan->d.label};
    r->order = (struct gpu_gather_order){.n_items = d->n,
                                         .item = {r->d_item[0], r->d_item[1]},
                                         .step = &r->d_tally->step,
                                         .first = own->first,
                                         .stride = stride,
                                         .position = plan->d.position};
    r->update.parts = r->d_parts;
    r->update.kind = r->optim.kind;
    r->update.second_slot = optim_n_slots(&r->optim) > 1;
    r->update.scalar = r->d_scalars;
    r->update.n_scalars = GPU_RESIDENT_SCALARS;
    r->update.step = &r->d_tally->step;
    /* the step is one contribution, so it is multiplied by its weight and divided by it, as on the
     * servers */
    r->update.weight = (float)batch;
    r->update.scale = (float)(1.0 / (double)batch);
}

static enum status can_begin(const struct gpu_plan *plan, const struct resident_peer *own,
                             const struct resident_config *cfg)
{
    int last = plan->cfg.n_layers - 1;
    if (plan->cfg.inference_only || !layer_is_loss(plan->cfg.layers[last].kind) ||
        plan->cfg.mine != NULL) {
        LOG_E(
            "CUDA backend: training without copies to the host needs a training plan of a whole network");
        return ST_UNSUPPORTED;
    }
    enum status st = gpu_cards_can_begin(plan, cfg);
    return st == ST_OK ? gpu_input_data_check(plan, (const struct gpu_input_data *)own->data) : st;
}

/* Creates the state of one card. batch: samples of all cards. */
static enum status card_begin(struct gpu_plan *plan, const struct resident_peer *own,
                              const struct resident_config *cfg, int batch)
{
    enum status st = ST_OK;
    TRY(gpu_cards_select(plan));
    TRY(gpu_pass_select(plan, plan->cfg.batch));
    struct gpu_resident *r = plan->resident = calloc(1, sizeof *r);
    if (r == NULL)
        return gpu_check_no_host_memory();
    r->optim = cfg->optim;
    r->step = cfg->step;
    if (cfg->graphs)
        r->n_graphs = plan->cfg.tuning & TUNING_MULTI_STEP ? GPU_RESIDENT_GRAPHS : 1;
    r->order.n_items = ((const struct gpu_input_data *)own->data)->n;
    TRY(gpu_cards_parts_count(plan, cfg->n_peers > 0));
    r->parts = calloc((size_t)r->update.n_parts + 1, sizeof *r->parts);
    if (r->parts == NULL)
        return gpu_check_no_host_memory();
    TRY(memory_take(plan, r, r->n_elems));
    kernels_tell(plan, r, own, cfg->stride, batch);
    if (cfg->n_peers > 0)
        gpu_cards_parts_list(plan, cfg->keep);
    else
        gpu_parts_list(plan, r->d_slots, cfg->keep, r->parts);
    TRY(memory_fill(plan, r, r->n_elems));
    plan->has_labels = 1;
done:
    return st;
}

/* Returns the plan and the samples of the c-th card. */
static struct resident_peer card_of(struct gpu_plan *plan, const struct resident_config *cfg, int c)
{
    if (c > 0)
        return cfg->peers[c - 1];
    return (struct resident_peer){(struct plan *)plan, cfg->data, cfg->first};
}

enum status gpu_resident_begin(struct gpu_plan *plan, const struct resident_config *cfg)
{
    enum status st = ST_OK;
    int n = 1 + cfg->n_peers, batch = 0;
    struct gpu_plan **cards = calloc((size_t)n, sizeof(*cards));
    if (cards == NULL)
        return gpu_check_no_host_memory();
    for (int c = 0; c < n; c++) {
        struct resident_peer own = card_of(plan, cfg, c);
        struct gpu_plan *card = (struct gpu_plan *)own.plan;
        CHECK(card->resident == NULL && card->cfg.group == plan->cfg.group);
        TRY(can_begin(card, &own, cfg));
        cards[c] = card;
        batch += card->cfg.batch;
    }
    for (int c = 0; c < n; c++) {
        struct resident_peer own = card_of(plan, cfg, c);
        TRY(card_begin(cards[c], &own, cfg, batch));
    }
    if (n > 1)
        TRY(gpu_group_begin(plan->member->group));
    plan->resident->cards = cards;
    plan->resident->n_cards = n;
    return ST_OK;
done:
    for (int c = 0; c < n && cards[c] != NULL; c++) {
        (void)gpu_cards_select(cards[c]);
        gpu_resident_destroy(cards[c], cards[c]->resident);
        cards[c]->resident = NULL;
    }
    free(cards);
    return st;
}

void gpu_resident_destroy(struct gpu_plan *plan, struct gpu_resident *r)
{
    if (r == NULL)
        return;
    for (int k = 0; k < GPU_RESIDENT_GRAPHS; k++)
        if (r->graph[k] != NULL)
            cudaGraphExecDestroy(r->graph[k]);
    for (int k = 0; k < RESIDENT_RUNS; k++)
        if (r->run_done[k] != NULL)
            cudaEventDestroy(r->run_done[k]);
    for (int k = 0; k < GPU_CARDS_AHEAD; k++)
        if (r->step_done[k] != NULL)
            cudaEventDestroy(r->step_done[k]);
    if (r->item_sent != NULL)
        cudaEventDestroy(r->item_sent);
    if (r->pinned != NULL)
        cudaFreeHost(r->pinned);
    gpu_bind_undo(plan->cfg.device, &r->arena);
    gpu_arena_free(&r->arena);
    free(r->first_part);
    free(r->cards);
    free(r->parts);
    free(r);
}

uint64_t gpu_resident_bytes(const struct gpu_resident *r)
{
    return r != NULL ? r->arena.bytes : 0;
}

/* ---- steps ---- */

static enum status card_order(struct gpu_plan *plan, uint64_t pass, const uint32_t *item)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    size_t n = (size_t)r->order.n_items;
    TRY(gpu_cards_select(plan));
    TRY(gpu_check_cuda(NULL, "cudaEventSynchronize", cudaEventSynchronize(r->item_sent)));
    for (size_t i = 0; i < n; i++) {
        if (item[i] >= n) {
            LOG_E("CUDA backend: sample index %" PRIu32
                  " is out of range: the data set has %zu samples",
                  item[i], n);
            return ST_RANGE;
        }
        r->item[i] = item[i];
    }
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(r->d_item[pass & 1], r->item, n * sizeof *item,
                                       cudaMemcpyHostToDevice, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaEventRecord", cudaEventRecord(r->item_sent, plan->compute)));
done:
    return st;
}

enum status gpu_resident_order(struct gpu_plan *plan, uint64_t pass, const uint32_t *item)
{
    enum status st = ST_OK;
    TRY(gpu_cards_wait_for(plan, GPU_CARDS_ITEM_SENT, 0));
    for (int c = 0; c < plan->resident->n_cards; c++)
        TRY(card_order(plan->resident->cards[c], pass, item));
done:
    return gpu_cards_end(plan, st);
}

static enum status forward_launch(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    TRY(gpu_cards_select(plan));
    TRY(gpu_check_kernel(NULL, "gather kernel",
                         gpu_gather_step(plan->compute, &r->gather, &r->order)));
    plan->trains = 1;
    for (int i = 0; i < plan->cfg.n_layers; i++)
        TRY(plan->ops[i].kind->forward(plan->now, i, 1));
done:
    return st;
}

static enum status backward_launch(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    TRY(gpu_cards_select(plan));
    TRY(gpu_edges_backward(plan->now, layer));
    TRY(gpu_cards_mark(plan, layer));
    TRY(gpu_branch_join(plan, layer));
done:
    return st;
}

/* Launches the end of a step: the update, unless each layer was updated after its backward, and the
 * tally. */
static enum status end_launch(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    TRY(gpu_cards_select(plan));
    if (r->first_part != NULL)
        TRY(gpu_cards_join(plan));
    else
        TRY(gpu_check_kernel(NULL, "update kernel", gpu_optim_run(plan->compute, &r->update)));
    const int32_t *hit = (const int32_t *)(plan->d_result + plan->now->n);
    TRY(gpu_check_kernel(
        NULL, "tally kernel",
        gpu_tally_step(plan->compute, plan->d_result, hit, plan->now->n, r->d_tally)));
done:
    return st;
}

/* Launches one step of all cards, kernel by kernel. */
static enum status step_launch(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    const struct gpu_resident *r = plan->resident;
    for (int c = 0; c < r->n_cards; c++)
        TRY(forward_launch(r->cards[c]));
    for (int i = plan->cfg.n_layers - 1; i >= 0; i--) {
        if (!plan->ops[i].needs_backward)
            continue;
        for (int c = 0; c < r->n_cards; c++)
            TRY(backward_launch(r->cards[c], i));
        TRY(gpu_cards_exchange(plan, i));
    }
    for (int c = 0; c < r->n_cards; c++)
        TRY(end_launch(r->cards[c]));
done:
    return st;
}

/* Ends the capture on one card, and creates its k-th graph if `code` is cudaSuccess. */
static cudaError_t card_capture_end(struct gpu_plan *plan, int k, cudaError_t code)
{
    struct gpu_resident *r = plan->resident;
    cudaGraph_t graph = NULL;
    if (gpu_cards_select(plan) != ST_OK)
        code = cudaErrorStreamCaptureInvalidated;
    cudaError_t end = cudaStreamEndCapture(plan->compute, &graph);
    code = code == cudaSuccess ? end : code;
    if (code == cudaSuccess)
        code = cudaGraphInstantiate(&r->graph[k], graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (code != cudaSuccess)
        r->graph[k] = NULL;
    return code;
}

/* Captures the k-th graph of each card. */
static cudaError_t cards_capture(struct gpu_plan *plan, int k)
{
    const struct gpu_resident *r = plan->resident;
    cudaError_t code = cudaSuccess;
    int n = 0;
    for (; n < r->n_cards && code == cudaSuccess; n += code == cudaSuccess) {
        code = gpu_cards_select(r->cards[n]) == ST_OK ? cudaSuccess : cudaErrorUnknown;
        if (code == cudaSuccess)
            code = cudaStreamBeginCapture(r->cards[n]->compute, cudaStreamCaptureModeThreadLocal);
    }
    for (int step = 0; step < gpu_resident_graph_steps[k] && code == cudaSuccess; step++)
        if (step_launch(plan) != ST_OK)
            code = cudaErrorStreamCaptureInvalidated;
    for (int c = 0; c < n; c++)
        code = card_capture_end(r->cards[c], k, code);
    for (int c = 0; c < n && code != cudaSuccess; c++)
        if (r->cards[c]->resident->graph[k] != NULL) {
            cudaGraphExecDestroy(r->cards[c]->resident->graph[k]);
            r->cards[c]->resident->graph[k] = NULL;
        }
    return code;
}

/* Captures the k-th graph. If the device or a library does not support this, only shorter graphs
 * are used, or none. After an error of NCCL the cards cannot continue. */
static enum status steps_capture(struct gpu_plan *plan, int k)
{
    struct gpu_resident *r = plan->resident;
    cudaError_t code = cards_capture(plan, k);
    if (code == cudaSuccess)
        return ST_OK;
    enum status st = gpu_cards_check(plan);
    if (st == ST_INTERNAL)
        LOG_I("training ends, because NCCL failed while a step was captured as a CUDA graph");
    if (st != ST_OK)
        return st;
    r->n_graphs = k;
    (void)cudaGetLastError();
    if (k == 0)
        LOG_W("a step cannot become one CUDA graph (%s): its CUDA kernels are launched one by one",
              cudaGetErrorString(code));
    else
        LOG_W("%d steps cannot become one CUDA graph (%s): a graph has at most %d",
              gpu_resident_graph_steps[k], cudaGetErrorString(code),
              gpu_resident_graph_steps[k - 1]);
    return ST_OK;
}

/* Finds the longest graph of at most n steps. *found: -1: none. */
static enum status graph_find(struct gpu_plan *plan, int n, int *found)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    *found = -1;
    if (!r->has_begun)
        return ST_OK;
    /* while the graph of one step does not exist, graphs of more steps are not tried */
    if (r->n_graphs > 0 && r->graph[0] == NULL)
        TRY(steps_capture(plan, 0));
    for (int k = r->n_graphs - 1; k >= 0 && *found < 0; k--) {
        if (gpu_resident_graph_steps[k] > n)
            continue;
        if (r->graph[k] == NULL)
            TRY(steps_capture(plan, k));
        if (r->graph[k] != NULL)
            *found = k;
    }
done:
    return st;
}

/* Launches the longest graph of at most n steps, or, if there is no graph, one step kernel by
 * kernel. *n_done: number of steps launched. */
static enum status steps_run(struct gpu_plan *plan, int n, int *n_done)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    int k;
    TRY(graph_find(plan, n, &k));
    r->has_begun = 1;
    *n_done = k >= 0 ? gpu_resident_graph_steps[k] : 1;
    if (k < 0)
        return gpu_cards_step(plan, step_launch);
    for (int c = 0; c < r->n_cards; c++) {
        struct gpu_plan *card = r->cards[c];
        TRY(gpu_cards_select(card));
        TRY(gpu_check_cuda(NULL, "cudaGraphLaunch",
                           cudaGraphLaunch(card->resident->graph[k], card->compute)));
    }
done:
    return st;
}

/* Sends the scalars of the updates first + 1 .. first + n, which must not wrap around the end of
 * the ring. */
static enum status scalars_send(struct gpu_plan *plan, uint64_t first, uint64_t n)
{
    struct gpu_resident *r = plan->resident;
    size_t at = (size_t)(first % GPU_RESIDENT_SCALARS);
    for (uint64_t k = 0; k < n; k++)
        optim_begin(&r->optim, first + k + 1, &r->scalars[at + k]);
    return gpu_check_cuda(NULL, "cudaMemcpyAsync",
                          cudaMemcpyAsync(r->d_scalars + at, r->scalars + at,
                                          (size_t)n * sizeof *r->scalars, cudaMemcpyHostToDevice,
                                          plan->compute));
}

/* Sends the scalars of the next n updates. */
static enum status run_begin(struct gpu_plan *plan, uint64_t n)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    uint64_t until_end = GPU_RESIDENT_SCALARS - r->step % GPU_RESIDENT_SCALARS;
    uint64_t now = n < until_end ? n : until_end;
    TRY(gpu_cards_select(plan));
    TRY(scalars_send(plan, r->step, now));
    if (now < n)
        TRY(scalars_send(plan, r->step + now, n - now));
done:
    return st;
}

/* Queues the copy of the results of n updates to the host. */
static enum status run_end(struct gpu_plan *plan, uint64_t n)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    int slot = (int)(r->n_runs % RESIDENT_RUNS);
    TRY(gpu_cards_select(plan));
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(&r->tallies[slot], r->d_tally, sizeof *r->tallies,
                                       cudaMemcpyDeviceToHost, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaEventRecord", cudaEventRecord(r->run_done[slot], plan->compute)));
    r->step += n;
    r->n_runs++;
done:
    return st;
}

static enum status run_queue(struct gpu_plan *plan, int n)
{
    enum status st = ST_OK;
    const struct gpu_resident *r = plan->resident;
    TRY(gpu_cards_check(plan));
    for (int c = 0; c < r->n_cards; c++)
        TRY(run_begin(r->cards[c], (uint64_t)n));
    for (int left = n, done; left > 0; left -= done)
        TRY(steps_run(plan, left, &done));
    for (int c = 0; c < r->n_cards; c++)
        TRY(run_end(r->cards[c], (uint64_t)n));
done:
    return st;
}

enum status gpu_resident_run(struct gpu_plan *plan, int n)
{
    const struct gpu_resident *r = plan->resident;
    CHECK(n >= 1 && n <= RESIDENT_STEPS && r->n_runs - r->n_over < RESIDENT_RUNS);
    return gpu_cards_end(plan, run_queue(plan, n));
}

enum status gpu_resident_wait(struct gpu_plan *plan, struct resident_result *out)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    CHECK(r->n_over < r->n_runs);
    int slot = (int)(r->n_over % RESIDENT_RUNS);
    if (r->n_cards > 1)
        return gpu_cards_wait(plan, slot, out);
    TRY(gpu_check_cuda(NULL, "cudaEventSynchronize", cudaEventSynchronize(r->run_done[slot])));
    r->n_over++;
    const struct gpu_tally *t = &r->tallies[slot];
    *out = (struct resident_result){t->step, (float)t->loss, (int)t->hits};
done:
    return st;
}

int gpu_resident_is_graph(const struct gpu_plan *plan)
{
    /* longer graphs are captured only after the graph of one step */
    return plan->resident->graph[0] != NULL;
}
