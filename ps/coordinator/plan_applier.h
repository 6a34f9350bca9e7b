/* ps/coordinator/plan_applier.h - applies plans for a server: reads the checkpoint or fetches
 * chunks from their holders (generation_begin). It does so in a thread of its own, so that the
 * follower keeps its call to ps 0. A plan that fails is retried with growing pauses, until it
 * succeeds or another plan replaces it.
 * Owns:    one thread, a copy of the plan.
 * Threads: any; `changed` is called in its own thread, with no lock held.
 * Errors:  ST_NOMEM; the reason why a plan could not be applied is logged. */
#ifndef PS_COORDINATOR_PLAN_APPLIER_H
#define PS_COORDINATOR_PLAN_APPLIER_H
#include "checkpoint/restore.h"
#include "net/wire/plan.h"
#include "ps/service/service.h"

/* Suffix of a manifest's name in a plan: the manifest is in the folder of --restore. */
#define PLAN_RESTORE_MARK "@restore"

struct plan_applier_config {
    struct service *service;
    const char *folder; /* folder of the manifests that plans name; both borrowed for ever */
    const char *restore_folder; /* folder of manifests whose names end with PLAN_RESTORE_MARK */
    const char *address;        /* address of this server; borrowed to the program's end */
    void (*changed)(void *ctx); /* a plan was applied, or could not be applied */
    void *ctx;
};

struct plan_applier;
enum status plan_applier_create(const struct plan_applier_config *cfg, struct plan_applier **out);
void plan_applier_destroy(struct plan_applier *t); /* NULL is allowed; cancels a fetch of chunks */
/* Replaces the plan by a copy of this one. If this plan is under way or applied, it is not begun
 * again. If another plan is under way, it fetches no more chunks. restore: checkpoint to resume
 * from, owned from now on; NULL: the checkpoint that the plan names. Waits while memory is
 * lacking. */
void plan_applier_take(struct plan_applier *t, const struct net_plan *plan,
                       struct checkpoint_restore *restore);
/* Returns the generation of the last plan whose checkpoint is damaged in a part that this server
 * reads; 0: no such plan. */
uint64_t plan_applier_unreadable(struct plan_applier *t);
/* Returns the generation applied last; 0: none yet. */
uint64_t plan_applier_generation(struct plan_applier *t);

#endif
