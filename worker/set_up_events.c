/* worker/set_up_events.c - --logdir: collects the run's settings and creates the events. See
 * worker.h. */
#include "base/float_text.h"
#include "worker/worker.h"

struct hparams {
    struct event_hparam list[EVENTS_MOST_HPARAMS];
    int n;
};

static void add_text(struct hparams *h, const char *name, const char *text)
{
    CHECK(h->n < EVENTS_MOST_HPARAMS);
    h->list[h->n++] = (struct event_hparam){name, text, 0};
}

static void add_number(struct hparams *h, const char *name, double number)
{
    CHECK(h->n < EVENTS_MOST_HPARAMS);
    h->list[h->n++] = (struct event_hparam){name, NULL, number};
}

/* Adds the settings of the optimizer, with the names of their flags, so that runs can be compared.
 * A setting with its default value is added only if it is one of the main settings. */
static void add_optimizer(struct hparams *h, const struct optim_config *c)
{
    struct optim_config usual;
    optim_defaults(c->kind, &usual);
    add_text(h, "optimizer", optim_name(c->kind));
    add_number(h, "learning_rate", float_text_to_double(c->learning_rate));
    add_text(h, "lr_schedule", optim_schedule_name(c->schedule));
    if (c->kind == OPTIM_MOMENTUM || c->kind == OPTIM_NESTEROV || c->kind == OPTIM_RMSPROP)
        add_number(h, "momentum", float_text_to_double(c->momentum));
    const struct {
        const char *name;
        float value, usual;
    } more[] = {{"beta1", c->beta1, usual.beta1},
                {"beta2", c->beta2, usual.beta2},
                {"epsilon", c->epsilon, usual.epsilon},
                {"decay", c->decay, usual.decay},
                {"weight_decay", c->weight_decay, usual.weight_decay},
                {"clip_value", c->clip_value, 0},
                {"clip_norm", c->clip_norm, 0},
                {"ema_decay", c->ema_decay, 0}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i].value != more[i].usual)
            add_number(h, more[i].name, float_text_to_double(more[i].value));
}

static void list_hparams(const struct worker *w, const struct net_job *job, struct hparams *h)
{
    static const char *const precision[] = {"fp32", "tf32", "bf16"};
    const struct options *o = &w->opt;
    add_text(h, "model", w->model->name);
    add_optimizer(h, &o->optim);
    if (o->label_smoothing > 0)
        add_number(h, "label_smoothing", o->label_smoothing);
    add_number(h, "batch_size", (double)o->batch_size);
    add_number(h, "train_steps", (double)job->train_steps * job_local_steps(job));
    add_number(h, "seed", (double)o->seed);
    add_text(h, "precision", precision[o->precision]);
    add_number(h, "servers", o->ps_hosts.n);
    if (o->ps_hosts.n == 0)
        return;
    add_number(h, "workers", o->n_workers);
    add_text(h, "sync_mode", job_sync_mode_name(o->sync_mode));
    if (o->sync_mode == JOB_SYNC)
        add_number(h, "replicas_to_aggregate", o->aggregate);
    if (o->sync_mode == JOB_SSP)
        add_number(h, "staleness", (double)o->staleness);
    add_text(h, "wire_dtype", o->wire_auto ? "auto" : dtype_name(o->push_dtype));
    if (job_local_steps(job) > 1)
        add_number(h, "local_steps", job_local_steps(job));
}

enum status set_up_events(struct worker *w)
{
    const struct options *o = &w->opt;
    struct net_job job = options_job(o, w->train->n);
    struct hparams h = {.n = 0};
    if (!o->logdir)
        return ST_OK;
    list_hparams(w, &job, &h);
    const struct events_config cfg = {
        .folder = o->logdir,
        .summary_steps = o->summary_steps,
        .histogram_steps = o->histogram_steps,
        .updates = &w->updates,
        .optim = job_local_steps(&job) > 1 ? job.local : job.optim,
        .own_pace = !job_in_lockstep(&job),
        .graph = {.model = w->model,
                  .towers = &w->towers,
                  .n_servers = o->ps_hosts.n,
                  .params_on_host = placement_keeps_on_host(w->placement)},
        .hparams = h.list,
        .n_hparams = h.n,
    };
    return events_create(&cfg, &w->events);
}
