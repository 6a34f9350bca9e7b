/* kernels/cuda/resident.h - inside the CUDA backend: training that stays on the device, see
 * kernels/resident.h. The device is the current one. */
#ifndef KERNELS_CUDA_RESIDENT_H
#define KERNELS_CUDA_RESIDENT_H
#include "kernels/resident.h"

struct cuda_plan;
struct cuda_resident;
enum status cuda_resident_begin(struct cuda_plan *plan, const struct resident_config *cfg);
void cuda_resident_destroy(struct cuda_plan *plan, struct cuda_resident *r); /* NULL is fine */
uint64_t cuda_resident_bytes(const struct cuda_resident *r);                 /* NULL: 0 */
enum status cuda_resident_order(struct cuda_plan *plan, uint64_t pass, const uint32_t *item);
enum status cuda_resident_run(struct cuda_plan *plan, int n);
enum status cuda_resident_wait(struct cuda_plan *plan, struct resident_result *out);
int cuda_resident_is_graph(const struct cuda_plan *plan);

#endif
