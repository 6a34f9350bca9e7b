/* cluster/slurm.h - reads Slurm's lists: names of nodes, and numbers of tasks on them.
 * Owns:    nothing; lists are struct hosts without ports, which hosts_free frees.
 * Threads: any.
 * Errors:  ST_INVALID, logged with the variable and the fault; ST_NOMEM. */
#ifndef CLUSTER_SLURM_H
#define CLUSTER_SLURM_H
#include "base/hosts.h"
#include "base/status.h"

/* Expands "node[001-004,007],gpu-a[1-2]-b[01-02]" to at most HOSTS_MAX names. Leading zeros stay;
 * the last of several brackets changes fastest. */
enum status slurm_nodes_expand(const char *text, struct hosts *out);
/* Expands "2(x3),1" for n nodes to 2, 2, 2, 1; the sum is at most HOSTS_MAX. */
enum status slurm_counts_expand(const char *text, int *counts, int n);

#endif
