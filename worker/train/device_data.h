/* worker/train/device_data.h - data sets in the memory of the devices that read them, where they
 * are bytes, fit and the backend offers it; one copy for all towers of a device.
 * Owns:    the copies.
 * Threads: one at a time; what `get` gives is immutable.
 * Errors:  the backend's. That a data set does not fit is none. */
#ifndef WORKER_TRAIN_DEVICE_DATA_H
#define WORKER_TRAIN_DEVICE_DATA_H
#include "worker/data/dataset.h"
#include "worker/place/tower_plan.h"

struct device_data;
enum status device_data_create(struct device_data **out);
void device_data_destroy(struct device_data *d); /* after the plans; NULL is fine */
/* The copy of `set` that lies where this tower computes, made now if there is none yet; NULL: there
 * is none, because it does not fit, the backend offers none or the tower has several devices. */
enum status device_data_get(struct device_data *d, const struct tower_spec *tower,
                            const struct dataset *set, const struct backend_data **out);

#endif
