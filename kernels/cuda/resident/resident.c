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
#include "kernels/cuda/memory/bind.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/edges.h"
#include "kernels/cuda/plan/transfer.h"
#include "kernels/cuda/resident/parts.h"
#include "kernels/cuda/resident/resident.h"
#include "kernels/cuda/resident/steps.h"
#include "kernels/tuning.h"
#include <inttypes.h>
#include <stdlib.h>

enum { N_SCALARS = RESIDENT_RUNS * RESIDENT_STEPS };

/* Numbers of steps of the graphs. */
static const int graph_steps[] = {1, 8, RESIDENT_STEPS};
enum { N_GRAPHS = sizeof graph_steps / sizeof *graph_steps };

struct gpu_resident {
    struct optim_config optim;
    struct gpu_gather gather;
    struct gpu_gather_order order;
    struct gpu_optim update;
    struct gpu_tally *d_tally;
    uint32_t *d_item[2];
    struct optim_step *d_scalars;
    struct gpu_optim_part *d_parts;
    float *d_slots;
    struct gpu_arena arena; /* holds all device memory below */

    /* list of the parameters' parts, set by `begin` and copied to d_parts */
    struct gpu_optim_part *parts;
    void *pinned;               /* pinned memory of the three arrays below */
    uint32_t *item;             /* [n_items] */
    struct optim_step *scalars; /* [N_SCALARS] */
    struct gpu_tally *tallies;  /* [RESIDENT_RUNS] */
    cudaEvent_t item_sent, run_done[RESIDENT_RUNS];

    uint64_t step;           /* number of updates queued */
    uint64_t n_runs, n_over; /* number of queued runs; number of runs whose end was awaited */
    int has_begun;           /* true: a step was run */
    /* number of entries of graph_steps that are usable; 0: steps are launched kernel by kernel */
    int n_graphs;
    cudaGraphExec_t graph[N_GRAPHS]; /* NULL: not captured */
};

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
    TRY(gpu_arena_reserve(a, who, "scalars", N_SCALARS * sizeof *r->d_scalars, &r->d_scalars));
    TRY(gpu_arena_reserve(a, who, "tally", sizeof *r->d_tally, &r->d_tally));
    st = gpu_bind_arena(plan->cfg.device, a);
    if (st == ST_NOMEM)
        LOG_W(
            "the optimizer's %" PRIu64
            " bytes do not fit in the memory of device %d together with the network and the data set",
            a->bytes, plan->cfg.device);
    TRY(st);
    size_t scalars = N_SCALARS * sizeof *r->scalars, tallies = RESIDENT_RUNS * sizeof *r->tallies;
    TRY(gpu_check_cuda(
        NULL, "cudaHostAlloc",
        cudaHostAlloc(&r->pinned, tallies + scalars + (size_t)pass, cudaHostAllocDefault)));
    r->tallies = r->pinned;
    r->scalars = (struct optim_step *)(r->tallies + RESIDENT_RUNS);
    r->item = (uint32_t *)(r->scalars + N_SCALARS);
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

/* Sets the arguments of the kernels, which are the same in each step. */
static void kernels_tell(struct gpu_plan *plan, struct gpu_resident *r,
                         const struct resident_config *cfg)
{
    const struct gpu_input_data *d = (const struct gpu_input_data *)cfg->data;
    r->gather = (struct gpu_gather){.n = plan->cfg.batch,
                                    .pixels = d->pixels,
                                    .images = d->images,
                                    .labels = d->labels,
                                    .x = plan->input,
                                    .label = plan->d.label};
    r->order = (struct gpu_gather_order){.n_items = d->n,
                                         .item = {r->d_item[0], r->d_item[1]},
                                         .step = &r->d_tally->step,
                                         .first = cfg->first,
                                         .stride = cfg->stride,
                                         .position = plan->d.position};
    r->update.parts = r->d_parts;
    r->update.kind = r->optim.kind;
    r->update.second_slot = optim_n_slots(&r->optim) > 1;
    r->update.scalar = r->d_scalars;
    r->update.n_scalars = N_SCALARS;
    r->update.step = &r->d_tally->step;
    /* the step is one contribution, so it is multiplied by its weight and divided by it, as on the
     * servers */
    r->update.weight = (float)plan->cfg.batch;
    r->update.scale = (float)(1.0 / (double)plan->cfg.batch);
}

static enum status can_begin(const struct gpu_plan *plan, const struct resident_config *cfg)
{
    int last = plan->cfg.n_layers - 1;
    if (plan->cfg.inference_only || !layer_is_loss(plan->cfg.layers[last].kind) ||
        plan->cfg.mine != NULL || plan->cfg.group != NULL) {
        LOG_E(
            "CUDA backend: training without copies to the host needs a training plan of a whole network, outside a group");
        return ST_UNSUPPORTED;
    }
    return gpu_input_data_check(plan, (const struct gpu_input_data *)cfg->data);
}

enum status gpu_resident_begin(struct gpu_plan *plan, const struct resident_config *cfg)
{
    enum status st = ST_OK;
    int64_t n_elems = gpu_parts_elems(plan);
    struct gpu_resident *r = NULL;
    CHECK(plan->resident == NULL);
    TRY(can_begin(plan, cfg));
    TRY(gpu_pass_select(plan, plan->cfg.batch));
    r = calloc(1, sizeof *r);
    if (r == NULL)
        return gpu_check_no_host_memory();
    r->optim = cfg->optim;
    r->step = cfg->step;
    if (cfg->graphs)
        r->n_graphs = plan->cfg.tuning & TUNING_MULTI_STEP ? N_GRAPHS : 1;
    r->order.n_items = ((const struct gpu_input_data *)cfg->data)->n;
    r->update.n_parts = gpu_parts_count(plan);
    r->parts = calloc((size_t)r->update.n_parts + 1, sizeof *r->parts);
    if (r->parts == NULL) {
        st = gpu_check_no_host_memory();
        goto done;
    }
    TRY(memory_take(plan, r, n_elems));
    kernels_tell(plan, r, cfg);
    gpu_parts_list(plan, r->d_slots, cfg->keep, r->parts);
    TRY(memory_fill(plan, r, n_elems));
    plan->resident = r;
    plan->has_labels = 1;
done:
    if (st != ST_OK)
        gpu_resident_destroy(plan, r);
    return st;
}

void gpu_resident_destroy(struct gpu_plan *plan, struct gpu_resident *r)
{
    if (r == NULL)
        return;
    for (int k = 0; k < N_GRAPHS; k++)
        if (r->graph[k] != NULL)
            cudaGraphExecDestroy(r->graph[k]);
    for (int k = 0; k < RESIDENT_RUNS; k++)
        if (r->run_done[k] != NULL)
            cudaEventDestroy(r->run_done[k]);
    if (r->item_sent != NULL)
        cudaEventDestroy(r->item_sent);
    if (r->pinned != NULL)
        cudaFreeHost(r->pinned);
    gpu_bind_undo(plan->cfg.device, &r->arena);
    gpu_arena_free(&r->arena);
    free(r->parts);
    free(r);
}

uint64_t gpu_resident_bytes(const struct gpu_resident *r)
{
    return r != NULL ? r->arena.bytes : 0;
}

/* ---- steps ---- */

enum status gpu_resident_order(struct gpu_plan *plan, uint64_t pass, const uint32_t *item)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    size_t n = (size_t)r->order.n_items;
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

/* Launches one step, kernel by kernel. */
static enum status step_launch(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    TRY(gpu_check_kernel(NULL, "gather kernel",
                         gpu_gather_step(plan->compute, &r->gather, &r->order)));
    plan->trains = 1;
    for (int i = 0; i < plan->cfg.n_layers; i++)
        TRY(plan->ops[i].kind->forward(plan->now, i, 1));
    for (int i = plan->cfg.n_layers - 1; i >= 0; i--)
        if (plan->ops[i].needs_backward) {
            TRY(gpu_edges_backward(plan->now, i));
            TRY(gpu_branch_join(plan, i));
        }
    TRY(gpu_check_kernel(NULL, "update kernel", gpu_optim_run(plan->compute, &r->update)));
    const int32_t *hit = (const int32_t *)(plan->d_result + plan->now->n);
    TRY(gpu_check_kernel(
        NULL, "tally kernel",
        gpu_tally_step(plan->compute, plan->d_result, hit, plan->now->n, r->d_tally)));
done:
    return st;
}

/* Captures the k-th graph. If the device or a library does not support this, only shorter graphs
 * are used, or none. */
static void steps_capture(struct gpu_plan *plan, int k)
{
    struct gpu_resident *r = plan->resident;
    cudaGraph_t graph = NULL;
    cudaError_t code = cudaStreamBeginCapture(plan->compute, cudaStreamCaptureModeThreadLocal);
    if (code == cudaSuccess) {
        enum status st = ST_OK;
        for (int step = 0; step < graph_steps[k] && st == ST_OK; step++)
            st = step_launch(plan);
        code = cudaStreamEndCapture(plan->compute, &graph);
        if (code == cudaSuccess && st != ST_OK)
            code = cudaErrorStreamCaptureInvalidated;
    }
    if (code == cudaSuccess)
        code = cudaGraphInstantiate(&r->graph[k], graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (code == cudaSuccess)
        return;
    r->graph[k] = NULL;
    r->n_graphs = k;
    (void)cudaGetLastError();
    if (k == 0)
        LOG_W("a step cannot become one CUDA graph (%s): its CUDA kernels are launched one by one",
              cudaGetErrorString(code));
    else
        LOG_W("%d steps cannot become one CUDA graph (%s): a graph has at most %d", graph_steps[k],
              cudaGetErrorString(code), graph_steps[k - 1]);
}

/* Returns the longest graph of at most n steps; -1: none. */
static int graph_for(struct gpu_plan *plan, int n)
{
    struct gpu_resident *r = plan->resident;
    if (!r->has_begun)
        return -1;
    /* while the graph of one step does not exist, graphs of more steps are not tried */
    if (r->n_graphs > 0 && r->graph[0] == NULL)
        steps_capture(plan, 0);
    for (int k = r->n_graphs - 1; k >= 0; k--) {
        if (graph_steps[k] > n)
            continue;
        if (r->graph[k] == NULL)
            steps_capture(plan, k);
        if (r->graph[k] != NULL)
            return k;
    }
    return -1;
}

/* Launches the longest graph of at most n steps, or, if there is no graph, one step kernel by
 * kernel. *n_done: number of steps launched. */
static enum status steps_run(struct gpu_plan *plan, int n, int *n_done)
{
    struct gpu_resident *r = plan->resident;
    int k = graph_for(plan, n);
    r->has_begun = 1;
    *n_done = k >= 0 ? graph_steps[k] : 1;
    if (k < 0)
        return step_launch(plan);
    return gpu_check_cuda(NULL, "cudaGraphLaunch", cudaGraphLaunch(r->graph[k], plan->compute));
}

/* Sends the scalars of the updates first + 1 .. first + n, which must not wrap around the end of
 * the ring. */
static enum status scalars_send(struct gpu_plan *plan, uint64_t first, uint64_t n)
{
    struct gpu_resident *r = plan->resident;
    size_t at = (size_t)(first % N_SCALARS);
    for (uint64_t k = 0; k < n; k++)
        optim_begin(&r->optim, first + k + 1, &r->scalars[at + k]);
    return gpu_check_cuda(NULL, "cudaMemcpyAsync",
                          cudaMemcpyAsync(r->d_scalars + at, r->scalars + at,
                                          (size_t)n * sizeof *r->scalars, cudaMemcpyHostToDevice,
                                          plan->compute));
}

enum status gpu_resident_run(struct gpu_plan *plan, int n)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    CHECK(n >= 1 && n <= RESIDENT_STEPS && r->n_runs - r->n_over < RESIDENT_RUNS);
    uint64_t until_end = N_SCALARS - r->step % N_SCALARS, steps = (uint64_t)n;
    uint64_t now = steps < until_end ? steps : until_end;
    TRY(scalars_send(plan, r->step, now));
    if (now < steps)
        TRY(scalars_send(plan, r->step + now, steps - now));
    for (int left = n, done; left > 0; left -= done)
        TRY(steps_run(plan, left, &done));
    int slot = (int)(r->n_runs % RESIDENT_RUNS);
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(&r->tallies[slot], r->d_tally, sizeof *r->tallies,
                                       cudaMemcpyDeviceToHost, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaEventRecord", cudaEventRecord(r->run_done[slot], plan->compute)));
    r->step += steps;
    r->n_runs++;
done:
    return st;
}

enum status gpu_resident_wait(struct gpu_plan *plan, struct resident_result *out)
{
    enum status st = ST_OK;
    struct gpu_resident *r = plan->resident;
    CHECK(r->n_over < r->n_runs);
    int slot = (int)(r->n_over % RESIDENT_RUNS);
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
