/* worker/options/options_cluster.c - the cluster that this worker is part of: see options_impl.h.
 * What trains nothing (lists of devices, evaluation) is part of none. */
#include "base/log.h"
#include "cluster/cluster.h"
#include "worker/options/options_impl.h"
#include <string.h>

/* Whoever starts many workers by srun may want one job, or as many as there are tasks. */
static void say_alone(const struct cluster_step *s)
{
    if (s->step_id && s->task && s->n_tasks && strcmp(s->n_tasks, "1") != 0)
        LOG_I("this is task %.10s of the %.10s of a Slurm step, and trains alone: --slurm_ps=N "
              "would make one job of them, with N servers",
              s->task, s->n_tasks);
}

/* What joins a job has no say in how many there are. */
static void leave_out_workers(struct cluster *c)
{
    if (c->source == CLUSTER_TF_CONFIG)
        hosts_free(&c->workers);
}

enum status options_cluster_find(struct options *o)
{
    enum status st = ST_OK;
    struct cluster c = {0};
    int is_alone =
        o->list_devices >= 0 || o->self_test >= 0 || options_raw.evaluate || options_raw.predict;
    struct cluster_request r = {.ps_hosts = options_raw.ps_hosts,
                                .worker_hosts = options_raw.worker_hosts,
                                .slurm_ps = is_alone ? 0 : options_raw.slurm_ps,
                                .slurm_port = options_raw.slurm_port,
                                .task_index = options_raw.task_index,
                                .job_name = options_raw.job_name,
                                .no_task = o->join};
    if (!is_alone)
        cluster_environment(&r);
    TRY(cluster_find(&r, &c));
    if (o->join)
        leave_out_workers(&c);
    else
        TRY(cluster_check_role(&c, CLUSTER_WORKER));
    if (c.source == CLUSTER_TF_CONFIG && c.ps.n == 0 && c.workers.n > 1) {
        LOG_E("TF_CONFIG: cluster.ps is missing: %d workers need at least one server to train "
              "together",
              c.workers.n);
        TRY(ST_INVALID);
    }
    if (!o->join && c.index >= 0)
        options_raw.task_index = c.index;
    o->join = options_raw.join |= c.joins;
    cluster_log(&c);
    if (c.source == CLUSTER_NONE && !o->join)
        say_alone(&r.step);
    o->ps_hosts = c.ps;
    o->worker_hosts = c.workers;
    c.ps = c.workers = (struct hosts){0};
done:
    cluster_free(&c);
    return st;
}

enum status options_cluster_check_pages(struct options *o)
{
    const struct options_raw *r = &options_raw;
    int i = o->task_index;
    const char *own = i >= 0 && i < o->worker_hosts.n ? o->worker_hosts.addr[i] : NULL;
    if (r->metrics_port > 0)
        return http_listen_address(r->metrics_bind, own, (int)r->metrics_port, o->pages);
    if (!options_table_is_given(&r->metrics_bind))
        return ST_OK;
    LOG_E("--metrics_bind is for --metrics_port; give both or leave it out");
    return ST_INVALID;
}
