/* ps/coordinator/plan_applier.h - takes plans up for a server: reads the checkpoint or fetches
 * chunks from their holders (generation_begin), in a thread of its own, so that whoever coordinates
 * goes on talking. What fails is tried again, less and less often, until it succeeds or another
 * plan takes its place.
 * Owns:    one thread, a copy of the plan.
 * Threads: any; `changed` comes from its own thread, with no lock held.
 * Errors:  ST_NOMEM; why a plan could not be applied is logged. */
#ifndef PS_COORDINATOR_PLAN_APPLIER_H
#define PS_COORDINATOR_PLAN_APPLIER_H
#include "checkpoint/restore.h"
#include "net/wire/plan.h"
#include "ps/service/service.h"

/* Behind a manifest's name in a plan: it lies where --restore says. */
#define PLAN_RESTORE_MARK "@restore"

struct plan_applier_config {
    struct service *service;
    const char *folder;         /* where the manifests lie that plans name, */
    const char *restore_folder; /* or, with PLAN_RESTORE_MARK; both borrowed for ever */
    const char *address;        /* of this server; likewise */
    void (*changed)(void *ctx); /* a plan was applied, or could not be */
    void *ctx;
};

struct plan_applier;
enum status plan_applier_create(const struct plan_applier_config *cfg, struct plan_applier **out);
void plan_applier_destroy(
    struct plan_applier *t); /* NULL is fine; what fetches chunks is cancelled */
/* From now on this plan, which is copied. One that is under way or was applied is not begun
 * again; another that is under way fetches no more chunks. restore: what it goes on from, given;
 * NULL: what the plan names. Waits for memory where there is none. */
void plan_applier_take(struct plan_applier *t, const struct net_plan *plan,
                       struct checkpoint_restore *restore);
/* Returns the generation of the last plan whose checkpoint is damaged where this server reads it;
 * 0: there is none. */
uint64_t plan_applier_unreadable(struct plan_applier *t);
/* The generation that was applied last; 0: none yet. */
uint64_t plan_applier_generation(struct plan_applier *t);

#endif
