/* ctl/tables.h - shows the tables of a job, with the part of each server.
 * Threads: one.
 * Errors:  ST_NOMEM (logged). */
#ifndef CTL_TABLES_H
#define CTL_TABLES_H
#include "net/wire/status.h"
#include <stdbool.h>

/* Requests the status of each other server that `s` lists, except those that it reports as missing,
 * and adds the memory of the tables' rows to the bytes of each server. Waits at most 1 s for each
 * server. A log line names a server whose rows are not added. Does nothing if the job has no
 * tables. */
enum status ctl_tables_add_bytes(struct net_status *s);

/* Requests the status of each other server that `s` lists, and prints the tables. A log line names
 * a server that does not answer; its part is then missing. */
enum status ctl_tables_show(const struct net_status *s, int64_t timeout_ms, bool is_json);

#endif
