/* net/wire/job_tables.h - settings of a job that cannot be combined with tables (tables.h).
 * Threads: any. */
#ifndef NET_WIRE_JOB_TABLES_H
#define NET_WIRE_JOB_TABLES_H
#include "net/wire/job.h"

/* Returns NULL, or the setting that cannot be combined with tables, and its replacement (static
 * text). A job without tables (n_tables 0) has no such setting. n_workers may be unset. */
const char *job_check_tables(const struct net_job *job, int n_tables);

#endif
