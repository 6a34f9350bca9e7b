/* worker/place/split_tower.h - the devices of one tower. Each device has a plan with the layers
 * placed there, and this module runs these plans as if they were one. (A backend's plan is a
 * network that is prepared for one device.) If a layer reads an output of another device, the
 * output is copied through the host once per step for each device that reads it, and its gradient
 * is copied back in the same way.
 * Owns:    the plans, and a host buffer for each layer whose output crosses, allocated at creation.
 *          Threads: one at a time.
 * Errors:  the backends'; ST_UNSUPPORTED, ST_NOMEM, logged. */
#ifndef WORKER_PLACE_SPLIT_TOWER_H
#define WORKER_PLACE_SPLIT_TOWER_H
#include "worker/model/model.h"
#include "worker/place/tower_plan.h"

struct split_tower_config {
    /* settings for all stages, except those that depend on the device; `parts` has no effect in a
     * tower that does not support them */
    struct backend_plan_config plan;
    const struct tower_device *device; /* [n]; borrowed until split_tower_create returns */
    int n;
    const struct model_after *after; /* [n_after] borrowed while the split tower exists */
    int n_after;
    const uint8_t
        /* [n_layers] index in `device`; borrowed while the split tower exists; NULL: all layers are
         * on device[0] */
        *stage_of;
};

/* No device computes a layer on the host (kernels/layer.h): the caller does, and its entry of
 * stage_of has no effect. Calls for such a layer that compute or wait do nothing. */
struct split_tower;
enum status split_tower_create(const struct split_tower_config *cfg, struct split_tower **out);
void split_tower_destroy(struct split_tower *s); /* NULL is fine */
size_t split_tower_memory_bytes(const struct split_tower *s);
/* returns the only plan; NULL: the tower has several devices, or layers on the host */
struct plan *split_tower_only_plan(struct split_tower *s);
/* Sets, between two steps, which layers round to bf16 (rounded[n_layers]) in the CPU's stages in
 * bf16; other stages do not change. NULL: the backend decides. */
enum status split_tower_set_rounded(struct split_tower *s, const uint8_t *rounded);
/* Loads a parameter. This function and those below do the same as the functions of these names in
 * struct backend. step: number of the step, for the trace. */
enum status split_tower_load_param(struct split_tower *s, int param);
enum status split_tower_set_input(struct split_tower *s, const uint8_t *const *images,
                                  const uint8_t *labels, const uint64_t *position, int n);
enum status split_tower_set_floats(struct split_tower *s, const float *const *samples,
                                   const int32_t *labels, const uint64_t *position, int n);
/* Sets the targets, after one of the two functions above was called without labels. ST_UNSUPPORTED:
 * the last layer's device does not accept targets. */
enum status split_tower_set_targets(struct split_tower *s, const float *const *targets, int n);
/* Sets the input of a tower with one device. */
enum status split_tower_set_items(struct split_tower *s, const struct backend_data *data,
                                  const uint32_t *item, const uint64_t *position, int n);
enum status split_tower_forward(struct split_tower *s, int layer, int64_t step);
enum status split_tower_forward_inference(struct split_tower *s, int layer);
enum status split_tower_backward(struct split_tower *s, int layer, int64_t step);
/* Sets the output of a layer on the host, n x elems(out) floats, after the step's input and before
 * the forward of the first layer that reads it. `out` is borrowed until the last such forward. */
void split_tower_set_host_output(struct split_tower *s, int layer, const float *out);
/* Copies the gradient with respect to the output of a layer on the host, after the backwards of all
 * layers that read it. Waits for devices that queue their work. */
enum status split_tower_read_host_grad(struct split_tower *s, int layer, float *grad);
enum status split_tower_result(struct split_tower *s, float *loss, int *n_correct);
/* Copies the output of the last layer, n x elems(out) floats. ST_UNSUPPORTED: the layer's device
 * cannot copy it to the host. */
enum status split_tower_output(struct split_tower *s, float *dst);
/* Returns the number of further layers whose backward should be called before the wait for a
 * layer's gradients. 0: backward returns when the gradients are on the host. If there is one
 * device, which queues its work, the result is the number of all layers, because a wait would delay
 * the device's next layers. If there are several devices, which exchange gradients of outputs
 * through the host, the result is 1. */
int split_tower_backward_lead(const struct split_tower *s);
enum status split_tower_wait_grads(struct split_tower *s, int layer);
/* Returns true if the gradients are copied to the host in parts (kernels/parts.h): cfg.plan.parts
 * is set, and all layers are on one device whose backend has parts. The next three functions then
 * do the same as those of struct parts_ops. */
bool split_tower_has_parts(const struct split_tower *s);
enum status split_tower_wait_part(struct split_tower *s, int param, int64_t part);
enum status split_tower_load_part(struct split_tower *s, int param, int64_t part);
enum status split_tower_check_grads(struct split_tower *s, int layer, bool *suspect);
enum status split_tower_finish(struct split_tower *s); /* waits for all queued work */
/* Permits the caller to replace the pages of a range of host memory, from a call with `on` until
 * the next call without it. Called when all work has finished. */
void split_tower_host_moves(struct split_tower *s, const void *at, size_t bytes, bool on);

#endif
