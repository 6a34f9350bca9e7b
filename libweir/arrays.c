/* libweir/arrays.c - see arrays.h, and weir_values and weir_gradient of weir.h. */
#include "libweir/arrays.h"
#include "base/aligned.h"
#include "base/log.h"
#include "libweir/changes.h"
#include "libweir/steps.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum status weir_arrays_no_memory(const struct weir *w)
{
    LOG_E("out of memory for %lld parameters", (long long)w->n_elems);
    return ST_NOMEM;
}

/* Writes one parameter's initial values to `to`. */
static enum status write_first(const struct weir *w, int param, float *to)
{
    const struct param *p = &w->params[param];
    if (!p->write_first) {
        memcpy(to, p->first_values, (size_t)shape_elems(&p->shape) * sizeof *to);
        return ST_OK;
    }
    weir_errors_enter_first(true);
    int failed = p->write_first(p->first_ctx, param, to);
    weir_errors_enter_first(false);
    if (!failed)
        return ST_OK;
    LOG_E("parameter '%.255s': the function that writes its first values returned %d", p->name,
          failed);
    return ST_INVALID;
}

enum status weir_arrays_write_first(void *ctx, float *values)
{
    const struct weir *w = ctx;
    enum status st = ST_OK;
    for (int i = 0; i < w->n_params && st == ST_OK; i++)
        st = write_first(w, i, values + w->params[i].first);
    return st;
}

int weir_param_first_values(struct weir *w, int param,
                            int (*write)(void *ctx, int param, float *values), void *ctx)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    if (w->state != HANDLE_NEW)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "call weir_param_first_values before the first weir_next");
    if (!weir_params_find(w, param))
        return WEIR_E_INVALID;
    if (!write)
        return weir_errors_fail(w, WEIR_E_INVALID, "the function that writes first values is NULL");
    struct param *p = &w->params[param];
    free(p->first_values);
    p->first_values = NULL;
    p->write_first = write;
    p->first_ctx = ctx;
    return WEIR_OK;
}

enum status weir_arrays_make_values(struct weir *w)
{
    char why[SEGMENT_WHY_BYTES];
    size_t bytes = (size_t)w->n_elems * sizeof *w->values;
    bool lends = weir_changes_in_place(w) && dtype_block(w->job.push_dtype) == 1 &&
                 w->cluster.ps.n > 0 && w->set.job.shared_memory == 0;
    if (lends && segment_create(bytes, &w->segment, why) != ST_OK)
        LOG_D("no shared memory for the values: %s", why);
    w->own_values = w->segment ? NULL : aligned_take_pages(bytes);
    w->values = w->segment ? segment_data(w->segment) : w->own_values;
    if (!w->values)
        return weir_arrays_no_memory(w);
    return weir_arrays_write_first(w, w->values);
}

enum status weir_arrays_make_gradients(struct weir *w)
{
    struct segment *segment = NULL;
    if (w->updates.ops->gradients)
        segment = w->updates.ops->gradients(w->updates.ctx, DTYPE_F32);
    if (segment) {
        w->segment = segment;
        w->gradients = segment_data(segment);
    } else {
        w->gradients =
            aligned_zero_pages((size_t)w->n_elems * sizeof *w->gradients, &w->own_gradients);
        if (!w->gradients)
            return weir_arrays_no_memory(w);
    }
    w->contributions = !segment && weir_changes_in_place(w) ? w->values : w->gradients;
    return ST_OK;
}

void weir_arrays_free(struct weir *w)
{
    for (int i = 0; i < w->n_params; i++)
        free(w->params[i].first_values);
    free(w->own_values);
    free(w->own_gradients);
    segment_unref(w->segment);
}

/* Finds a parameter that has values. NULL, with the error set: there is no such parameter, or no
 * weir_next has returned yet. */
static const struct param *find_begun(struct weir *w, int param)
{
    if (weir_errors_refuses(w))
        return NULL;
    const struct param *p = weir_params_find(w, param);
    pthread_mutex_lock(&w->lock);
    int begun = w->begun;
    pthread_mutex_unlock(&w->lock);
    if (p && !begun)
        weir_errors_fail(w, WEIR_E_INVALID,
                         "there are no values before weir_next has returned WEIR_OK");
    return begun ? p : NULL;
}

/* Returns true if the array of the parameter's values holds the change that was pushed, because the
 * answer has not arrived yet, or will never arrive. */
static bool holds_change(struct weir *w, int param)
{
    pthread_mutex_lock(&w->lock);
    bool done = w->state == HANDLE_STOPPED && w->code == WEIR_DONE;
    int64_t pushed = done || w->contributions != w->values ? 0 : w->params[param].pushed;
    pthread_mutex_unlock(&w->lock);
    return pushed > 0 && !weir_steps_is_here(w, param, pushed);
}

const float *weir_values(struct weir *w, int param)
{
    const struct param *p = find_begun(w, param);
    if (p && holds_change(w, param)) {
        weir_errors_fail(
            w, WEIR_E_INVALID,
            "parameter '%.255s' has no values between its push and the answer: call weir_wait or weir_next first, and keep a copy in case this member leaves",
            p->name);
        return NULL;
    }
    return p ? w->values + p->first : NULL;
}

float *weir_gradient(struct weir *w, int param)
{
    const struct param *p = find_begun(w, param);
    return p ? w->gradients + p->first : NULL;
}
