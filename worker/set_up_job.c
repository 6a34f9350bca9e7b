/* worker/set_up_job.c - asks the servers about the job before this worker joins it. See
 * worker.h. */
#include "member/job_query.h"
#include "worker/worker.h"

enum status set_up_job_ask(struct worker *w)
{
    if (!w->opt.join)
        return ST_OK;
    const struct job_query_request request = {w->opt.ps_hosts.addr[0], shutdown_pause, w};
    enum status st = job_query_ask(&request, &w->joined);
    return st == ST_OK ? options_adopt(&w->opt, &w->joined) : st;
}

/* Called while ps 0 does not answer; ctx: the worker. Returns true if the job has ended. */
static bool is_over(void *ctx)
{
    struct worker *w = ctx;
    const struct options *o = &w->opt;
    /* a worker that joins cannot start without the servers' description of the job, so a look into
     * the checkpoint folder would not help it */
    w->over.folder = o->join ? NULL : o->servers_dir;
    w->over.ps0 = o->ps_hosts.addr[0];
    w->over.export_file = o->export_file;
    w->over.summary_json = o->summary_json;
    w->is_over = job_over_look(&w->over);
    return w->is_over;
}

struct trained_on_source set_up_job_source(const struct worker *w)
{
    return (struct trained_on_source){w->train, &w->data, &w->range, w->model->text,
                                      w->model->hidden_units};
}

enum status set_up_job_trained_on(struct worker *w)
{
    const struct trained_on_source source = set_up_job_source(w);
    return trained_on_text(&source, &w->data_text);
}

void set_up_job_over(struct worker *w, struct net_exchange_config *cfg)
{
    w->joins_with = cfg->join;
    w->over.join = &w->joins_with;
    cfg->is_over = is_over;
}
