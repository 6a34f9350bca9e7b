/* worker/train/device_data.h - copies of data sets in the memory of the devices that read them, one
 * for all towers of a device. A set is copied if its samples are bytes, the device has the memory,
 * and the backend supports it.
 * Owns:    the copies. Threads: one at a time; the result of `get` is immutable.
 * Errors:  the backend's. If a data set does not fit on a device, this is no error. */
#ifndef WORKER_TRAIN_DEVICE_DATA_H
#define WORKER_TRAIN_DEVICE_DATA_H
#include "worker/data/dataset.h"
#include "worker/place/tower_plan.h"

struct device_data;
enum status device_data_create(struct device_data **out);
/* Frees the copies. The plans must have been destroyed before. NULL is fine. */
void device_data_destroy(struct device_data *d);
/* Returns the copy of `set` on the tower's device, and creates it at the first call. NULL: the copy
 * does not fit, the backend does not support copies, the tower has several devices, or the
 * backend receives targets (dataset_by_targets). outputs: those of the network. */
enum status device_data_get(struct device_data *d, const struct tower_spec *tower, int outputs,
                            const struct dataset *set, const struct backend_data **out);

#endif
