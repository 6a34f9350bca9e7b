/* libweir/rates.c - factors of the job's learning rate and weight decay, see weir_impl.h. The
 * factors of a parameter are part of the model, which all members must have; servers and
 * checkpoints store them. The factor of a step is sent with each contribution to the step. */
#include "libweir/rates.h"
#include "base/log.h"
#include "libweir/steps.h"
#include "net/wire/job_rates.h"

static int refuse_factor(struct weir *w, const char *name, double factor)
{
    return weir_errors_fail(w, WEIR_E_INVALID,
                            "%s is %g, but it must be a finite number that is not negative", name,
                            factor);
}

int weir_rates_refuse_statistic(struct weir *w, int param)
{
    return weir_errors_fail(w, WEIR_E_INVALID,
                            "parameter '%.255s' is a statistic, which has no learning rate",
                            w->params[param].name);
}

int weir_param_factors(struct weir *w, int param, double rate, double decay)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    if (w->state != HANDLE_NEW)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "call weir_param_factors before the first weir_next");
    if (!weir_params_find(w, param))
        return WEIR_E_INVALID;
    struct param *p = &w->params[param];
    if (p->keep >= 0)
        return weir_rates_refuse_statistic(w, param);
    if (!optim_factor_ok((float)rate))
        return refuse_factor(w, "the factor of the learning rate", rate);
    if (!optim_factor_ok((float)decay))
        return refuse_factor(w, "the factor of the weight decay", decay);
    p->factors = (struct optim_factors){(float)rate, (float)decay};
    return WEIR_OK;
}

enum status weir_rates_check(const struct weir *w)
{
    if (!w->set.own_local_steps || !chunks_have_factors(w->chunks))
        return ST_OK;
    LOG_E(
        "own_local_steps: the program makes the local steps itself, so it must apply the factors itself; leave the calls of weir_param_factors out");
    return ST_UNSUPPORTED;
}

void weir_rates_begin_step(const struct weir *w)
{
    if (w->updates.ops->set_rate)
        w->updates.ops->set_rate(w->updates.ctx, 1);
}

/* Sets the factor; called within a step, before its first push has begun. */
static int set_rate(struct weir *w, double factor)
{
    const struct net_place *place = &w->start.place;
    const char *problem = job_rates_step_problem(&w->job, place->n_regions > 0);
    if (factor != 1 && problem)
        return weir_errors_fail(w, WEIR_E_UNSUPPORTED, "weir_step_rate: %s", problem);
    pthread_mutex_lock(&w->lock);
    bool has_pushed = w->n_unpushed < w->n_params + w->n_tables;
    pthread_mutex_unlock(&w->lock);
    if (has_pushed)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "weir_step_rate must be called before the first push of step %lld, so that all parameters have the same factor",
            (long long)w->step);
    if (w->updates.ops->set_rate)
        w->updates.ops->set_rate(w->updates.ctx, (float)factor);
    return WEIR_OK;
}

int weir_step_rate(struct weir *w, double factor)
{
    struct within in;
    int code = weir_steps_enter_call(w, &in);
    if (code != WEIR_OK)
        return code;
    code = optim_factor_ok((float)factor)
               ? set_rate(w, factor)
               : refuse_factor(w, "the factor of the step's learning rate", factor);
    weir_steps_exit(w);
    return code;
}
