/* worker/data/data_cifar.h - CIFAR-10's binary files: data_batch_1.bin to data_batch_5.bin, and
 * test_batch.bin. A file is a sequence of records of 3073 bytes: a label from 0 to 9, then an image
 * of 32x32 as three planes, red, green, blue. The format has no magic number, so the file's name
 * identifies it.
 * Owns:    nothing; the caller owns the arrays. Threads: any.
 * Errors:  ST_NOT_FOUND, ST_CORRUPT, ST_NOMEM; logged with the file and the record. */
#ifndef WORKER_DATA_DATA_CIFAR_H
#define WORKER_DATA_DATA_CIFAR_H
#include "worker/data/data_array.h"

/* Returns true if the path has the name of such a file, in any folder. */
bool data_cifar_is(const char *path);

struct data_cifar {
    struct data_array samples; /* (n, 3, 32, 32) of DATA_U8, unpacked */
    struct data_array labels;  /* (n) of DATA_I32, unpacked */
};
/* Reads the file. whole: `path` is data_batch_1.bin, and the function also reads the batches that
 * follow it. It warns unless there are five batches. */
enum status data_cifar_read(const char *path, bool whole, struct data_cifar *out);

#endif
