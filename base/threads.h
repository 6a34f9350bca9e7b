/* base/threads.h - the limits on threads: of the user (ulimit -u), of a container (pids.max). In
 * Weir's programs (base/process.h) pthread_create is the one of threads.c: where a library cannot
 * start a thread, the process ends with EXIT_RETRY and a line that names the limit, since gRPC
 * would wait for that thread without end. The program's own code gets the error.
 * Threads: any. Errors: ST_NOMEM; logged. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H
#include "base/status.h"

/* Checks that n more threads can be started now: starts them, and ends them. For a program that is
 * about to join a job. */
enum status threads_reserve(int n);
/* strerror of what pthread_create returned, and the limits in force with their fix; of the calling
 * thread until its next call. */
const char *threads_error(int err);

#endif
