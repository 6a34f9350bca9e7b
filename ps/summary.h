/* ps/summary.h - final figures of a server, as JSON for programs.
 * Owns:    nothing. Threads: any.
 * Errors:  ST_IO, ST_FULL, ST_NOMEM, logged with the cause. */
#ifndef PS_SUMMARY_H
#define PS_SUMMARY_H
#include "ps/service/service.h"
#include "ps/store/stragglers.h"

struct ps_summary {
    int task_index;
    struct service_stats stats;
    int n_workers;
    const struct late_total *late; /* array of n_workers */
};

/* Writes the file under another name and renames it, so that a reader sees all or nothing. */
enum status ps_summary_write(const char *path, const struct ps_summary *s);

#endif
