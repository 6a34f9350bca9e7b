/* worker/train/device_group.h - the group of a worker's towers whose backend adds their gradients
 * on the devices. It contains each tower that uses a single device, if the backend supports groups
 * and the host computes none of the layers; a group has at least two towers. The towers share one
 * block of gradients, which receives the sum of their gradients, weighted by their numbers of
 * samples.
 * Owns:    the backend's group. Threads: create, destroy: one; cancel: any.
 * Errors:  the backend's; ST_NOMEM. */
#ifndef WORKER_TRAIN_DEVICE_GROUP_H
#define WORKER_TRAIN_DEVICE_GROUP_H
#include "worker/train/train_config.h"

struct device_group;
/* Creates the group. *out NULL: fewer than two towers can form one. */
enum status device_group_create(const struct trainer_config *cfg, struct device_group **out);
/* Destroys the group; its towers must be destroyed before. g may be NULL here and below. */
void device_group_destroy(struct device_group *g);
/* Cancels all waits, because a tower stops: the other towers must not wait for it any more. */
void device_group_cancel(struct device_group *g);
/* Returns the tower's rank in the group; -1: it is not in the group. */
int device_group_rank(const struct device_group *g, int tower);
struct backend_group *device_group_backend(const struct device_group *g);

#endif
