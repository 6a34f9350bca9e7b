/* kernels/cuda/plan/input.c - copies a pass's samples to the device. The block on the host is
 * pinned and reused, so a new input must wait until the device has read the previous one. */
#include "kernels/cuda/plan/input.h"
#include "base/log.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/plan/edges.h"
#include "kernels/cuda/resident/steps.h"
#include "kernels/plan_check.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of classes; INT_MAX if the loss does not use labels as classes. */
static int classes_of(const struct gpu_plan *plan)
{
    const struct layer *last = &plan->cfg.layers[plan->cfg.n_layers - 1];
    return layer_is_loss(last->kind) ? (int)shape_elems(&last->in) : INT32_MAX;
}

static enum status label_check(const struct gpu_plan *plan, int label)
{
    if (label >= 0 && label < classes_of(plan))
        return ST_OK;
    LOG_E(
        "layer '%s': a sample has label %d, but there are only %d classes; the model does not fit the data",
        plan->cfg.layers[plan->cfg.n_layers - 1].name, label, classes_of(plan));
    return ST_RANGE;
}

static enum status samples_check(const struct gpu_plan *plan, int n)
{
    if (n >= 1 && n <= plan->cfg.batch)
        return ST_OK;
    LOG_E("CUDA backend: %d samples, but the plan accepts 1 to %d", n, plan->cfg.batch);
    return ST_RANGE;
}

/* Waits until the host's block may be overwritten, and writes the positions. */
static enum status begin_input(struct gpu_plan *plan, const uint64_t *position, int n)
{
    enum status st = ST_OK;
    TRY(gpu_pass_select(plan, n));
    gpu_edges_begin(plan);
    TRY(gpu_check_cuda(NULL, "cudaEventSynchronize", cudaEventSynchronize(plan->input_read)));
    for (int i = 0; i < n; i++)
        plan->host.position[i] = position != NULL ? position[i] : (uint64_t)i;
done:
    return st;
}

/* Queues the copy of the first `bytes` bytes of the host's block. */
static enum status send_input(struct gpu_plan *plan, size_t bytes)
{
    enum status st = ST_OK;
    TRY(gpu_check_cuda(
        NULL, "cudaMemcpyAsync",
        cudaMemcpyAsync(plan->d_in, plan->host_in, bytes, cudaMemcpyHostToDevice, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaEventRecord", cudaEventRecord(plan->input_read, plan->compute)));
done:
    return st;
}

enum status gpu_input_images(struct gpu_plan *plan, const uint8_t *const *images,
                             const uint8_t *labels, const uint64_t *position, int n)
{
    enum status st = ST_OK;
    size_t pixels = (size_t)shape_elems(&plan->cfg.layers[0].in);
    TRY(samples_check(plan, n));
    for (int i = 0; labels != NULL && i < n; i++)
        TRY(label_check(plan, labels[i]));
    if (plan->image_readers > 0)
        TRY(plan_check_numbers(&plan->cfg, images, n));
    TRY(begin_input(plan, position, n));
    for (int i = 0; i < n && plan->image_readers > 0; i++)
        memcpy(plan->host.pixels + (size_t)i * pixels, images[i], pixels);
    plan->has_labels = labels != NULL;
    plan->has_targets = 0;
    for (int i = 0; labels != NULL && i < n; i++)
        plan->host.label[i] = labels[i];
    if (plan->image_readers == 0)
        pixels = 0;
    TRY(send_input(plan, (size_t)(plan->host.pixels - plan->host_in) + (size_t)n * pixels));
    if (pixels == 0)
        return ST_OK;
    TRY(gpu_check_kernel(
        NULL, "pixel kernel",
        gpu_scale_pixels(plan->compute, plan->d.pixels, plan->input, n * (int64_t)pixels)));
done:
    return st;
}

enum status gpu_input_floats(struct gpu_plan *plan, const float *const *samples,
                             const int32_t *labels, const uint64_t *position, int n)
{
    enum status st = ST_OK;
    size_t row = (size_t)shape_elems(&plan->cfg.layers[0].in) * sizeof(float);
    TRY(samples_check(plan, n));
    for (int i = 0; labels != NULL && i < n; i++)
        TRY(label_check(plan, labels[i]));
    if (plan->image_readers > 0)
        TRY(plan_check_floats(&plan->cfg, samples, n));
    if (plan->host_floats == NULL && plan->image_readers > 0)
        TRY(gpu_check_cuda(NULL, "cudaHostAlloc",
                           cudaHostAlloc((void **)&plan->host_floats, (size_t)plan->cfg.batch * row,
                                         cudaHostAllocDefault)));
    TRY(begin_input(plan, position, n));
    plan->has_labels = labels != NULL;
    plan->has_targets = 0;
    if (labels != NULL)
        memcpy(plan->host.label, labels, (size_t)n * sizeof *labels);
    for (int i = 0; i < n && plan->image_readers > 0; i++)
        memcpy((uint8_t *)plan->host_floats + (size_t)i * row, samples[i], row);
    if (plan->image_readers > 0)
        TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                           cudaMemcpyAsync(plan->input, plan->host_floats, (size_t)n * row,
                                           cudaMemcpyHostToDevice, plan->compute)));
    TRY(send_input(plan, (size_t)(plan->host.pixels - plan->host_in)));
done:
    return st;
}

/* Queues the copy of the targets after that of the samples, so that the event `input_read` marks
 * the end of both copies. */
enum status gpu_input_targets(struct gpu_plan *plan, const float *const *targets, int n)
{
    enum status st = ST_OK;
    size_t row = (size_t)shape_elems(&plan->cfg.layers[plan->cfg.n_layers - 1].in) * sizeof(float);
    TRY(plan_check_targets(&plan->cfg, n, plan->now->n));
    if (plan->d_targets == NULL)
        return ST_OK;
    if (plan->host_targets == NULL)
        TRY(gpu_check_cuda(NULL, "cudaHostAlloc",
                           cudaHostAlloc((void **)&plan->host_targets,
                                         (size_t)plan->cfg.batch * row, cudaHostAllocDefault)));
    for (int i = 0; i < n; i++)
        memcpy((uint8_t *)plan->host_targets + (size_t)i * row, targets[i], row);
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(plan->d_targets, plan->host_targets, (size_t)n * row,
                                       cudaMemcpyHostToDevice, plan->compute)));
    TRY(gpu_check_cuda(NULL, "cudaEventRecord", cudaEventRecord(plan->input_read, plan->compute)));
    plan->has_labels = plan->has_targets = 1;
done:
    return st;
}

enum status gpu_input_data_check(const struct gpu_plan *plan, const struct gpu_input_data *d)
{
    int64_t pixels = shape_elems(&plan->cfg.layers[0].in);
    if (d->device == plan->cfg.device && d->pixels == pixels) {
        enum status st = plan_check_number(&plan->cfg, d->largest_pixel);
        return st == ST_OK ? label_check(plan, d->largest_label) : st;
    }
    LOG_E("CUDA backend: the data set has samples of %" PRId64
          " pixels on device %d, but the plan needs %" PRId64 " pixels on device %d",
          d->pixels, d->device, pixels, plan->cfg.device);
    return ST_MISMATCH;
}

enum status gpu_input_items(struct gpu_plan *plan, const struct gpu_input_data *d,
                            const uint32_t *item, const uint64_t *position, int n)
{
    enum status st = ST_OK;
    TRY(samples_check(plan, n));
    TRY(gpu_input_data_check(plan, d));
    for (int i = 0; i < n; i++)
        if (item[i] >= d->n) {
            LOG_E("CUDA backend: sample index %" PRIu32
                  " is out of range: the data set has %" PRId64 " samples",
                  item[i], d->n);
            return ST_RANGE;
        }
    TRY(begin_input(plan, position, n));
    memcpy(plan->host.item, item, (size_t)n * sizeof *item);
    plan->has_labels = 1;
    plan->has_targets = 0;
    TRY(send_input(plan, (size_t)((uint8_t *)plan->host.label - plan->host_in)));
    struct gpu_gather g = {.n = n,
                           .pixels = d->pixels,
                           .images = d->images,
                           .labels = d->labels,
                           .x = plan->input,
                           .label = plan->d.label};
    TRY(gpu_check_kernel(NULL, "gather kernel", gpu_gather_items(plan->compute, &g, plan->d.item)));
done:
    return st;
}

/* ---- the data set ---- */

static enum status data_fill(struct gpu_input_data *d, const uint8_t *images, const uint8_t *labels)
{
    enum status st = ST_OK;
    size_t bytes = (size_t)d->n * (size_t)d->pixels;
    cudaStream_t stream = NULL;
    TRY(gpu_check_cuda(NULL, "cudaStreamCreateWithFlags",
                       cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(d->images, images, bytes, cudaMemcpyHostToDevice, stream)));
    TRY(gpu_check_cuda(
        NULL, "cudaMemcpyAsync",
        cudaMemcpyAsync(d->labels, labels, (size_t)d->n, cudaMemcpyHostToDevice, stream)));
    TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(stream)));
    for (int64_t i = 0; i < d->n; i++)
        if (labels[i] > d->largest_label)
            d->largest_label = labels[i];
    for (size_t k = 0; k < bytes; k++)
        d->largest_pixel = images[k] > d->largest_pixel ? images[k] : d->largest_pixel;
done:
    if (stream != NULL) {
        if (st != ST_OK)
            (void)cudaStreamSynchronize(stream); /* so no copy writes to freed memory later */
        cudaStreamDestroy(stream);
        (void)cudaGetLastError(); /* clears the error, or the next launch would report it */
    }
    return st;
}

enum status gpu_input_data_create(int device, const uint8_t *images, const uint8_t *labels,
                                  int64_t n, int64_t pixels, struct backend_data **out)
{
    enum status st = ST_OK;
    struct gpu_input_data *d = calloc(1, sizeof *d);
    if (d == NULL)
        return gpu_check_no_host_memory();
    *d = (struct gpu_input_data){.device = device, .n = n, .pixels = pixels};
    d->bytes = (uint64_t)n * (uint64_t)(pixels + 1);
    TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(device)));
    st = gpu_memory_alloc(device, d->bytes, (void **)&d->images);
    if (st == ST_NOMEM)
        LOG_I(
            "the data set of %" PRIu64
            " bytes does not fit in the memory of device %d together with the network: the images of each step are copied from the host",
            d->bytes, device);
    TRY(st);
    d->labels = d->images + (size_t)n * (size_t)pixels;
    TRY(data_fill(d, images, labels));
    *out = (struct backend_data *)d;
done:
    if (st != ST_OK)
        gpu_input_data_destroy((struct backend_data *)d);
    return st;
}

void gpu_input_data_destroy(struct backend_data *data)
{
    struct gpu_input_data *d = (struct gpu_input_data *)data;
    if (d == NULL)
        return;
    (void)cudaSetDevice(d->device);
    gpu_memory_free(d->device, d->images, d->bytes);
    (void)cudaGetLastError(); /* clears the error, or the next launch would report it */
    free(d);
}
