/* kernels/cuda/resident/resident.h - inside the CUDA backend: training without copies to the host,
 * see kernels/resident.h. The caller selects the device. */
#ifndef KERNELS_CUDA_RESIDENT_RESIDENT_H
#define KERNELS_CUDA_RESIDENT_RESIDENT_H
#include "kernels/resident.h"

struct gpu_plan;
struct gpu_resident;
enum status gpu_resident_begin(struct gpu_plan *plan, const struct resident_config *cfg);
void gpu_resident_destroy(struct gpu_plan *plan, struct gpu_resident *r); /* NULL is fine */
uint64_t gpu_resident_bytes(const struct gpu_resident *r);                /* NULL: 0 */
enum status gpu_resident_order(struct gpu_plan *plan, uint64_t pass, const uint32_t *item);
enum status gpu_resident_run(struct gpu_plan *plan, int n);
enum status gpu_resident_wait(struct gpu_plan *plan, struct resident_result *out);
int gpu_resident_is_graph(const struct gpu_plan *plan);

#endif
