/* libweir/pushes.c - the contributions of a step, and requests for newer values; see weir_impl.h. A
 * chunk of several parameters is sent when all of them are pushed. */
#include "libweir/changes.h"
#include "libweir/steps.h"
#include "net/wire/lacking.h"
#include <stdbool.h>
#include <string.h>

/* Returns a parameter whose pushed change is in the array of the values, because other
 * parameters of `param`'s chunk are not pushed yet; -1: none. The caller holds the lock. */
static int change_beside(const struct weir *w, int param)
{
    int chunk = w->chunks->params[param].first_chunk;
    if (w->contributions != w->values || w->gather[chunk].n_missing == 0)
        return -1;
    for (int i = w->chunks->chunks[chunk].param; i < w->n_params; i++)
        if (w->chunks->params[i].first_chunk == chunk && w->params[i].pushed == w->step + 1)
            return i;
    return -1;
}

/* Pushes and pulls of a chunk's parameters exclude each other: the answer to a pull must not
 * replace the values while a push computes a change in their place, or before the push has sent
 * it. A pull that begins after a push finds the push's change in the array, or its request in
 * flight. */
static void begin_push(struct weir *w, int param)
{
    struct gather *g = &w->gather[w->chunks->params[param].first_chunk];
    pthread_mutex_lock(&w->lock);
    while (g->n_pulling > 0)
        pthread_cond_wait(&w->changed, &w->lock);
    g->n_pushing++;
    pthread_mutex_unlock(&w->lock);
}

/* Returns the parameter that makes the pull impossible (see change_beside); -1: the pull has
 * begun. */
static int begin_pull(struct weir *w, int param)
{
    struct gather *g = &w->gather[w->chunks->params[param].first_chunk];
    pthread_mutex_lock(&w->lock);
    while (g->n_pushing > 0)
        pthread_cond_wait(&w->changed, &w->lock);
    int beside = change_beside(w, param);
    g->n_pulling += beside < 0;
    pthread_mutex_unlock(&w->lock);
    return beside;
}

/* Ends a push or a pull; *n is the number of such calls in progress. */
static void end_call(struct weir *w, int *n)
{
    pthread_mutex_lock(&w->lock);
    if (--*n == 0)
        pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static enum status request_values(const struct weir *w, int param)
{
    const struct net_param *p = &w->chunks->params[param];
    const struct updates *x = &w->updates;
    enum status st = ST_OK;
    for (int c = p->first_chunk; c < p->first_chunk + p->n_chunks; c++) {
        int64_t version = x->ops->version(x->ctx, c);
        st = version < 0 ? ST_REBASED : x->ops->pull(x->ctx, c, version);
        if (st != ST_OK && st != ST_BUSY) /* ST_BUSY: the answer to a request in flight will contain
                                           * the values */
            return st;
    }
    x->ops->flush(x->ctx);
    return ST_OK;
}

static int pull_within(struct weir *w, int param, const struct within *in)
{
    if (in->invalid)
        return WEIR_REBASED;
    int beside = begin_pull(w, param);
    if (beside >= 0)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "parameter '%.255s' is sent together with '%.255s', which was pushed at step %lld: push the first parameter, too, or pull it before you push the second",
            w->params[param].name, w->params[beside].name, (long long)in->step);
    enum status st = request_values(w, param);
    end_call(w, &w->gather[w->chunks->params[param].first_chunk].n_pulling);
    return weir_steps_code_of_wait(w, st, 0);
}

int weir_pull(struct weir *w, int param)
{
    struct within in;
    int code = weir_steps_enter_for(w, param, &in);
    if (code != WEIR_OK)
        return code;
    code = pull_within(w, param, &in);
    weir_steps_exit(w);
    return code;
}

/* Sends the chunk's contribution; data points to its first element. lacking: the marks of the
 * parameters that have no gradient; NULL: all have gradients. */
static int send_chunk(struct weir *w, int chunk, const float *data, double samples,
                      const uint8_t *lacking)
{
    const struct updates *x = &w->updates;
    int64_t version = w->own_pace ? x->ops->version(x->ctx, chunk) : w->step;
    if (version >= w->train_steps) /* async, ssp: the chunk has had all updates of the job */
        return WEIR_OK;
    enum status st = ST_REBASED;
    if (version >= 0 && weir_changes_encode(w, chunk, samples, lacking))
        st = x->ops->push_encoded(x->ctx, chunk, version, data, (float)samples, lacking);
    else if (version >= 0)
        st = x->ops->push_lacking(x->ctx, chunk, version, data, (float)samples, lacking);
    if (st == ST_BUSY)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "parameter '%.255s' is still in flight at step %lld: wait for this parameter first",
            w->params[w->chunks->chunks[chunk].param].name, (long long)w->step);
    int code = weir_steps_code_of_wait(w, st, 0);
    return code == WEIR_REBASED ? WEIR_OK : code;
}

/* Returns true if the data of a push are values, whose change is to be sent. */
static bool are_values(const struct weir *w, const float *data, double samples)
{
    return w->set.own_local_steps && data && samples > 0;
}

/* Adds a pushed parameter to the chunk that it shares with other parameters. The last one sends the
 * chunk. */
static int send_shared(struct weir *w, int param, const float *data, double samples)
{
    const struct net_param *p = &w->chunks->params[param];
    struct gather *g = &w->gather[p->first_chunk];
    float *room = w->contributions + p->first;
    uint8_t *lacking = w->lacking + lacking_at(w->chunks, p->first_chunk);
    bool lacks = !data && samples > 0;
    if (lacks)
        memset(room, 0, (size_t)p->n_elems * sizeof *room);
    else if (are_values(w, data, samples))
        weir_changes_make(w, param, p->first, p->n_elems, data);
    else if (data != room && samples > 0)
        memcpy(room, data, (size_t)p->n_elems * sizeof *room);
    pthread_mutex_lock(&w->lock);
    if (lacks)
        lacking_set(lacking, param - w->chunks->chunks[p->first_chunk].param);
    int last = --g->n_missing == 0;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    const struct net_chunk *c = &w->chunks->chunks[p->first_chunk];
    return last ? send_chunk(w, p->first_chunk, w->contributions + c->first, samples, lacking)
                : WEIR_OK;
}

static int is_under_way(struct weir *w, int param)
{
    const struct net_param *p = &w->chunks->params[param];
    const struct updates *x = &w->updates;
    int busy = 0;
    for (int c = p->first_chunk; x->ops->is_busy && c < p->first_chunk + p->n_chunks; c++)
        busy |= x->ops->is_busy(x->ctx, c);
    return busy;
}

/* Checks a push and marks the parameter as pushed. A refused push changes nothing. Sets *last to 1
 * if it is the last parameter of the step. */
static int mark_pushed(struct weir *w, int param, const struct within *in, double samples,
                       int *last)
{
    int busy = !in->invalid && is_under_way(w, param);
    pthread_mutex_lock(&w->lock);
    struct param *p = &w->params[param];
    struct gather *g = &w->gather[w->chunks->params[param].first_chunk];
    int twice = p->pushed == in->step + 1;
    int differs = g->n_params > 1 && g->samples >= 0 && g->samples != samples;
    if (!twice && !busy && !differs) {
        p->pushed = in->step + 1;
        p->awaited = 1;
        g->samples = samples;
        w->n_unpushed--;
        w->n_pushing++;
    }
    *last = w->n_unpushed == 0;
    pthread_mutex_unlock(&w->lock);
    if (twice)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "parameter '%.255s' is pushed twice at step %lld", p->name,
                                (long long)in->step);
    if (busy)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "parameter '%.255s' is still in flight at step %lld: wait for this parameter first",
            p->name, (long long)in->step);
    if (differs)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "parameter '%.255s' is pushed for %g samples, but the parameters that are sent with it for another number; the numbers must be equal",
            p->name, samples);
    return WEIR_OK;
}

static int send_param(struct weir *w, int param, const float *data, double samples)
{
    static const uint8_t its_own = 1; /* mark of a parameter that has its own chunks */
    const struct net_param *p = &w->chunks->params[param];
    const uint8_t *lacking = !data && samples > 0 ? &its_own : NULL;
    int code = WEIR_OK;
    if (w->gather[p->first_chunk].n_params > 1)
        return send_shared(w, param, data, samples);
    for (int i = p->first_chunk; i < p->first_chunk + p->n_chunks && code == WEIR_OK; i++) {
        const struct net_chunk *c = &w->chunks->chunks[i];
        const float *from = data ? data + (c->first - p->first) : NULL;
        if (are_values(w, data, samples))
            weir_changes_make(w, param, c->first, c->n_elems, from);
        if (!data || are_values(w, data, samples))
            from = w->contributions + c->first;
        pthread_mutex_lock(&w->lock);
        w->gather[i].n_missing = 0;
        pthread_mutex_unlock(&w->lock);
        code = send_chunk(w, i, from, samples, lacking);
    }
    return code;
}

/* Pushes one parameter. Small parameters are collected until their chunk is complete or the step's
 * last parameter is pushed. */
static int push_param(struct weir *w, int param, const struct within *in, const float *data,
                      double samples)
{
    int last = 0, code = mark_pushed(w, param, in, samples, &last);
    if (code != WEIR_OK)
        return code;
    if (!in->invalid)
        code = send_param(w, param, data, samples);
    if (code == WEIR_OK && last)
        w->updates.ops->flush(w->updates.ctx);
    pthread_mutex_lock(&w->lock);
    w->n_pushing--;
    pthread_mutex_unlock(&w->lock);
    return code;
}

/* Checks whether the parameter may be pushed without a gradient. */
static int check_lacking(struct weir *w, int param)
{
    const struct net_param *p = &w->chunks->params[param];
    if (p->rule == PARAM_AVERAGE && !net_param_is_frozen(p))
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "parameter '%.255s' is a statistic, which has no gradient: push its value, or push 0 samples",
            p->name);
    if (w->start.place.n_regions > 0)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "parameter '%.255s' is pushed without a gradient, but servers of a region need one: push zeros",
            p->name);
    return WEIR_OK;
}

static int check_push(struct weir *w, int param, const float *data, double samples, int own)
{
    if (!(samples >= 0 && samples <= JOB_MAX_BATCH))
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "the number of samples is %g, but must be from 0 to %d", samples,
                                JOB_MAX_BATCH);
    if (own != w->set.own_local_steps)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "weir_push_values is for jobs with own_local_steps; in all other jobs call weir_push");
    return !data && samples > 0 ? check_lacking(w, param) : WEIR_OK;
}

static int check_and_push(struct weir *w, int param, const float *data, double samples, int own)
{
    struct within in;
    int code = weir_steps_enter_for(w, param, &in);
    if (code != WEIR_OK)
        return code;
    code = check_push(w, param, data, samples, own);
    if (code == WEIR_OK) {
        begin_push(w, param);
        code = push_param(w, param, &in, data, samples);
        end_call(w, &w->gather[w->chunks->params[param].first_chunk].n_pushing);
    }
    weir_steps_exit(w);
    return code;
}

int weir_push(struct weir *w, int param, const float *gradient, double samples)
{
    return check_and_push(w, param, gradient, samples, 0);
}

int weir_push_values(struct weir *w, int param, const float *values, double samples)
{
    return check_and_push(w, param, values, samples, 1);
}
