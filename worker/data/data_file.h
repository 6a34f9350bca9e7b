/* worker/data/data_file.h - a data file as bytes in memory: mapped, so that only the pages read
 * use memory, or unpacked if it is gzipped. If another process shortens a mapped file, the program
 * logs one line and exits with 1 instead of dying by a signal.
 * Owns:    the mapping, or the memory.
 * Threads: immutable once open; open and close: one at a time.
 * Errors:  ST_NOT_FOUND, ST_INVALID (not a regular file), ST_CORRUPT, ST_IO, ST_NOMEM; logged with
 *          the path. */
#ifndef WORKER_DATA_DATA_FILE_H
#define WORKER_DATA_DATA_FILE_H
#include "base/status.h"
#include <stdint.h>

struct data_file {
    const uint8_t *bytes; /* n bytes; unpacked ones begin at a multiple of 16 */
    uint64_t n;
    int mapped; /* 0: malloc'd */
    char *path;
};

enum status data_file_open(const char *path, struct data_file **out);
void data_file_close(struct data_file *f); /* NULL is fine */

#endif
