/* worker/data/data_guard.h - what happens when a mapped file has become shorter: reading beyond its
 * new end raises SIGBUS, which has no way back to who read. The guard says which file it was and
 * ends the program with 1; a SIGBUS elsewhere is as it was without the guard.
 * Owns:    a list of mappings; the process's handler of SIGBUS, from the first one on.
 * Threads: any.
 * Errors:  none; a mapping beyond DATA_GUARD_MAX is not named. */
#ifndef WORKER_DATA_DATA_GUARD_H
#define WORKER_DATA_DATA_GUARD_H
#include <stddef.h>

enum { DATA_GUARD_MAX = 16 };

/* path: borrowed until it is removed. */
void data_guard_add(const void *at, size_t bytes, const char *path);
void data_guard_remove(const void *at);

#endif
