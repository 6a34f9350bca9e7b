/* member/updates_impl.h - the kinds of updates, for updates.c and updates_rounds.c alone. */
#ifndef MEMBER_UPDATES_IMPL_H
#define MEMBER_UPDATES_IMPL_H
#include "member/updates.h"

/* Creates the local kind, with the job's optimizer. restarts: the caller empties the slots after
 * this many steps (updates_local_empty); 0: never. */
enum status updates_local_create(const struct net_exchange_config *cfg,
                                 const struct optim_config *optim, int64_t restarts,
                                 struct updates *out);
/* Sets the number of steps for the learning-rate schedule, before the first push. */
void updates_local_set_total(struct updates *x, int64_t steps);
void updates_local_empty(struct updates *x, int chunk); /* empties the chunk's slots */
/* Creates the remote kind, whose updates the servers do. */
enum status updates_remote_create(const struct net_exchange_config *cfg, struct updates *out);
/* Creates the rounds kind (updates_rounds.c): local steps, then a step of the servers. */
enum status updates_rounds_create(const struct net_exchange_config *cfg, struct updates *out);
/* Returns the local updates of the rounds kind; NULL: another kind. */
struct updates *updates_rounds_local(const struct updates *x);

#endif
