/* libweir/steps.c - the steps of a member, see weir_impl.h; worker/train does the same for its own
 * loop. A step whose values cannot be received no longer counts. If the generation ends during the
 * pushes of a step, the member still pushes all of the step, since the step may count. */
#include "libweir/steps.h"
#include "base/clock.h"
#include "libweir/rates.h"
#include "libweir/tables.h"
#include "member/steps.h"
#include "net/wire/lacking.h"
#include <stdbool.h>
#include <string.h>

int64_t weir_steps_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : clock_deadline_ns(timeout_ms);
}

/* Notes that the generation has ended. invalid: the current step no longer counts. */
static int note_ended(struct weir *w, int invalid)
{
    pthread_mutex_lock(&w->lock);
    w->tell_rebased |= !w->ended;
    w->ended = 1;
    w->ended_generation = w->generation;
    w->invalid |= invalid;
    pthread_mutex_unlock(&w->lock);
    weir_events_signal(w);
    return WEIR_REBASED;
}

int weir_steps_code_of_wait(struct weir *w, enum status st, int invalid)
{
    if (st == ST_OK)
        return WEIR_OK;
    if (st == ST_DEADLINE)
        return WEIR_AGAIN;
    if (st == ST_REBASED)
        return note_ended(w, invalid);
    return weir_errors_stop(w, weir_errors_fail_st(w, st));
}

static struct member_steps steps_of(const struct weir *w)
{
    return (struct member_steps){&w->updates, &w->start.place, w->own_pace, w->n_local, w->batch};
}

static int collect_last(struct weir *w, int64_t deadline_ns)
{
    const struct member_steps m = steps_of(w);
    enum status st =
        member_steps_collect(&m, w->chunks, w->train_steps, deadline_ns, &w->collecting);
    int code = weir_steps_code_of_wait(w, st, 1);
    return code == WEIR_OK ? weir_errors_stop(w, WEIR_DONE) : code;
}

static void fill_step(struct weir *w, struct weir_step *out)
{
    const struct member_steps m = steps_of(w);
    const struct net_place *p = &w->start.place;
    *out = (struct weir_step){
        .step = w->step,
        .train_steps = w->train_steps,
        .position = (int64_t)net_place_sample(p, member_steps_position_now(&m, w->step)),
        .n_samples = w->batch,
        .stride = p->n_regions > 1 ? p->n_regions : 1,
        .generation = (int64_t)w->start.generation,
        .member = p->member,
        .rank = p->rank,
        .n_members = p->n_members,
        .began = w->began,
        .n_regions = p->n_regions};
}

static void begin_step(struct weir *w, int64_t step)
{
    weir_rates_begin_step(w);
    pthread_mutex_lock(&w->lock);
    w->step = step;
    w->in_step = 1;
    w->n_unpushed = w->n_params + w->n_tables;
    memset(w->lacking, 0, lacking_total(w->chunks));
    for (int c = 0; c < w->chunks->n_chunks; c++) {
        w->gather[c].n_missing = w->gather[c].n_params;
        w->gather[c].samples = -1;
    }
    pthread_mutex_unlock(&w->lock);
}

/* Refuses the next step because a parameter or a table was not pushed in this one. */
static int refuse_unpushed(struct weir *w)
{
    pthread_mutex_lock(&w->lock);
    const char *table = weir_tables_unpushed(w), *param = NULL;
    for (int i = 0; i < w->n_params && !param; i++)
        if (w->params[i].pushed != w->step + 1)
            param = w->params[i].name;
    pthread_mutex_unlock(&w->lock);
    if (!param && table)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "table '%.255s' was not pushed at step %lld: call weir_push_rows once in each step, with n = 0 if the batch has no key",
            table, (long long)w->step);
    return weir_errors_fail(w, WEIR_E_INVALID, "parameter '%.255s' was not pushed at step %lld",
                            param ? param : "", (long long)w->step);
}

/* Moves to the next step. REBASED: the caller begins again. */
static int go_on(struct weir *w, int early, int64_t deadline_ns, struct weir_step *out)
{
    pthread_mutex_lock(&w->lock);
    int lacks = w->in_step && !w->invalid && w->n_unpushed > 0;
    bool pushes = w->in_step && !w->invalid && w->n_pushing > 0;
    pthread_mutex_unlock(&w->lock);
    if (lacks)
        return refuse_unpushed(w);
    if (pushes)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "a push of step %lld has not returned yet in another thread: call weir_next after all pushes of the step have returned",
            (long long)w->step);
    int64_t next = w->step + w->in_step;
    w->updates.ops->flush(w->updates.ctx);
    if (!w->collecting) {
        int n = early && !w->own_pace ? w->chunks->params[0].n_chunks : w->chunks->n_chunks;
        enum status st =
            w->updates.ops->wait(w->updates.ctx, 0, n, w->own_pace ? 0 : next, deadline_ns);
        int code = weir_steps_code_of_wait(w, st, 1);
        if (code != WEIR_OK)
            return code;
    }
    if ((w->own_pace ? member_steps_lowest_version(&w->updates, w->chunks->n_chunks) : next) >=
        w->train_steps)
        return collect_last(w, deadline_ns);
    begin_step(w, next);
    fill_step(w, out);
    w->began = 0;
    return WEIR_OK;
}

static int has_to_begin(struct weir *w)
{
    pthread_mutex_lock(&w->lock);
    int begins = w->state != HANDLE_RUNNING || w->ended;
    pthread_mutex_unlock(&w->lock);
    return begins;
}

/* Returns the code of a handle that has stopped, or that weir_cancel stops now, while no thread
 * waits for servers; otherwise 0. */
static int stopped_or_cancelled(struct weir *w)
{
    int code = weir_errors_stopped(w);
    pthread_mutex_lock(&w->lock);
    int cancelled = w->cancelled;
    pthread_mutex_unlock(&w->lock);
    if (code != 0 || !cancelled)
        return code;
    return weir_errors_stop(w, weir_errors_fail(w, WEIR_E_CANCELLED, "cancelled, by weir_cancel"));
}

static int next_step(struct weir *w, int early, int timeout_ms, struct weir_step *out)
{
    int64_t deadline_ns = weir_steps_deadline(timeout_ms);
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    weir_errors_listen();
    if (!out)
        return weir_errors_fail(w, WEIR_E_INVALID, "weir_next: the pointer to the step is NULL");
    for (;;) {
        int code = stopped_or_cancelled(w);
        if (code == 0 && has_to_begin(w))
            code = weir_begin(w, deadline_ns);
        if (code == WEIR_OK)
            code = go_on(w, early, deadline_ns, out);
        if (code != WEIR_REBASED)
            return code;
    }
}

int weir_next(struct weir *w, int timeout_ms, struct weir_step *out)
{
    return next_step(w, 0, timeout_ms, out);
}

int weir_next_early(struct weir *w, int timeout_ms, struct weir_step *out)
{
    return next_step(w, 1, timeout_ms, out);
}

static enum status wait_param(struct weir *w, int param, int64_t step, int64_t deadline_ns)
{
    const struct net_param *p = &w->chunks->params[param];
    return w->updates.ops->wait(w->updates.ctx, p->first_chunk, p->n_chunks, w->own_pace ? 0 : step,
                                deadline_ns);
}

/* Returns a parameter that is sent together with `param` but was not pushed in this step, although
 * `param` was; -1: none. The caller holds the lock. */
static int missing_beside(const struct weir *w, int param)
{
    int chunk = w->chunks->params[param].first_chunk;
    if (w->params[param].pushed != w->step + 1 || w->gather[chunk].n_missing == 0)
        return -1;
    for (int i = w->chunks->chunks[chunk].param; i < w->n_params; i++)
        if (w->chunks->params[i].first_chunk == chunk && w->params[i].pushed != w->step + 1)
            return i;
    return -1;
}

int weir_steps_param_ready(struct weir *w, int param, int64_t step)
{
    pthread_mutex_lock(&w->lock);
    int gathers = missing_beside(w, param) >= 0;
    pthread_mutex_unlock(&w->lock);
    return weir_steps_code_of_wait(w, gathers ? ST_DEADLINE : wait_param(w, param, step, 0), 0);
}

bool weir_steps_is_here(struct weir *w, int param, int64_t step)
{
    return wait_param(w, param, step, 0) == ST_OK;
}

int weir_steps_check(struct weir *w)
{
    return weir_steps_code_of_wait(w, w->updates.ops->wait(w->updates.ctx, 0, 0, 0, 0), 0);
}

int weir_steps_enter(struct weir *w, struct within *in)
{
    pthread_mutex_lock(&w->lock);
    int running = w->state == HANDLE_RUNNING && w->in_step;
    w->n_within += running;
    *in = (struct within){w->step, w->invalid};
    pthread_mutex_unlock(&w->lock);
    return running;
}

void weir_steps_exit(struct weir *w)
{
    pthread_mutex_lock(&w->lock);
    if (--w->n_within == 0)
        pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* Checks that the handle allows a call. Returns an error, the code of stopped_or_cancelled, or
 * 0. */
static int check_call(struct weir *w)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    weir_errors_listen();
    return stopped_or_cancelled(w);
}

static int enter_checked(struct weir *w, int code, struct within *in)
{
    if (code != WEIR_OK || !weir_steps_enter(w, in))
        return weir_errors_fail(w, WEIR_E_INVALID, "there is no step: call weir_next first");
    return WEIR_OK;
}

int weir_steps_enter_call(struct weir *w, struct within *in)
{
    int code = check_call(w);
    return code < 0 ? code : enter_checked(w, code, in);
}

int weir_steps_enter_for(struct weir *w, int param, struct within *in)
{
    int code = check_call(w);
    if (code < 0)
        return code;
    return weir_params_find(w, param) ? enter_checked(w, code, in) : WEIR_E_INVALID;
}

static int wait_within(struct weir *w, int param, const struct within *in, int timeout_ms)
{
    if (in->invalid)
        return WEIR_REBASED;
    pthread_mutex_lock(&w->lock);
    int pushed = w->params[param].pushed == in->step + 1, missing = missing_beside(w, param);
    pthread_mutex_unlock(&w->lock);
    if (missing >= 0)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "parameter '%.255s' is sent together with '%.255s', which was not pushed at step %lld: push the second parameter before you wait for the first",
            w->params[param].name, w->params[missing].name, (long long)in->step);
    w->updates.ops->flush(w->updates.ctx);
    return weir_steps_code_of_wait(
        w, wait_param(w, param, in->step + pushed, weir_steps_deadline(timeout_ms)), !pushed);
}

int weir_wait(struct weir *w, int param, int timeout_ms)
{
    struct within in;
    int code = weir_steps_enter_for(w, param, &in);
    if (code != WEIR_OK)
        return code;
    code = wait_within(w, param, &in, timeout_ms);
    weir_steps_exit(w);
    return code;
}
