/* kernels/cuda/resident/updates.h - inside the CUDA backend: updates on the device, see
 * kernels/device_updates.h. The caller selects the device. */
#ifndef KERNELS_CUDA_RESIDENT_UPDATES_H
#define KERNELS_CUDA_RESIDENT_UPDATES_H
#include "kernels/device_updates.h"

struct gpu_plan;
struct gpu_updates;
enum status gpu_updates_begin(struct gpu_plan *plan, const struct device_updates_config *cfg);
enum status gpu_updates_run(struct gpu_plan *plan, uint64_t step);
struct gpu_updates_part {
    int param;
    int64_t part;
};
enum status gpu_updates_digests(struct gpu_plan *plan, struct gpu_updates_part part, uint64_t step,
                                const uint64_t **out);
void gpu_updates_end(struct gpu_updates *u);                            /* NULL is fine */
int gpu_updates_are_on(const struct gpu_updates *u);                    /* NULL: 0 */
void gpu_updates_destroy(struct gpu_plan *plan, struct gpu_updates *u); /* NULL is fine */
uint64_t gpu_updates_bytes(const struct gpu_updates *u);                /* NULL: 0 */

#endif
