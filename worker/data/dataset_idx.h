/* worker/data/dataset_idx.h - one IDX file, from an open file descriptor; private to dataset*.c
 * and the fuzzer. Errors: as worker/data/dataset.h. */
#ifndef WORKER_DATA_DATASET_IDX_H
#define WORKER_DATA_DATASET_IDX_H
#include "worker/data/dataset.h"

enum {
    DATASET_IDX_MAX_SIDE = 4096, /* rows, columns */
    DATASET_IDX_MAX_HEADER = 16,
};

/* Reads a whole file, gzipped or plain, into memory: *file (malloc'd) holds it unpacked, *payload
 * points to its pixels or labels. label: the file's name, for errors. */
enum status dataset_idx_load(int fd, int n_dims, const char *label, uint8_t **file,
                             uint32_t dims[3], const uint8_t **payload);

#endif
