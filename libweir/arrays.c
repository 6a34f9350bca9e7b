/* libweir/arrays.c - see arrays.h, and weir_values and weir_gradient of weir.h. */
#include "libweir/arrays.h"
#include "base/aligned.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

enum status weir_arrays_no_memory(const struct weir *w)
{
    LOG_E("out of memory for %lld parameters", (long long)w->n_elems);
    return ST_NOMEM;
}

enum status weir_arrays_write_first(void *ctx, float *values)
{
    const struct weir *w = ctx;
    for (int i = 0; i < w->n_params; i++) {
        const struct param *p = &w->params[i];
        memcpy(values + p->first, p->first_values, (size_t)shape_elems(&p->shape) * sizeof *values);
    }
    return ST_OK;
}

enum status weir_arrays_make_values(struct weir *w)
{
    w->values = aligned_take_pages((size_t)w->n_elems * sizeof *w->values);
    if (!w->values)
        return weir_arrays_no_memory(w);
    return weir_arrays_write_first(w, w->values);
}

enum status weir_arrays_make_gradients(struct weir *w)
{
    if (w->updates.ops->gradients)
        w->segment = w->updates.ops->gradients(w->updates.ctx, DTYPE_F32);
    if (w->segment) {
        w->gradients = segment_data(w->segment);
        return ST_OK;
    }
    w->gradients = aligned_zero_pages((size_t)w->n_elems * sizeof *w->gradients, &w->own_gradients);
    return w->gradients ? ST_OK : weir_arrays_no_memory(w);
}

void weir_arrays_free(struct weir *w)
{
    for (int i = 0; i < w->n_params; i++)
        free(w->params[i].first_values);
    free(w->values);
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

const float *weir_values(struct weir *w, int param)
{
    const struct param *p = find_begun(w, param);
    return p ? w->values + p->first : NULL;
}

float *weir_gradient(struct weir *w, int param)
{
    const struct param *p = find_begun(w, param);
    return p ? w->gradients + p->first : NULL;
}
