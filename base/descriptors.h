/* base/descriptors.h - checks the limit on descriptors (ulimit -n) before a program joins a job.
 * Without a free descriptor, gRPC ends the process (SIGABRT), or all its attempts to connect fail.
 * Threads: any. Errors: ST_NOMEM; logged. */
#ifndef BASE_DESCRIPTORS_H
#define BASE_DESCRIPTORS_H
#include "base/status.h"

/* Checks that this process can open n more descriptors now: opens them, and closes them. */
enum status descriptors_reserve(int n);

#endif
