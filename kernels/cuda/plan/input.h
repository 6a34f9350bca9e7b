/* kernels/cuda/plan/input.h - the samples of a pass: bytes or floats that the caller sends, or
 * samples of a data set that is stored on the device. Pixels become floats on the device. Threads:
 * as for the plan. Errors: ST_RANGE, ST_MISMATCH, ST_NOMEM, logged. */
#ifndef KERNELS_CUDA_PLAN_INPUT_H
#define KERNELS_CUDA_PLAN_INPUT_H
#include "kernels/backend.h"

struct gpu_plan;

/* Arrays of a pass's input if its samples are bytes; all are in one block for `batch` samples. */
struct gpu_input {
    uint64_t *position; /* [batch] */
    uint32_t *item;     /* [batch] indices of samples in a data set on the device */
    int32_t *label;     /* [batch] */
    uint8_t *pixels;    /* [batch][pixels] */
};

/* A data set on one device, with images and labels in one block. */
struct gpu_input_data {
    int device;
    int64_t n, pixels;
    int largest_label, largest_pixel;
    uint64_t bytes; /* size of images and labels together */
    uint8_t *images, *labels;
};

enum status gpu_input_images(struct gpu_plan *plan, const uint8_t *const *images,
                             const uint8_t *labels, const uint64_t *position, int n);
enum status gpu_input_floats(struct gpu_plan *plan, const float *const *samples,
                             const int32_t *labels, const uint64_t *position, int n);
/* Sets the targets; called after one of the functions above, for n samples. */
enum status gpu_input_targets(struct gpu_plan *plan, const float *const *targets, int n);
enum status gpu_input_items(struct gpu_plan *plan, const struct gpu_input_data *d,
                            const uint32_t *item, const uint64_t *position, int n);
/* Checks that the data set fits the plan's images, classes and device. */
enum status gpu_input_data_check(const struct gpu_plan *plan, const struct gpu_input_data *d);
enum status gpu_input_data_create(int device, const uint8_t *images, const uint8_t *labels,
                                  int64_t n, int64_t pixels, struct backend_data **out);
void gpu_input_data_destroy(struct backend_data *d); /* NULL is fine */

#endif
