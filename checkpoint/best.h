/* checkpoint/best.h - the file `best` of a folder, which names the checkpoint with the best result
 * on the validation data: {"manifest":"weir-E.G-STEP.json","step":STEP,"validation_loss":...,
 * "validation_accuracy":...,"validation_samples":N,"validation_samples_crc32c":...,
 * "validation_labels_crc32c":...}. The last three identify the validation data; only results on the
 * same data are compared. A sweep never removes this checkpoint.
 * Owns: nothing. Threads: see folder.h.
 * Errors: ST_NOT_FOUND (not logged): there is no such file; ST_CORRUPT: it names no checkpoint;
 *         ST_IO: it cannot be read now; ST_NOMEM. */
#ifndef CHECKPOINT_BEST_H
#define CHECKPOINT_BEST_H
#include "base/status.h"
#include "checkpoint/names.h"
#include "net/wire/job_data.h"
#include <stdbool.h>

struct checkpoint_best {
    struct checkpoint_id id;
    double loss, accuracy;      /* mean loss of the samples; share of correctly classified ones */
    struct job_validation data; /* validation data; n 0: unknown, in a file of an older version */
};
enum status checkpoint_best_read(const char *folder, struct checkpoint_best *out);
/* Returns true if the path is such a file, judged by its name and its first bytes. */
bool checkpoint_best_is(const char *path);
/* Reads `best` before training begins, since training would replace a file that it could not
 * read. ST_IO is logged with the fix; a damaged file counts as missing. restore: value of
 * --restore; NULL: not set. If this path is outside the folder, the result in `best` belongs to
 * another training, and counts as missing. */
enum status checkpoint_best_find(const char *folder, const char *restore,
                                 struct checkpoint_best *out);
enum status checkpoint_best_write(const char *folder, const struct checkpoint_best *best);

#endif
