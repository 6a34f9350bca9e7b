/* base/job_name.h - TensorFlow's names of a cluster's jobs, as --job_name has them.
 * Owns: nothing. Threads: any.
 * Errors: ST_INVALID, logged with the name and the fix. */
#ifndef BASE_JOB_NAME_H
#define BASE_JOB_NAME_H
#include "base/status.h"

/* Whether ps is what the name asks for; NULL: the flag was not given. */
enum status job_name_check_ps(const char *name);
/* Whether worker is; "chief", and "master", as older programs call it, is the worker with the
 * number 0: then *task_index, -1 where no number was given, is set to 0, or has to be. */
enum status job_name_check_worker(const char *name, long long *task_index);

#endif
