/* cluster/cluster.h - which programs a job has, where they are, and which of them this one is: from
 * the flags, else from TensorFlow's TF_CONFIG, else, where --slurm_ps asks for it, from the
 * environment of a Slurm step (docs/guide/clusters.md).
 * Owns:    the lists of a struct cluster.
 * Threads: none; before the first one.
 * Errors:  ST_INVALID, logged with the flag or the variable, its place and the fix; ST_NOMEM. */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H
#include "base/hosts.h"
#include "base/status.h"
#include <stdint.h>

enum { CLUSTER_SLURM_PORT = 8888 }; /* the default, as TensorFlow's SlurmClusterResolver has it */
enum cluster_source { CLUSTER_NONE, CLUSTER_FLAGS, CLUSTER_TF_CONFIG, CLUSTER_SLURM };
enum cluster_role { CLUSTER_PS, CLUSTER_WORKER, CLUSTER_EVALUATOR };

struct cluster {
    enum cluster_source source; /* NONE: no cluster is described, a worker trains alone */
    struct hosts ps, workers;   /* workers.n 0: how many there are is not said */
    /* The rest only of TF_CONFIG and Slurm, and with a task: */
    enum cluster_role role;
    int index;        /* in ps or workers, the chief being worker 0; -1: not known */
    int joins;        /* a worker that sees neither the others nor their number: as --join */
    char self[300];   /* host:port of this task; "": not known */
    char named[300];  /* the task as its source has it, for lines: "chief 0" */
    const char *over; /* what goes before a TF_CONFIG that is there; static; NULL: there is none */
};

/* The variables of a Slurm step; NULL: not there. */
struct cluster_step {
    const char *step_id, *nodes, *tasks_per_node, *n_tasks, *task, *node, *local, *distribution;
};

struct cluster_request {
    const char *ps_hosts, *worker_hosts; /* as the flags have them; NULL or "": not given */
    int64_t slurm_ps, slurm_port;        /* slurm_ps 0: Slurm is not asked */
    int64_t task_index;                  /* -1: not given */
    const char *job_name;                /* NULL or "": not given */
    const char *tf_config;               /* NULL or "": none */
    struct cluster_step step;
    int no_task; /* only the servers are asked for: who this is does not matter (--join) */
};

/* The variables themselves, into the request. */
void cluster_environment(struct cluster_request *r);
/* *out is written on ST_OK only. */
enum status cluster_find(const struct cluster_request *r, struct cluster *out);
/* Is a cluster's task one for this program, CLUSTER_PS or CLUSTER_WORKER? Says which is. */
enum status cluster_check_role(const struct cluster *c, enum cluster_role program);
/* At info level: from where it is, how many there are, and who this is, nothing where source is
 * NONE; and that a TF_CONFIG is not used. Apart, since a program may log only after log_start. */
void cluster_log(const struct cluster *c);
void cluster_free(struct cluster *c);

/* The parts, which look at nothing but their arguments. */
enum status cluster_read_tf_config(const char *text, int no_task, struct cluster *out);
enum status cluster_read_step(const struct cluster_step *step, int64_t n_ps, int64_t port,
                              struct cluster *out);

#endif
