/* cluster/cluster.h - finds the programs of a job, their addresses, and which of them this program
 * is. The source is the flags, or else TensorFlow's TF_CONFIG, or else, with --slurm_ps, the
 * environment of a Slurm step (docs/guide/clusters.md).
 * Owns:    the lists of a struct cluster.
 * Threads: any, if no other thread changes the environment at the same time.
 * Errors:  ST_INVALID, logged with the flag or the variable, its place and the fix; ST_NOMEM. */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H
#include "base/hosts.h"
#include "base/status.h"
#include <stdint.h>

enum { CLUSTER_SLURM_PORT = 8888 }; /* the default, as in TensorFlow's SlurmClusterResolver */
enum cluster_source { CLUSTER_NONE, CLUSTER_FLAGS, CLUSTER_TF_CONFIG, CLUSTER_SLURM };
enum cluster_role { CLUSTER_PS, CLUSTER_WORKER, CLUSTER_EVALUATOR };

struct cluster {
    enum cluster_source source; /* NONE: no source describes a cluster, so a worker trains alone */
    struct hosts ps, workers;   /* workers.n 0: their number is unknown */
    /* Only TF_CONFIG and Slurm, with a task, set the fields below. */
    enum cluster_role role;
    int index;        /* number of this task in ps or workers (chief: worker 0); -1: unknown */
    int joins;        /* this worker joins (--join), because its source lists no other workers */
    char self[300];   /* host:port of this task; "": unknown */
    char named[300];  /* name of the task in its source, for log lines: "chief 0" */
    const char *over; /* source that overrides an existing TF_CONFIG; static; NULL: no TF_CONFIG */
};

/* The variables of a Slurm step; NULL: not set. */
struct cluster_step {
    const char *step_id, *nodes, *tasks_per_node, *n_tasks, *task, *node, *local, *distribution;
};

struct cluster_request {
    const char *ps_hosts, *worker_hosts; /* values of the flags; NULL or "": not given */
    int64_t slurm_ps, slurm_port;        /* slurm_ps 0: Slurm's environment is not read */
    int64_t task_index;                  /* -1: not given */
    const char *job_name;                /* NULL or "": not given */
    const char *tf_config;               /* NULL or "": none */
    struct cluster_step step;
    int no_task; /* the caller needs only the servers, not its own task (--join) */
};

/* Copies the variables of the environment into the request. */
void cluster_environment(struct cluster_request *r);
/* Finds the cluster. *out is written on ST_OK only. */
enum status cluster_find(const struct cluster_request *r, struct cluster *out);
/* Checks that the cluster's task is one for this program, CLUSTER_PS or CLUSTER_WORKER. Otherwise
 * it logs which program to start. */
enum status cluster_check_role(const struct cluster *c, enum cluster_role program);
/* Logs at info level the source of the cluster, the numbers of its programs, and this task; also
 * logs that a TF_CONFIG is not used, if that is so. This is a separate function, since a program
 * may log only after log_start. */
void cluster_log(const struct cluster *c);
void cluster_free(struct cluster *c);

/* Reads a cluster from the text of TF_CONFIG. This function and the next one use only their
 * arguments, not the environment. */
enum status cluster_read_tf_config(const char *text, int no_task, struct cluster *out);
enum status cluster_read_step(const struct cluster_step *step, int64_t n_ps, int64_t port,
                              struct cluster *out);

#endif
