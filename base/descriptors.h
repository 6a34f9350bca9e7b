/* base/descriptors.h - the limit on descriptors (ulimit -n): a program looks at it before it joins
 * a job, since gRPC ends the process (SIGABRT), or connects in vain for ever, where it lacks one.
 * Threads: any. Errors: ST_NOMEM; logged. */
#ifndef BASE_DESCRIPTORS_H
#define BASE_DESCRIPTORS_H
#include "base/status.h"

/* Checks that this process can open n more descriptors now: opens them, and closes them. */
enum status descriptors_reserve(int n);

#endif
