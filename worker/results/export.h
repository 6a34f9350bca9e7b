/* worker/results/export.h - the trained parameters as one safetensors file, with the model's own
 * shapes. Errors: as safetensors_write. */
#ifndef WORKER_RESULTS_EXPORT_H
#define WORKER_RESULTS_EXPORT_H
#include "net/wire/chunks.h"

/* Writes the file. flat: all parameters, in the order of chunks; metadata: n_meta pairs, each of a
 * key and a value. */
enum status export_write(const char *path, const struct chunks *chunks, const float *flat,
                         const char *const (*metadata)[2], int n_meta);

#endif
