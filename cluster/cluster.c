/* cluster/cluster.c - see cluster.h. */
#include "cluster/cluster.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *first_of(const char *a, const char *b)
{
    return a && *a ? a : b;
}

/* srun sets those of the step; a job's have the same meaning where the step is all of it. */
void cluster_environment(struct cluster_request *r)
{
    r->tf_config = getenv("TF_CONFIG");
    r->step = (struct cluster_step){
        .step_id = getenv("SLURM_STEP_ID"),
        .nodes = first_of(getenv("SLURM_STEP_NODELIST"), getenv("SLURM_JOB_NODELIST")),
        .tasks_per_node =
            first_of(getenv("SLURM_STEP_TASKS_PER_NODE"), getenv("SLURM_TASKS_PER_NODE")),
        .n_tasks = first_of(getenv("SLURM_STEP_NUM_TASKS"), getenv("SLURM_NTASKS")),
        .task = getenv("SLURM_PROCID"),
        .node = getenv("SLURM_NODEID"),
        .local = getenv("SLURM_LOCALID"),
        .distribution = getenv("SLURM_DISTRIBUTION"),
    };
}

void cluster_free(struct cluster *c)
{
    hosts_free(&c->ps);
    hosts_free(&c->workers);
}

static int is_given(const char *text)
{
    return text && *text;
}

static enum status read_flags(const struct cluster_request *r, struct cluster *c)
{
    enum status st = ST_OK;
    TRY(hosts_parse(r->ps_hosts, "ps_hosts", &c->ps));
    TRY(hosts_parse(r->worker_hosts, "worker_hosts", &c->workers));
    c->source = c->ps.n > 0 || c->workers.n > 0 ? CLUSTER_FLAGS : CLUSTER_NONE;
done:
    return st;
}

/* A number beside a cluster that says it by itself. */
static enum status check_index(const struct cluster_request *r, const struct cluster *c)
{
    if (c->source != CLUSTER_TF_CONFIG && c->source != CLUSTER_SLURM)
        return ST_OK;
    if (r->no_task || r->task_index < 0 || r->task_index == c->index)
        return ST_OK;
    LOG_E("--task_index=%" PRId64 ", but %s makes this %s number %d; leave the flag out",
          r->task_index, c->source == CLUSTER_SLURM ? "SLURM_PROCID" : "TF_CONFIG",
          c->role == CLUSTER_PS ? "ps" : "worker", c->index);
    return ST_INVALID;
}

enum status cluster_find(const struct cluster_request *r, struct cluster *out)
{
    enum status st = ST_OK;
    struct cluster c = {.index = -1};
    int by_flags = is_given(r->ps_hosts) || is_given(r->worker_hosts);
    if (by_flags && r->slurm_ps > 0) {
        LOG_E("--slurm_ps takes the cluster from Slurm's environment, and %s is given as well; "
              "leave one of them out",
              is_given(r->ps_hosts) ? "--ps_hosts" : "--worker_hosts");
        TRY(ST_INVALID);
    }
    if (by_flags)
        TRY(read_flags(r, &c));
    else if (r->slurm_ps > 0 && r->no_task) {
        LOG_E("--slurm_ps says who each task of a step is; what joins, or asks servers to go, "
              "needs --ps_hosts");
        TRY(ST_INVALID);
    } else if (r->slurm_ps > 0)
        TRY(cluster_read_step(&r->step, r->slurm_ps, r->slurm_port, &c));
    else if (is_given(r->tf_config))
        TRY(cluster_read_tf_config(r->tf_config, r->no_task, &c));
    if (is_given(r->tf_config) && (by_flags || r->slurm_ps > 0))
        c.over = by_flags ? "the list of hosts among the flags" : "--slurm_ps";
    TRY(check_index(r, &c));
done:
    if (st == ST_OK)
        *out = c;
    else
        cluster_free(&c);
    return st;
}

enum status cluster_check_role(const struct cluster *c, enum cluster_role program)
{
    const char *from = c->source == CLUSTER_SLURM ? "--slurm_ps" : "TF_CONFIG";
    if (c->source != CLUSTER_TF_CONFIG && c->source != CLUSTER_SLURM)
        return ST_OK;
    if (c->role == program)
        return ST_OK;
    if (c->role == CLUSTER_EVALUATOR)
        LOG_E("%s: task is %s, which a job does without: workers evaluate at the end, and in "
              "between with --eval_every=N; leave the evaluator out, or give it worker "
              "--evaluate=FILE, which needs no cluster",
              from, c->named);
    else
        LOG_E("%s: %s is a %s here, and this program is %s: start %s, or weir-task, which starts "
              "the right one",
              from, c->named, c->role == CLUSTER_PS ? "server" : "worker",
              program == CLUSTER_PS ? "ps" : "worker", c->role == CLUSTER_PS ? "ps" : "worker");
    return ST_INVALID;
}

void cluster_log(const struct cluster *c)
{
    static const char *const sources[] = {"", "the flags", "TF_CONFIG", "Slurm's environment"};
    char workers[40] = "", self[700] = "";
    if (c->over)
        LOG_I("TF_CONFIG is in the environment, and is not used: %s goes first", c->over);
    if (c->source == CLUSTER_NONE)
        return;
    if (c->workers.n > 0)
        snprintf(workers, sizeof workers, ", workers %d", c->workers.n);
    if (c->self[0])
        snprintf(self, sizeof self, "; this is %s %d at %s (%s)",
                 c->role == CLUSTER_PS ? "ps" : "worker", c->index, c->self, c->named);
    LOG_I("cluster from %s: ps %d%s%s", sources[c->source], c->ps.n, workers, self);
}
