/* cluster/slurm.h - how Slurm writes lists: names of nodes, and numbers of tasks on them.
 * Owns:    nothing; lists are struct hosts without ports, which hosts_free frees.
 * Threads: any.
 * Errors:  ST_INVALID, logged with the variable and what is wrong; ST_NOMEM. */
#ifndef CLUSTER_SLURM_H
#define CLUSTER_SLURM_H
#include "base/hosts.h"
#include "base/status.h"

/* "node[001-004,007],gpu-a[1-2]-b[01-02]": zeros in front stay, of several brackets the last
 * counts fastest, at most HOSTS_MAX names. */
enum status slurm_nodes_expand(const char *text, struct hosts *out);
/* "2(x3),1" for n nodes: 2, 2, 2, 1; all tasks together at most HOSTS_MAX. */
enum status slurm_counts_expand(const char *text, int *counts, int n);

#endif
