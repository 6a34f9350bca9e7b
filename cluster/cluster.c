/* cluster/cluster.c - chooses the source of the cluster and checks flags against it; see
 * cluster.h. */
#include "cluster/cluster.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *first_of(const char *a, const char *b)
{
    return a && *a ? a : b;
}

/* Reads the environment. srun sets the variables of the Slurm step; the variables of the Slurm
 * job mean the same if the Slurm step is the whole job. */
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

static const char *role_name(enum cluster_role role)
{
    return role == CLUSTER_PS ? "ps" : "worker";
}

/* Checks --job_name and --task_index against a cluster whose source also names this program's
 * task. */
static enum status check_task(const struct cluster_request *r, const struct cluster *c)
{
    if (c->source != CLUSTER_TF_CONFIG && c->source != CLUSTER_SLURM)
        return ST_OK;
    const char *from = c->source == CLUSTER_SLURM ? "SLURM_PROCID" : "TF_CONFIG";
    int is_ps = is_given(r->job_name) && strcmp(r->job_name, "ps") == 0;
    if (r->no_task)
        return ST_OK;
    if (is_given(r->job_name) && c->role != CLUSTER_EVALUATOR && is_ps != (c->role == CLUSTER_PS)) {
        LOG_E("--job_name=%.20s, but %s (%s) makes this program %s %d; leave the flag out",
              r->job_name, from, c->named, role_name(c->role), c->index);
        return ST_INVALID;
    }
    if (r->task_index < 0 || r->task_index == c->index)
        return ST_OK;
    LOG_E("--task_index=%" PRId64 ", but %s makes this program %s %d; leave the flag out",
          r->task_index, from, role_name(c->role), c->index);
    return ST_INVALID;
}

enum status cluster_find(const struct cluster_request *r, struct cluster *out)
{
    enum status st = ST_OK;
    struct cluster c = {.index = -1};
    int by_flags = is_given(r->ps_hosts) || is_given(r->worker_hosts);
    if (by_flags && r->slurm_ps > 0) {
        LOG_E(
            "--slurm_ps reads the cluster from Slurm's environment, but %s is set too; leave one of them out",
            is_given(r->ps_hosts) ? "--ps_hosts" : "--worker_hosts");
        TRY(ST_INVALID);
    }
    if (by_flags)
        TRY(read_flags(r, &c));
    else if (r->slurm_ps > 0 && r->no_task) {
        LOG_E(
            "--slurm_ps decides the role of each task of a Slurm step; a program that joins, or that asks servers to leave, needs --ps_hosts");
        TRY(ST_INVALID);
    } else if (r->slurm_ps > 0)
        TRY(cluster_read_step(&r->step, r->slurm_ps, r->slurm_port, &c));
    else if (is_given(r->tf_config))
        TRY(cluster_read_tf_config(r->tf_config, r->no_task, &c));
    if (is_given(r->tf_config) && (by_flags || r->slurm_ps > 0))
        c.over = by_flags ? "the list of hosts among the flags" : "--slurm_ps";
    TRY(check_task(r, &c));
done:
    if (st == ST_OK)
        *out = c;
    else
        cluster_free(&c);
    return st;
}

/* Returns the prefix of the programs' names: "weir-" in an installation (weir-ps, weir-worker). */
static const char *before_names(void)
{
    return strncmp(program_invocation_short_name, "weir-", 5) == 0 ? "weir-" : "";
}

enum status cluster_check_role(const struct cluster *c, enum cluster_role program)
{
    const char *from = c->source == CLUSTER_SLURM ? "--slurm_ps" : "TF_CONFIG";
    if (c->source != CLUSTER_TF_CONFIG && c->source != CLUSTER_SLURM)
        return ST_OK;
    if (c->role == program)
        return ST_OK;
    if (c->role == CLUSTER_EVALUATOR)
        LOG_E(
            "%s: task is %s, but Weir has no such task. Workers evaluate at the end of training, and with --eval_every=N during training. Leave the evaluator out, or let it run %sworker --evaluate=FILE, which needs no cluster",
            from, c->named, before_names());
    else
        LOG_E(
            "%s: %s must be a %s, but this program is %s%s: start %s%s, or weir-task, which starts the matching program",
            from, c->named, c->role == CLUSTER_PS ? "server" : "worker", before_names(),
            role_name(program), before_names(), role_name(c->role));
    return ST_INVALID;
}

void cluster_log(const struct cluster *c)
{
    static const char *const sources[] = {"", "the flags", "TF_CONFIG", "Slurm's environment"};
    char workers[40] = "", self[700] = "";
    if (c->over)
        LOG_I("TF_CONFIG in the environment is ignored: %s has precedence", c->over);
    if (c->source == CLUSTER_NONE)
        return;
    if (c->workers.n > 0)
        snprintf(workers, sizeof workers, ", workers %d", c->workers.n);
    if (c->self[0])
        snprintf(self, sizeof self, "; this is %s %d at %s (%s)", role_name(c->role), c->index,
                 c->self, c->named);
    LOG_I("cluster from %s: ps %d%s%s", sources[c->source], c->ps.n, workers, self);
}
