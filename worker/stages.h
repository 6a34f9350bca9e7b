/* worker/stages.h - the devices of one tower: for each a plan with the layers placed there, run as
 * if they were one plan. Where a layer reads what another device gives, the output crosses by way
 * of the host, and its gradient comes back: once a step for each device that reads it.
 * Owns:    the plans, and a host buffer for each layer whose output crosses, taken at creation.
 * Threads: one at a time.
 * Errors:  the backends'; ST_UNSUPPORTED, ST_NOMEM, logged. */
#ifndef WORKER_STAGES_H
#define WORKER_STAGES_H
#include "worker/model.h"
#include "worker/towers.h"

struct stages_config {
    struct backend_plan_config plan;   /* of all stages, but for what a device has of its own */
    const struct tower_device *device; /* [n]; borrowed for the call */
    int n;
    const struct model_after *after; /* [n_after] borrowed while they live */
    int n_after;
    const uint8_t
        *stage_of; /* [n_layers] into device; borrowed while they live; NULL: all on device[0] */
};

struct stages;
enum status stages_create(const struct stages_config *cfg, struct stages **out);
void stages_destroy(struct stages *s); /* NULL is fine */
size_t stages_memory_bytes(const struct stages *s);
struct plan *stages_only_plan(struct stages *s); /* NULL: there are several devices */
/* As those of struct backend. step: for the trace. */
enum status stages_load_param(struct stages *s, int param);
enum status stages_set_input(struct stages *s, const uint8_t *const *images, const uint8_t *labels,
                             const uint64_t *position, int n);
/* Of one device alone. */
enum status stages_set_items(struct stages *s, const struct backend_data *data,
                             const uint32_t *item, const uint64_t *position, int n);
enum status stages_forward(struct stages *s, int layer, int64_t step);
enum status stages_forward_inference(struct stages *s, int layer);
enum status stages_backward(struct stages *s, int layer, int64_t step);
enum status stages_result(struct stages *s, float *loss, int *n_correct);
/* Does any backward only queue its work, so that gradients are there after wait_grads? */
int stages_grads_are_late(const struct stages *s);
enum status stages_wait_grads(struct stages *s, int layer);

#endif
