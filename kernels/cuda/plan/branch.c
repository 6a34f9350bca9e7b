/* kernels/cuda/plan/branch.c - the second stream of the backward.
 *
 * DESIGN. The layers below a layer need the gradients with respect to its inputs at once, but no
 * layer needs the gradients with respect to its parameters. So if the backward of a convolution or
 * dense layer computes both kinds of gradients, it forks: an event on `compute` marks that the
 * gradient with respect to the layer's output is ready. The second stream then computes the
 * gradients of weights and bias, while `compute` continues with the gradient with respect to the
 * input and the layers below. In a capture, this event adds the second stream to the capture, and
 * the stream's work becomes a branch of the graph. The backward of a layer that computes only one
 * of the two stays on `compute`.
 * - A branch reads its layer's input, which the next forward overwrites, and the gradient with
 *   respect to its output, whose buffer is reused for other gradients (diffs.h). Each branch ends
 *   with an event. gpu_branch_plan determines for each layer the branch for which `compute` must
 *   wait before the layer's backward writes to a buffer. In a chain of layers this is the branch of
 *   the last layer that has forked. So the two products of a layer run in parallel, and a branch
 *   also runs in parallel with the next layers that have no branch.
 * - A branch writes only gradients of parameters. The readers of these gradients wait for the event
 *   `ready`, which is recorded on the stream that computes them (layers.c). An update of parameters
 *   on the device is queued after the whole backward, and at the end of the backward `compute`
 *   waits for the last branch. So a step is complete before the next one begins.
 * - A branch has separate buffers (a lane) with the same sizes as those of `compute`. So products
 *   on both lanes use the same algorithms and have the same bits.
 *
 * The second lane is reserved after all other memory of the plan, if it needs at most half of the
 * remaining memory, because later plans need memory, too. Otherwise there is no second lane. Plans
 * that compute only some of the layers never have one. */
#include "kernels/cuda/plan/branch.h"
#include "base/log.h"
#include "kernels/cuda/plan/transfer.h"
#include "kernels/tuning.h"
#include <inttypes.h>
#include <stdlib.h>

struct gpu_branch {
    struct gpu_lane lane;
    cudaEvent_t forked; /* the gradient with respect to the output of the current layer is ready */
    cudaEvent_t *done;  /* [n_layers] the layer's branch has ended; NULL: no branch */
    /* [n_layers] layer whose branch must end before the backward of this layer; -1: none */
    int *wait;
    int lowest; /* lowest layer that has a backward */
    int last;   /* layer of the last branch, unless a layer waits for that branch; otherwise -1 */
};

struct gpu_lane gpu_branch_main_lane(const struct gpu_plan *plan)
{
    struct gpu_lane lane = {.plan = plan,
                            .stream = plan->compute,
                            .cudnn = plan->cudnn,
                            .cublas = plan->cublas,
                            .workspace = plan->workspace,
                            .blas_workspace = plan->blas_workspace,
                            .scratch = plan->scratch};
    for (int k = 0; k < GPU_N_CASTS; k++)
        lane.cast[k] = plan->cast[k];
    return lane;
}

/* ---- while planning ---- */

static int has_branch(const struct gpu_plan *plan, int layer)
{
    const struct gpu_op *op = &plan->ops[layer];
    return op->needs_backward && op->needs_dx && op->dy != NULL &&
           (op->kind == &gpu_conv || op->kind == &gpu_dense);
}

/* Returns the lowest layer above this one whose branch reads memory that this layer's backward
 * writes; -1: none. That layer's branch is queued after the branches of all other such layers.
 * reader: for each buffer, the layer whose branch was the last to read it; -1: none. */
static int last_reader(const struct gpu_plan *plan, int layer, const int *reader)
{
    const struct gpu_diff_op *op = &plan->diffs.ops[layer];
    int last = -1;
    for (int k = 0; k < plan->cfg.layers[layer].n_inputs; k++) {
        const struct gpu_diff_edge *e = &op->edge[k];
        int written[] = {op->way != GPU_DIFF_SAME ? e->dx : -1, e->sum};
        for (int j = 0; j < 2; j++)
            if (written[j] >= 0 && reader[written[j]] >= 0 &&
                (last < 0 || reader[written[j]] < last))
                last = reader[written[j]];
    }
    return last;
}

/* Determines for each layer the branch that must end before the layer's backward. */
static enum status waits_plan(struct gpu_plan *plan)
{
    struct gpu_branch *b = plan->branch;
    int n = plan->cfg.n_layers, waited = n;
    int *reader = malloc((size_t)(plan->diffs.n_buffers + 1) * sizeof *reader);
    if (reader == NULL)
        return gpu_check_no_host_memory();
    for (int k = 0; k < plan->diffs.n_buffers; k++)
        reader[k] = -1;
    b->last = -1;
    for (int i = n - 1; i >= 0; i--) {
        b->wait[i] = -1;
        if (!plan->ops[i].needs_backward)
            continue;
        int last = last_reader(plan, i, reader);
        if (last >= 0 && last < waited)
            waited = b->wait[i] = last;
        if (has_branch(plan, i))
            b->last = reader[plan->diffs.ops[i].dy] = i;
        b->lowest = i;
    }
    if (b->last >= waited) /* a layer waits for this branch or a later one */
        b->last = -1;
    free(reader);
    return ST_OK;
}

static int is_wanted(const struct gpu_plan *plan)
{
    int any = 0;
    for (int i = 0; i < plan->cfg.n_layers; i++)
        any |= has_branch(plan, i);
    return any && (plan->cfg.tuning & TUNING_BRANCHES) != 0 && !plan->cfg.inference_only &&
           plan->cfg.mine == NULL;
}

/* Returns the memory of the second lane, rounded up as the arena rounds. */
static uint64_t bytes_of(const struct gpu_plan *plan)
{
    uint64_t part[3 + GPU_N_CASTS] = {plan->workspace_bytes, plan->blas_workspace_bytes,
                                      (uint64_t)plan->scratch_elems * sizeof(float)};
    uint64_t sum = 0;
    for (int k = 0; k < GPU_N_CASTS; k++)
        part[3 + k] = (uint64_t)plan->cast_elems[k] * sizeof(uint16_t);
    for (int k = 0; k < 3 + GPU_N_CASTS; k++)
        sum += (part[k] + GPU_ARENA_ALIGN - 1) / GPU_ARENA_ALIGN * GPU_ARENA_ALIGN;
    return sum;
}

static enum status memory_take(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_arena *a = &plan->arena;
    struct gpu_lane *lane = &plan->branch->lane;
    const char *who = "(all branches)";
    TRY(gpu_arena_reserve(a, who, "sums of bias gradients",
                          (uint64_t)plan->scratch_elems * sizeof(float), &lane->scratch));
    for (int k = 0; k < GPU_N_CASTS; k++)
        TRY(gpu_arena_reserve(a, who, "copies of a convolution's tensors",
                              (uint64_t)plan->cast_elems[k] * sizeof(uint16_t), &lane->cast[k]));
    TRY(gpu_arena_reserve(a, who, "cuBLAS workspace", plan->blas_workspace_bytes,
                          &lane->blas_workspace));
    TRY(gpu_arena_reserve(a, who, "cuDNN workspace", plan->workspace_bytes, &lane->workspace));
done:
    return st;
}

enum status gpu_branch_plan(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    uint64_t bytes = bytes_of(plan), left = gpu_arena_left(&plan->arena);
    size_t n = (size_t)plan->cfg.n_layers;
    if (!is_wanted(plan))
        return ST_OK;
    if (bytes > left / 2) {
        LOG_W("--gpu_tuning=branches: its workspaces need %" PRIu64
              " bytes of GPU memory, more than half of the %" PRIu64
              " bytes that are free: all layers are computed on one stream",
              bytes, left);
        return ST_OK;
    }
    struct gpu_branch *b = plan->branch = calloc(1, sizeof *b);
    if (b == NULL)
        return gpu_check_no_host_memory();
    b->lane.plan = plan;
    b->done = calloc(n, sizeof(*b->done));
    b->wait = calloc(n, sizeof *b->wait);
    if (b->done == NULL || b->wait == NULL)
        return gpu_check_no_host_memory();
    TRY(waits_plan(plan));
    TRY(memory_take(plan));
done:
    return st;
}

enum status gpu_branch_create(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    if (plan->branch == NULL)
        return ST_OK;
    struct gpu_branch *b = plan->branch;
    struct gpu_lane *lane = &b->lane;
    TRY(gpu_check_cuda(NULL, "cudaStreamCreateWithFlags",
                       cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking)));
    TRY(gpu_check_dnn(NULL, "cudnnCreate", cudnnCreate(&lane->cudnn)));
    TRY(gpu_check_dnn(NULL, "cudnnSetStream", cudnnSetStream(lane->cudnn, lane->stream)));
    TRY(gpu_check_blas(NULL, "cublasCreate", cublasCreate(&lane->cublas)));
    TRY(gpu_check_blas(NULL, "cublasSetStream", cublasSetStream(lane->cublas, lane->stream)));
    TRY(gpu_check_blas(
        NULL, "cublasSetWorkspace",
        cublasSetWorkspace(lane->cublas, lane->blas_workspace, plan->blas_workspace_bytes)));
    TRY(gpu_transfer_event_create(NULL, &b->forked));
    for (int i = 0; i < plan->cfg.n_layers; i++)
        if (has_branch(plan, i))
            TRY(gpu_transfer_event_create(&plan->ops[i], &b->done[i]));
done:
    return st;
}

enum status gpu_branch_finish(const struct gpu_plan *plan)
{
    enum status st = ST_OK;
    if (plan->branch != NULL && plan->branch->lane.stream != NULL)
        TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize",
                           cudaStreamSynchronize(plan->branch->lane.stream)));
done:
    return st;
}

void gpu_branch_destroy(struct gpu_plan *plan)
{
    struct gpu_branch *b = plan->branch;
    if (b == NULL)
        return;
    for (int i = 0; b->done != NULL && i < plan->cfg.n_layers; i++)
        if (b->done[i] != NULL)
            cudaEventDestroy(b->done[i]);
    if (b->forked != NULL)
        cudaEventDestroy(b->forked);
    if (b->lane.cublas != NULL)
        cublasDestroy(b->lane.cublas);
    if (b->lane.cudnn != NULL)
        cudnnDestroy(b->lane.cudnn);
    if (b->lane.stream != NULL)
        cudaStreamDestroy(b->lane.stream);
    free(b->wait);
    free(b->done);
    free(b);
}

/* ---- a layer's backward ---- */

/* Returns the branches of the plan; NULL if the layer's backward runs only on `compute`. */
static struct gpu_branch *branch_of(const struct gpu_plan *plan, int layer)
{
    return plan->branch != NULL && plan->branch->done[layer] != NULL ? plan->branch : NULL;
}

/* Makes `compute` wait for the branch of layer `branch`, before the backward of the given layer. */
static enum status wait_for(struct gpu_plan *plan, int layer, int branch)
{
    enum status st = ST_OK;
    if (branch >= 0)
        TRY(gpu_check_cuda(&plan->ops[layer], "cudaStreamWaitEvent",
                           cudaStreamWaitEvent(plan->compute, plan->branch->done[branch], 0)));
done:
    return st;
}

enum status gpu_branch_wait(struct gpu_plan *plan, int layer)
{
    return plan->branch != NULL ? wait_for(plan, layer, plan->branch->wait[layer]) : ST_OK;
}

enum status gpu_branch_fork(struct gpu_plan *plan, int layer, struct gpu_lane *out)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[layer];
    struct gpu_branch *b = branch_of(plan, layer);
    if (b != NULL) {
        TRY(gpu_check_cuda(op, "cudaEventRecord", cudaEventRecord(b->forked, plan->compute)));
        TRY(gpu_check_cuda(op, "cudaStreamWaitEvent",
                           cudaStreamWaitEvent(b->lane.stream, b->forked, 0)));
    }
    *out = b != NULL ? b->lane : gpu_branch_main_lane(plan);
done:
    return st;
}

cudaStream_t gpu_branch_stream(const struct gpu_plan *plan, int layer)
{
    const struct gpu_branch *b = branch_of(plan, layer);
    return b != NULL ? b->lane.stream : plan->compute;
}

enum status gpu_branch_join(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    struct gpu_branch *b = branch_of(plan, layer);
    if (b != NULL)
        TRY(gpu_check_cuda(&plan->ops[layer], "cudaEventRecord",
                           cudaEventRecord(b->done[layer], b->lane.stream)));
    if (plan->branch != NULL && layer == plan->branch->lowest)
        TRY(wait_for(plan, layer, plan->branch->last));
done:
    return st;
}
