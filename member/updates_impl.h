/* member/updates_impl.h - the kinds of updates, for updates.c and updates_rounds.c alone. */
#ifndef MEMBER_UPDATES_IMPL_H
#define MEMBER_UPDATES_IMPL_H
#include "member/updates.h"

/* This process' own, by the job's optimizer. restarts: every so many steps the caller begins with
 * empty slots again (updates_local_empty); 0: never. */
enum status updates_local_create(const struct net_exchange_config *cfg,
                                 const struct optim_config *optim, int64_t restarts,
                                 struct updates *out);
/* The steps that the schedule of its learning rate counts by; before the first push. */
void updates_local_set_total(struct updates *x, int64_t steps);
void updates_local_empty(struct updates *x, int chunk); /* its slots */
/* The servers'. */
enum status updates_remote_create(const struct net_exchange_config *cfg, struct updates *out);
/* updates_rounds.c: local steps, and then the servers'. */
enum status updates_rounds_create(const struct net_exchange_config *cfg, struct updates *out);
/* Those of their local steps; NULL: it is of another kind. */
struct updates *updates_rounds_local(const struct updates *x);

#endif
