/* checkpoint/best.h - which of a folder's checkpoints did best on the validation data: the file
 * `best`, {"manifest":"weir-E.G-STEP.json","step":STEP,"validation_loss":...,
 * "validation_accuracy":...,"validation_samples":N,"validation_samples_crc32c":...,
 * "validation_labels_crc32c":...}: the last three say which data, and only results on the same are
 * compared. The checkpoint that it names is never removed by a sweep.
 * Owns: nothing. Threads: as folder.h.
 * Errors: ST_NOT_FOUND (not logged): there is no such file; ST_CORRUPT: it names no checkpoint;
 *         ST_IO: it cannot be read now; ST_NOMEM. */
#ifndef CHECKPOINT_BEST_H
#define CHECKPOINT_BEST_H
#include "base/status.h"
#include "checkpoint/names.h"
#include "net/wire/job_data.h"

struct checkpoint_best {
    struct checkpoint_id id;
    double loss, accuracy;      /* mean over the samples; share of them */
    struct job_validation data; /* the samples; n 0: an older version's file does not say */
};
enum status checkpoint_best_read(const char *folder, struct checkpoint_best *out);
/* 1: the path is such a file, by its name and its first bytes. */
int checkpoint_best_is(const char *path);
/* Likewise, before training begins, which would put another one in the place of one that is not
 * known: ST_IO is logged with what to do; one that is damaged is none. restore: the folder, or a
 * manifest in it, that --restore has training go on from; NULL: not given. What did best here then
 * is another training's, and none. */
enum status checkpoint_best_find(const char *folder, const char *restore,
                                 struct checkpoint_best *out);
enum status checkpoint_best_write(const char *folder, const struct checkpoint_best *best);

#endif
