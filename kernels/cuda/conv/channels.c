/* kernels/cuda/conv/channels.c - decides which tensors have the layout "channels last". A layer's
 * output has this layout if every layer that reads it accepts the layout. A layer whose output has
 * the layout of its input accepts it if all readers of its own output accept it. */
#include "kernels/cuda/conv/channels.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/tuning.h"
#include <stdlib.h>
#include <string.h>

int gpu_channels_framed(const struct layer *l)
{
    return l->pad_lo[0] != l->pad_hi[0] || l->pad_lo[1] != l->pad_hi[1];
}

static int is_wanted(const struct gpu_plan *plan, int i);

/* Returns true if the layer's output must have the layout of its input. */
static bool keeps_layout(const struct gpu_op *op)
{
    return op->kind == &gpu_relu || op->kind == &gpu_activation;
}

/* Returns true if layer i can read channels last. */
static int takes(const struct gpu_plan *plan, int i)
{
    const struct gpu_op *op = &plan->ops[i];
    if (op->kind == &gpu_conv)
        return !gpu_channels_framed(op->layer);
    if (keeps_layout(op))
        return is_wanted(plan, i);
    return op->kind == &gpu_pool && op->layer->kind == LAYER_MAX_POOL;
}

/* Returns true if all readers of layer i's output read channels last. */
static int is_wanted(const struct gpu_plan *plan, int i)
{
    int wanted = plan->node[i].n_readers > 0 && !graph_exported(&plan->node[i]);
    for (int r = i + 1; r < plan->cfg.n_layers; r++)
        for (int k = 0; k < plan->cfg.layers[r].n_inputs; k++)
            if (plan->cfg.layers[r].input[k] == i && !takes(plan, r))
                wanted = 0;
    return wanted;
}

void gpu_channels_plan(struct gpu_plan *plan)
{
    for (int i = 0; i < plan->cfg.n_layers && (plan->cfg.tuning & TUNING_NHWC); i++) {
        struct gpu_op *op = &plan->ops[i];
        int from = op->layer->input[0];
        op->x_last = from >= 0 && plan->ops[from].y_last;
        if (op->kind == &gpu_conv)
            op->y_last = is_wanted(plan, i);
        else if (keeps_layout(op))
            op->y_last = op->x_last;
        else if (op->kind == &gpu_pool)
            op->y_last = op->x_last && is_wanted(plan, i);
    }
}

enum status gpu_channels_first(float *values, const struct shape *s, int n)
{
    int64_t channels = s->dim[0], elems = shape_elems(s), plane = elems / channels;
    float *last = malloc((size_t)elems * sizeof *last);
    if (last == NULL)
        return gpu_check_no_host_memory();
    for (float *image = values; image < values + n * elems; image += elems) {
        memcpy(last, image, (size_t)elems * sizeof *last);
        for (int64_t k = 0; k < elems; k++)
            image[k] = last[k % plane * channels + k / plane];
    }
    free(last);
    return ST_OK;
}
