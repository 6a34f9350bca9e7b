/* worker/place/batch_split.h - applies the placement of layers to the towers: sets the devices that
 * each tower uses besides its own device. If layers are placed on GPUs by number, one tower that
 * spans several devices replaces all towers.
 * Owns:    the tables that the towers point into, while the towers live. Threads: immutable once
 *          created.
 * Errors:  ST_INVALID, logged with the flag; ST_NOMEM. */
#ifndef WORKER_PLACE_BATCH_SPLIT_H
#define WORKER_PLACE_BATCH_SPLIT_H
#include "worker/place/placement.h"
#include "worker/place/tower_plan.h"

struct batch_split_request {
    const struct placement *placement;
    int n_layers;
    const struct backend *cpu; /* backend for layers of GPU towers that are placed on the CPU */
    /* threads for the layers on `cpu`; 0: the number of cores divided by the number of towers */
    int n_threads;
    int n_cores;
    enum backend_precision precision; /* precision of the layers on `cpu`, if the CPU supports it */
    int batch;
};

struct batch_split;
/* Creates the tables. towers: as created by tower_plan_make. */
enum status batch_split_create(const struct batch_split_request *r, struct tower_plan *towers,
                               struct batch_split **out);
void batch_split_destroy(struct batch_split *s); /* NULL is fine */
/* Returns the number of the tower's layers on devices other than its own. */
int batch_split_n_elsewhere(const struct tower_spec *t, int n_layers);

#endif
