/* worker/data/dataset.h - images and labels from IDX files, gzipped or plain, and who reads which
 * (I6). IDX: big-endian u32 magic (0x803 images, 0x801 labels), u32 count, for images u32 rows,
 * u32 columns, then one byte per pixel or label. Owns: the pixels. Threads: immutable once read.
 * Errors: ST_NOT_FOUND, ST_INVALID, ST_CORRUPT, ST_MISMATCH, ST_IO, ST_NOMEM; one line with file
 * and fix. */
#ifndef WORKER_DATA_DATASET_H
#define WORKER_DATA_DATASET_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { DATASET_MAX_ITEMS = 1 << 26 };

/* Where Debian's package dataset-fashion-mnist lies. */
#define DATASET_DEFAULT_DIR "/usr/share/datasets/fashion-mnist"

struct dataset {
    int64_t n;         /* items */
    int rows, columns; /* pixels */
    uint8_t *images;   /* n x rows x columns */
    uint8_t *labels;   /* n */
};

/* part: "train" or "t10k"; reads <dir>/<part>-images-idx3-ubyte[.gz] and -labels-idx1-ubyte[.gz];
 * labels must be below classes. */
enum status dataset_read(const char *dir, const char *part, int classes, struct dataset **out);
/* Takes floor(share * n) items out of the set, chosen by the seed, into a set of their own; those
 * that stay, stay in their order. ST_INVALID: none would be taken, or none left. */
enum status dataset_split(struct dataset *d, double share, uint64_t seed,
                          struct dataset **held_out);
void dataset_destroy(struct dataset *d); /* NULL is fine */

/* Decoding of one IDX file already in memory, for dataset_read, tests and the fuzzer. On success
 * *payload points into data. n_dims: 3 for images, 1 for labels. */
enum status dataset_decode_idx(const uint8_t *data, size_t bytes, int n_dims, const char *label,
                               uint32_t dims[3], const uint8_t **payload);

/* The item at a global position: positions 0 .. n-1 are one pass, each item once, shuffled by
 * (seed, pass); n .. 2n-1 the next. Pure; the order of a pass is computed once and kept per object.
 */
struct dataset_order;
enum status dataset_order_create(int64_t n, uint64_t seed, struct dataset_order **out);
void dataset_order_destroy(struct dataset_order *o);
int64_t dataset_order_item(struct dataset_order *o, uint64_t position); /* one thread at a time */

#endif
