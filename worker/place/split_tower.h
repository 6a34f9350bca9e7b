/* worker/place/split_tower.h - the devices of one tower: for each a plan with the layers placed
 * there, run as if they were one plan. Where a layer reads what another device gives, the output
 * crosses by way of the host, and its gradient comes back: once a step for each device that reads
 * it.
 * Owns:    the plans, and a host buffer for each layer whose output crosses, taken at creation.
 * Threads: one at a time.
 * Errors:  the backends'; ST_UNSUPPORTED, ST_NOMEM, logged. */
#ifndef WORKER_PLACE_SPLIT_TOWER_H
#define WORKER_PLACE_SPLIT_TOWER_H
#include "worker/model/model.h"
#include "worker/place/tower_plan.h"

struct split_tower_config {
    struct backend_plan_config plan;   /* of all stages, but for what a device has of its own */
    const struct tower_device *device; /* [n]; borrowed for the call */
    int n;
    const struct model_after *after; /* [n_after] borrowed while they live */
    int n_after;
    const uint8_t
        *stage_of; /* [n_layers] into device; borrowed while they live; NULL: all on device[0] */
};

struct split_tower;
enum status split_tower_create(const struct split_tower_config *cfg, struct split_tower **out);
void split_tower_destroy(struct split_tower *s); /* NULL is fine */
size_t split_tower_memory_bytes(const struct split_tower *s);
struct plan *split_tower_only_plan(struct split_tower *s); /* NULL: there are several devices */
/* [n_layers] Of the CPU's stages in bf16, between steps; the others are left as they are. NULL: by
 * the backend's rule. */
enum status split_tower_set_rounded(struct split_tower *s, const uint8_t *rounded);
/* As those of struct backend. step: for the trace. */
enum status split_tower_load_param(struct split_tower *s, int param);
enum status split_tower_set_input(struct split_tower *s, const uint8_t *const *images,
                                  const uint8_t *labels, const uint64_t *position, int n);
enum status split_tower_set_floats(struct split_tower *s, const float *const *samples,
                                   const int32_t *labels, const uint64_t *position, int n);
/* After one of these without labels. ST_UNSUPPORTED: the last layer's device takes none. */
enum status split_tower_set_targets(struct split_tower *s, const float *const *targets, int n);
/* Of one device alone. */
enum status split_tower_set_items(struct split_tower *s, const struct backend_data *data,
                                  const uint32_t *item, const uint64_t *position, int n);
enum status split_tower_forward(struct split_tower *s, int layer, int64_t step);
enum status split_tower_forward_inference(struct split_tower *s, int layer);
enum status split_tower_backward(struct split_tower *s, int layer, int64_t step);
enum status split_tower_result(struct split_tower *s, float *loss, int *n_correct);
/* Output of the last layer, n x elems(out) floats. ST_UNSUPPORTED: its device does not give it. */
enum status split_tower_output(struct split_tower *s, float *dst);
/* Does any backward only queue its work, so that gradients are there after wait_grads? */
int split_tower_grads_are_late(const struct split_tower *s);
enum status split_tower_wait_grads(struct split_tower *s, int layer);

#endif
