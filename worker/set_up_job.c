/* worker/set_up_job.c - asks the servers about the job before this worker joins it, and logs the
 * step at which this worker begins. See worker.h. */
#include "base/log.h"
#include "member/job_query.h"
#include "net/wire/job_steps.h"
#include "worker/worker.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

enum { PLACE_BYTES = 64 };

enum status set_up_job_ask(struct worker *w)
{
    if (!w->opt.join)
        return ST_OK;
    const struct job_query_request request = {w->opt.ps_hosts.addr[0], shutdown_pause, w};
    enum status st = job_query_ask(&request, &w->joined);
    return st == ST_OK ? options_adopt(&w->opt, &w->joined) : st;
}

void set_up_job_name_flags(const struct worker *w)
{
    const struct job_data *d = &w->joined.job.data;
    bool has_path = d->name[0] && !d->own;
    if (!w->opt.join)
        return;
    LOG_I(
        "--join: the new worker needs the flags with which the job's workers read their data, such as --%s, --ignore_columns%s%s%s",
        d->labels == JOB_LABELS_TARGETS ? "target_columns" : "label_column",
        w->inputs.n_keys > 0 ? " and --key_separator" : "",
        has_path ? "; the first worker has read " : "", has_path ? d->name : "");
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
    return (struct trained_on_source){.train = w->train,
                                      .data = &w->data,
                                      .range = &w->range,
                                      .model = w->model->text,
                                      .hidden_units = w->model->hidden_units,
                                      .key_separator = w->opt.train.key_separator};
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

/* Logs the parameters of --init. The file may be a checkpoint with rows, which are not read. */
static void log_given(const struct worker *w)
{
    const struct weights_result *r = &w->init_result;
    LOG_I(
        "first values of %d of %d parameters from %s; %d stay as initialised, %d tensors are not used",
        r->n_given, w->chunks->n_params, w->opt.init, r->n_kept, r->n_unused);
    if (w->chunks->n_tables > 0)
        LOG_W(
            "--init=%s: reads no rows of tables, which begin with their initial values; to continue with the rows of a checkpoint, set --restore of the servers instead",
            w->opt.init);
}

/* Logs how the parameters of --init were used. Called when it is known whether the job or a
 * checkpoint provides other parameters. */
static void log_first_values(const struct worker *w, const struct net_start *start)
{
    if (!w->init)
        return;
    if (start->step > 0)
        LOG_I("the %s at step %" PRId64 " has precedence: --init=%s is not used",
              w->opt.ps_hosts.n > 0 ? "job" : "checkpoint", start->step, w->opt.init);
    else if (start->place.rank > 0)
        LOG_W(
            "the job's first worker (task 0, if present) sets the first values: --init=%s of this worker is not used; set the flag on that worker",
            w->opt.init);
    else
        log_given(w);
}

/* Logs the job's number of steps if it does not follow from this worker's --epochs and part of the
 * data: it may follow from another worker's part (job_steps_follow), or from the part that worker 0
 * had when the job began. Then logs the rounds, with the job's outer optimizer. */
static void log_followed(const struct worker *w, const struct net_start *start)
{
    struct net_job job = options_job(&w->opt, w->train->n);
    int64_t own = job.train_steps * job_local_steps(&job), steps = start->place.asked_steps;
    int64_t asked = options_train_steps(&w->opt, w->train->n);
    double epochs = own > 0 ? (double)steps / (double)own * job.epochs : 0;
    if (job.epochs <= 0)
        return;
    if (steps > 0 && steps != own && start->place.member == 0)
        LOG_I(
            "the job runs %" PRId64
            " steps, which followed from --epochs=%g at its start; worker 0's part now has %" PRId64
            " samples, so these steps are %.3g epochs",
            steps, job.epochs, w->train->n, epochs);
    else if (steps > 0 && steps != own)
        LOG_I(
            "the job runs %" PRId64
            " steps, which follow from --epochs=%g and worker 0's part; this worker's part has %" PRId64
            " samples, so these steps are %.3g epochs",
            steps, job.epochs, w->train->n, epochs);
    if (steps > 0)
        job_set_steps(&job, steps / job_local_steps(&job));
    if (start->place.has_outer)
        job.optim = job_follow_outer(&job, &start->place.outer);
    set_up_log_rounds(&job, steps > 0 && steps != own ? steps : asked);
}

/* Writes "worker 2 of 3", or, if the number is not below the number of workers, since others have
 * left, "worker 9, one of 3,". */
static void name_place(const struct net_place *p, char text[PLACE_BYTES])
{
    bool is_below = p->member < p->n_members;
    snprintf(text, PLACE_BYTES, "worker %d%s of %d%s", p->member, is_below ? "" : ", one",
             p->n_members, is_below ? "" : ",");
}

void set_up_job_log_start(const struct worker *w, const struct net_start *start)
{
    int64_t last = start->place.train_steps;
    bool is_over = last > 0 && start->step >= last;
    char place[PLACE_BYTES];
    name_place(&start->place, place);
    log_first_values(w, start);
    if (w->opt.join) {
        log_number(start->place.member);
        LOG_I("joined as %s at step %" PRId64, place, start->step);
    } else if (w->opt.ps_hosts.n > 0 && start->step > 0 && !is_over) {
        LOG_I("continues the job as %s at step %" PRId64, place, start->step);
    }
    log_followed(w, start);
    if (start->place.rank == 0)
        set_up_tables_warn_lost(w);
    if (is_over)
        LOG_I("nothing is left to train: the job is at step %" PRId64 " of %" PRId64, start->step,
              last);
}
