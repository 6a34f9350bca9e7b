/* worker/spread.h - from the placement of layers to the towers: which devices each tower has beside
 * its own; and where layers lie on GPUs by number, one tower over several devices in place of one
 * for each.
 * Owns:    the tables that the towers point into, as long as the towers live.
 * Threads: immutable once made.
 * Errors:  ST_INVALID, logged with the flag; ST_NOMEM. */
#ifndef WORKER_SPREAD_H
#define WORKER_SPREAD_H
#include "worker/placement.h"
#include "worker/towers.h"

struct spread_request {
    const struct placement *placement;
    int n_layers;
    const struct backend *cpu; /* for layers on the CPU in towers of GPUs */
    int n_threads;             /* there; 0: the cores divided by the towers */
    int n_cores;
    int batch;
};

struct spread;
/* towers: as towers_plan made them. */
enum status spread_create(const struct spread_request *r, struct towers *towers,
                          struct spread **out);
void spread_destroy(struct spread *s); /* NULL is fine */
/* How many layers of the tower lie on other devices than its own. */
int spread_n_elsewhere(const struct tower_spec *t, int n_layers);

#endif
