/* worker/train/trainer_state.c - decides whether the towers stop, and which steps are invalid
 * because their generation has ended. See trainer_impl.h. Locks: the trainer's. */
#include "worker/train/device_group.h"
#include "worker/train/trainer_impl.h"

bool trainer_state_is_stopped(struct trainer *t)
{
    return atomic_load(&t->stopped) || atomic_load(&t->failed) != ST_OK;
}

void trainer_state_fail(struct trainer *t, enum status st)
{
    int none = ST_OK;
    if (atomic_compare_exchange_strong(&t->failed, &none, (int)st))
        t->cfg.updates->ops->cancel(t->cfg.updates->ctx);
    device_group_cancel(t->group);
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->handed_out);
    pthread_mutex_unlock(&t->lock);
}

void trainer_stop_soon(struct trainer *t)
{
    atomic_store(&t->stops_soon, 1);
}

void trainer_stop(struct trainer *t)
{
    atomic_store(&t->stopped, 1);
    device_group_cancel(t->group);
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->handed_out);
    pthread_mutex_unlock(&t->lock);
}

bool trainer_state_generation_ended(struct trainer *t)
{
    pthread_mutex_lock(&t->lock);
    int ended = t->last_step != INT64_MAX;
    pthread_mutex_unlock(&t->lock);
    return ended;
}

bool trainer_state_is_invalid(struct trainer *t, int64_t step)
{
    pthread_mutex_lock(&t->lock);
    int invalid = step >= t->invalid_from;
    pthread_mutex_unlock(&t->lock);
    return invalid;
}

bool trainer_state_may_skip(struct trainer *t, int64_t step)
{
    return !t->group && trainer_state_is_invalid(t, step);
}

enum status trainer_state_note_rebased(struct trainer *t, enum status st, int64_t invalid)
{
    if (st != ST_REBASED)
        return st;
    pthread_mutex_lock(&t->lock);
    if (t->last_step == INT64_MAX)
        t->last_step = t->newest_step;
    if (invalid < t->invalid_from)
        t->invalid_from = invalid;
    pthread_cond_broadcast(&t->handed_out);
    pthread_mutex_unlock(&t->lock);
    return ST_OK;
}

bool trainer_state_begin_step(struct trainer *t, int64_t step)
{
    pthread_mutex_lock(&t->lock);
    int go = step <= t->last_step;
    if (go && step > t->newest_step)
        t->newest_step = step;
    pthread_mutex_unlock(&t->lock);
    return go;
}
