/* worker/train/tower_tables.h - the tables whose rows are read by the layers on the host
 * (kernels/layer.h), one for each such layer: the first of these layers has the job's first table,
 * and so on.
 * Owns:    the tables, see table_step.h.
 * Threads: one at a time.
 * Errors:  those of table_step.h; ST_UNSUPPORTED, logged: there is no source of rows. */
#ifndef WORKER_TRAIN_TOWER_TABLES_H
#define WORKER_TRAIN_TOWER_TABLES_H
#include "worker/train/table_step.h"
#include "worker/train/train_config.h"

struct tower;

/* Creates a list with an entry for each layer; NULL: the layer is not on the host. reads_only: see
 * table_step.h. *out is NULL if no layer is on the host. */
enum status tower_tables_create(const struct trainer_config *cfg, int n_towers, bool reads_only,
                                struct table_step ***out);
void tower_tables_free(struct table_step **tables, int n_layers);
/* Sets the outputs of all layers on the host of an inference tower (t->tables), for its n samples.
 * Reads rows of version t->rows_step, which the training step has, too; if each bucket advances
 * independently, of any version. */
enum status tower_tables_put(struct tower *t);

#endif
