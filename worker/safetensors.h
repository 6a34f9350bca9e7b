/* worker/safetensors.h - writes trained parameters so that Python's `safetensors` opens them.
 * Layout: u64 little-endian N | N bytes of JSON, padded with spaces to a multiple of 8 | data.
 * Written to a temporary file beside the target, synced, renamed, folder synced.
 * Errors: ST_IO, ST_NOMEM, ST_UNSUPPORTED; logged with the path and errno's text. */
#ifndef WORKER_SAFETENSORS_H
#define WORKER_SAFETENSORS_H
#include "net/chunks.h"

/* flat: all parameters, as in chunks; metadata: n_meta pairs key, value. */
enum status safetensors_write(const char *path, const struct chunks *chunks, const float *flat,
                              const char *const (*metadata)[2], int n_meta);

#endif
