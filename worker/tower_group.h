/* worker/tower_group.h - those towers of a worker whose backend adds their gradients itself, on the
 * devices: all that compute on one backend that offers it, each on one device, if there are two or
 * more. They share one block of gradients, which comes to be their sum, weighted by samples.
 * Owns:    the backend's group.
 * Threads: create, destroy: one; cancel: any.
 * Errors:  the backend's; ST_NOMEM. */
#ifndef WORKER_TOWER_GROUP_H
#define WORKER_TOWER_GROUP_H
#include "worker/trainer.h"

struct tower_group;
/* NULL in *out: there are no such towers. */
enum status tower_group_create(const struct trainer_config *cfg, struct tower_group **out);
/* After its towers. g may be NULL in all that follow. */
void tower_group_destroy(struct tower_group *g);
/* A tower will not go on: none of the others waits for it any more. */
void tower_group_cancel(struct tower_group *g);
/* The tower's rank; -1: it is not in the group. */
int tower_group_rank(const struct tower_group *g, int tower);
struct backend_group *tower_group_backend(const struct tower_group *g);

#endif
