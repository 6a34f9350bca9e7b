/* base/job_name.h - checks --job_name, which has TensorFlow's names of a cluster's jobs.
 * Owns: nothing. Threads: any.
 * Errors: ST_INVALID, logged with the name and the fix. */
#ifndef BASE_JOB_NAME_H
#define BASE_JOB_NAME_H
#include "base/status.h"

/* Checks that the name means the program ps. name NULL: the flag is not set. */
enum status job_name_check_ps(const char *name);
/* Checks that the name means the program worker. "chief", and its older name "master", is worker 0:
 * then *task_index must be 0, or -1 (not set), which becomes 0. */
enum status job_name_check_worker(const char *name, long long *task_index);

#endif
