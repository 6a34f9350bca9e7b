/* cluster/flags.h - the rows of --slurm_ps and --slurm_port in both programs' tables of options.
 * ps, port: int64_t. Owns: nothing. */
#ifndef CLUSTER_FLAGS_H
#define CLUSTER_FLAGS_H
#include "base/flags.h"
#include "base/hosts.h"

enum { CLUSTER_SLURM_PORT = 8888 }; /* the default, as TensorFlow's SlurmClusterResolver has it */

/* clang-format off */
#define CLUSTER_SLURM_FLAGS(ps, port)                                                              \
    {"slurm_ps", FLAG_INT, &(ps), 0, HOSTS_MAX - 1, "N", NULL,                                     \
     "take the cluster from the Slurm step that srun has started this in: its first N tasks are "  \
     "servers, the others workers (0: no); without this and lists of hosts TF_CONFIG counts "      \
     "(docs/guide/clusters.md)",                                                                         \
     NULL},                                                                                        \
    {"slurm_port", FLAG_INT, &(port), 1, 65535, "PORT", NULL,                                      \
     "with --slurm_ps: the port of a node's first task, those after it have the next ones", NULL}
/* clang-format on */

#endif
