/* kernels/vector/row_round.h - rounds the values of a row to bf16 after an update. A value between
 * two neighbours of bf16 becomes either of them at random; the nearer one is the more probable, so
 * that the mean of many roundings is the value. Rounding to the nearest would lose each update that
 * is below half the distance of the neighbours (about 1/512 of the value). The random numbers are a
 * pure function of the job's seed, the table's name, the key, the version and the element, so the
 * bits are equal on all hosts, and after any death.
 * Owns:    nothing. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_ROW_ROUND_H
#define KERNELS_VECTOR_ROW_ROUND_H
#include "kernels/vector/row_init.h"
#include <stdbool.h>

/* Returns the stream of random numbers of the row of `key` in the update that makes `version`. */
uint64_t row_round_stream(const struct row_init_config *c, uint64_t key, uint64_t version);
/* Rounds n values to bf16. out: n numbers of 16 bits. A value that bf16 can represent stays. A NaN
 * stays a NaN. Returns false if a rounded value is not finite; a value above the largest one of
 * bf16, 3.39e38, can become infinite. */
bool row_round_bf16(uint64_t stream, const float *values, size_t n, void *out);

#endif
