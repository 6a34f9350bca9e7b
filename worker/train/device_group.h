/* worker/train/device_group.h - the towers of a worker whose backend adds their gradients on the
 * devices: all towers on one backend that supports it, each on one device, if there are at least
 * two. They share one block of gradients, which receives their sum, weighted by samples.
 * Owns:    the backend's group. Threads: create, destroy: one; cancel: any.
 * Errors:  the backend's; ST_NOMEM. */
#ifndef WORKER_TRAIN_DEVICE_GROUP_H
#define WORKER_TRAIN_DEVICE_GROUP_H
#include "worker/train/train_config.h"

struct device_group;
/* Creates the group. *out NULL: there are no such towers. */
enum status device_group_create(const struct trainer_config *cfg, struct device_group **out);
/* Destroys it, after its towers. g may be NULL in all functions below. */
void device_group_destroy(struct device_group *g);
/* Cancels all waits when a tower stops: no other tower waits for it any more. */
void device_group_cancel(struct device_group *g);
/* Returns the tower's rank; -1: it is not in the group. */
int device_group_rank(const struct device_group *g, int tower);
struct backend_group *device_group_backend(const struct device_group *g);

#endif
