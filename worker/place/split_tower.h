/* worker/place/split_tower.h - the devices of one tower. Each device has a plan with the layers
 * placed there, and this module runs the plans as if they were one. If a layer reads the output of
 * another device, the output crosses through the host, and its gradient returns the same way, once
 * per step for each device that reads the output.
 * Owns:    the plans, and a host buffer for each layer whose output crosses, allocated at creation.
 *          Threads: one at a time.
 * Errors:  the backends'; ST_UNSUPPORTED, ST_NOMEM, logged. */
#ifndef WORKER_PLACE_SPLIT_TOWER_H
#define WORKER_PLACE_SPLIT_TOWER_H
#include "worker/model/model.h"
#include "worker/place/tower_plan.h"

struct split_tower_config {
    /* settings of all stages, except those that depend on the device; parts: ignored by a tower
     * that does not support them */
    struct backend_plan_config plan;
    const struct tower_device *device; /* [n]; borrowed for the call */
    int n;
    const struct model_after *after; /* [n_after] borrowed while this lives */
    int n_after;
    const uint8_t
        /* [n_layers] index in device; borrowed while this lives; NULL: all on device[0] */
        *stage_of;
};

struct split_tower;
enum status split_tower_create(const struct split_tower_config *cfg, struct split_tower **out);
void split_tower_destroy(struct split_tower *s); /* NULL is fine */
size_t split_tower_memory_bytes(const struct split_tower *s);
struct plan *split_tower_only_plan(struct split_tower *s); /* NULL: there are several devices */
/* Sets rounded[n_layers] for the CPU's stages in bf16, between steps; other stages are unchanged.
 * NULL: by the backend's rule. */
enum status split_tower_set_rounded(struct split_tower *s, const uint8_t *rounded);
/* Loads a parameter. This function and those below act like the functions of struct backend. step:
 * the step that a trace shows. */
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
enum status split_tower_result(struct split_tower *s, float *loss, int *n_correct);
/* Copies the output of the last layer, n x elems(out) floats. ST_UNSUPPORTED: the layer's device
 * cannot copy it to the host. */
enum status split_tower_output(struct split_tower *s, float *dst);
/* Returns the number of layers whose backward should be called before the wait for the gradients of
 * the layer above them. 0: backward ends with the gradients on the host. On one device that queues
 * its work, all layers are called first, because a wait would keep the device from the next layers.
 * Several devices exchange gradients of outputs through the host: there it is one layer. */
int split_tower_backward_lead(const struct split_tower *s);
enum status split_tower_wait_grads(struct split_tower *s, int layer);
/* Returns true if the gradients are copied to the host in parts (kernels/parts.h): cfg.plan.parts
 * is set, and all layers are on one device whose backend has parts. The next three functions then
 * act like those of struct parts_ops. */
bool split_tower_has_parts(const struct split_tower *s);
enum status split_tower_wait_part(struct split_tower *s, int param, int64_t part);
enum status split_tower_load_part(struct split_tower *s, int param, int64_t part);
enum status split_tower_check_grads(struct split_tower *s, int layer, bool *suspect);
enum status split_tower_finish(struct split_tower *s); /* waits for all queued work */

#endif
