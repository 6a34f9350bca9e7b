/* worker/train/trainer_observe.c - calls the observer, see trainer_observe.h. Locks: none. The
 * first tower decides before it computes a step whether the step's values are observed. The thread
 * that pushes a layer of the step reads this decision only after the first tower has arrived at the
 * layer. */
#include "worker/train/trainer_observe.h"
#include "base/clock.h"
#include <math.h>

void trainer_observe_start(struct trainer *t, const struct net_start *start)
{
    const struct trainer_observer *o = t->cfg.observer;
    t->observed_step = -1;
    if (o)
        o->start(o->ctx, start);
}

void trainer_observe_begin(struct trainer *t, int64_t step)
{
    const struct trainer_observer *o = t->cfg.observer;
    int64_t number = t->cfg.own_pace ? t->steps_before + step - t->first_step : step;
    if (!o)
        return;
    int wanted = o->wants_values(o->ctx, number, 0);
    t->observed_step = wanted ? step : -1;
    if (wanted)
        t->observed_global_step = trainer_push_global_step(t, step);
}

void trainer_observe_params(struct trainer *t, int64_t global_step, int first, int n)
{
    const struct trainer_observer *o = t->cfg.observer;
    for (int i = first; i < first + n; i++) {
        const struct net_param *p = &t->cfg.chunks->params[i];
        const struct trainer_values v = {.global_step = global_step,
                                         .param = p,
                                         .f = t->cfg.params + p->first,
                                         .crew = &t->crew};
        o->values(o->ctx, &v);
    }
}

void trainer_observe_layer(struct trainer *t, const struct tower *w, int layer, int64_t step)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    if (w->index == 0 && t->observed_step == step && l->n_params > 0)
        trainer_observe_params(t, t->observed_global_step, l->param[0], l->n_params);
}

bool trainer_observe_is_due(const struct trainer *t, int64_t step)
{
    return t->cfg.observer && t->observed_step == step;
}

void trainer_observe_gradients(struct trainer *t, int layer, int64_t step)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    const struct trainer_observer *o = t->cfg.observer;
    const struct tower *w = t->contributions[0].tower;
    for (int i = 0; i < l->n_params && trainer_observe_is_due(t, step); i++) {
        int param = l->param[i];
        const struct trainer_values v = {.global_step = t->observed_global_step,
                                         .is_gradient = true,
                                         .param = &t->cfg.chunks->params[param],
                                         .f = w->grads16 ? NULL : w->grad_of[param],
                                         .f16 = w->grads16 ? w->grad16_of[param] : NULL,
                                         .dtype = t->cfg.push_dtype,
                                         .crew = &t->crew};
        if (v.param->rule == PARAM_TRAINED)
            o->values(o->ctx, &v);
    }
}

void trainer_observe_step(struct trainer *t, int64_t number, int n_correct)
{
    const struct trainer_observer *o = t->cfg.observer;
    const struct trainer_result *r = &t->result;
    if (!o)
        return;
    bool by_targets = t->cfg.train->targets || t->cfg.model->classes == 1;
    float accuracy = by_targets ? NAN : (float)n_correct / (float)t->cfg.batch;
    const struct trainer_figures f = {.number = number,
                                      .global_step = r->global_step,
                                      .local_steps = r->local_steps,
                                      .images = r->images,
                                      .is_last = r->global_step >= t->cfg.train_steps,
                                      .loss = r->loss,
                                      .accuracy = accuracy,
                                      .wait_ns = atomic_load(&t->wait_ns),
                                      .skipped = r->skipped};
    o->step(o->ctx, &f);
}

void trainer_observe_end(struct trainer *t)
{
    const struct trainer_observer *o = t->cfg.observer;
    int64_t step = t->result.global_step;
    if (o && !t->result.left && o->wants_values(o->ctx, step, 1))
        trainer_observe_params(t, step, 0, t->cfg.chunks->n_params);
}
