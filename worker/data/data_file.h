/* worker/data/data_file.h - a file of data as bytes in memory: mapped, so that only what is read of
 * it costs memory, or unpacked if it is gzipped. A mapped file that somebody shortens meanwhile
 * ends the program with one line and 1, not with a signal.
 * Owns:    the mapping, or the memory.
 * Threads: immutable once open; open and close: one at a time.
 * Errors:  ST_NOT_FOUND, ST_INVALID (no regular file), ST_CORRUPT, ST_IO, ST_NOMEM; logged with the
 *          path. */
#ifndef WORKER_DATA_DATA_FILE_H
#define WORKER_DATA_DATA_FILE_H
#include "base/status.h"
#include <stdint.h>

struct data_file {
    const uint8_t *bytes; /* n of them, and what was unpacked begins at a multiple of 16 */
    uint64_t n;
    int mapped; /* else malloc'd */
    char *path;
};

enum status data_file_open(const char *path, struct data_file **out);
void data_file_close(struct data_file *f); /* NULL is fine */

#endif
