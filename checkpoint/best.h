/* checkpoint/best.h - which of a folder's checkpoints did best on the validation data: the file
 * `best`, {"manifest":"weir-E.G-STEP.json","step":STEP,"validation_loss":...,
 * "validation_accuracy":...}. The checkpoint that it names is never removed by a sweep.
 * Owns: nothing. Threads: as folder.h.
 * Errors: ST_NOT_FOUND (not logged): there is no such file; ST_CORRUPT, ST_IO, ST_NOMEM. */
#ifndef CHECKPOINT_BEST_H
#define CHECKPOINT_BEST_H
#include "base/status.h"
#include "checkpoint/names.h"

struct ps_best {
    struct ps_checkpoint_id id;
    double loss, accuracy; /* mean over the samples; share of them */
};
enum status ps_best_read(const char *folder, struct ps_best *out);
enum status ps_best_write(const char *folder, const struct ps_best *best);

#endif
