/* worker/data/data_guard.h - handles a mapped file that became shorter: a read beyond its new end
 * raises SIGBUS, from which the reader cannot recover. The handler logs the file's name and exits
 * with 1. A SIGBUS at any other address has its default effect.
 * Owns:    a list of mappings; the process's handler of SIGBUS, from the first mapping on.
 * Threads: any.
 * Errors:  none; mappings after the first DATA_GUARD_MAX are not guarded. */
#ifndef WORKER_DATA_DATA_GUARD_H
#define WORKER_DATA_DATA_GUARD_H
#include <stddef.h>

enum { DATA_GUARD_MAX = 16 };

/* Adds a mapping. path: borrowed until data_guard_remove. */
void data_guard_add(const void *at, size_t bytes, const char *path);
void data_guard_remove(const void *at);

#endif
