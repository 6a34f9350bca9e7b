/* base/threads.h - checks the limits on threads: that of the user (ulimit -u) and that of a
 * container (pids.max). In Weir's programs (base/process.h) threads.c replaces pthread_create: if a
 * library cannot start a thread, the process logs a line that names the limit and exits, since gRPC
 * would wait for that thread for ever. The exit code is EXIT_RETRY, or that of process_exit_code()
 * once the result is certain. If the program's own code cannot start a thread, it receives the
 * error.
 * Threads: any. Errors: ST_NOMEM; logged. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H
#include "base/status.h"

/* Checks that n more threads can be started now, by starting and ending them. A program calls it
 * before it joins a job. */
enum status threads_reserve(int n);
/* Returns a text for an error of pthread_create: strerror's, the limits and how to raise them. It
 * is valid until the calling thread's next call. */
const char *threads_error(int err);

#endif
