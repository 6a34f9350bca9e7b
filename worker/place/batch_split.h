/* worker/place/batch_split.h - from the placement of layers to the towers: which devices each
 * tower has beside its own; and where layers lie on GPUs by number, one tower over several devices
 * in place of one for each.
 * Owns:    the tables that the towers point into, as long as the towers live.
 * Threads: immutable once made.
 * Errors:  ST_INVALID, logged with the flag; ST_NOMEM. */
#ifndef WORKER_PLACE_BATCH_SPLIT_H
#define WORKER_PLACE_BATCH_SPLIT_H
#include "worker/place/placement.h"
#include "worker/place/tower_plan.h"

struct batch_split_request {
    const struct placement *placement;
    int n_layers;
    const struct backend *cpu; /* for layers on the CPU in towers of GPUs */
    int n_threads;             /* there; 0: the cores divided by the towers */
    int n_cores;
    enum backend_precision precision; /* there, as far as that CPU has it */
    int batch;
};

struct batch_split;
/* towers: as tower_plan_make made them. */
enum status batch_split_create(const struct batch_split_request *r, struct tower_plan *towers,
                               struct batch_split **out);
void batch_split_destroy(struct batch_split *s); /* NULL is fine */
/* How many layers of the tower lie on other devices than its own. */
int batch_split_n_elsewhere(const struct tower_spec *t, int n_layers);

#endif
