/* worker/train/device_group.h - those towers of a worker whose backend adds their gradients itself,
 * on the devices: all that compute on one backend that offers it, each on one device, if there are
 * two or more. They share one block of gradients, which comes to be their sum, weighted by samples.
 * Owns:    the backend's group.
 * Threads: create, destroy: one; cancel: any.
 * Errors:  the backend's; ST_NOMEM. */
#ifndef WORKER_TRAIN_DEVICE_GROUP_H
#define WORKER_TRAIN_DEVICE_GROUP_H
#include "worker/train/train_config.h"

struct device_group;
/* NULL in *out: there are no such towers. */
enum status device_group_create(const struct trainer_config *cfg, struct device_group **out);
/* After its towers. g may be NULL in all that follow. */
void device_group_destroy(struct device_group *g);
/* A tower will not go on: none of the others waits for it any more. */
void device_group_cancel(struct device_group *g);
/* The tower's rank; -1: it is not in the group. */
int device_group_rank(const struct device_group *g, int tower);
struct backend_group *device_group_backend(const struct device_group *g);

#endif
