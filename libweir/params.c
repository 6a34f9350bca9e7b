/* libweir/params.c - the parameters, their names and their places in the flat arrays; see
 * weir_impl.h. */
#include "base/aligned.h"
#include "base/log.h"
#include "libweir/rates.h"
#include "net/wire/lacking.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS_FIRST_ROOM = 16 };

const struct param *weir_params_find(struct weir *w, int param)
{
    if (param >= 0 && param < w->n_params)
        return &w->params[param];
    weir_errors_fail(w, WEIR_E_INVALID, "there is no parameter %d; %d were named", param,
                     w->n_params);
    return NULL;
}

static int read_shape(struct weir *w, const char *name, int n_dims, const int64_t *dims,
                      struct shape *out)
{
    struct shape s = {.n_dims = n_dims};
    if (n_dims < 0 || n_dims > SHAPE_MAX_DIMS || (n_dims > 0 && !dims))
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "parameter '%.255s' has %d dimensions; 0 to %d are allowed", name,
                                n_dims, SHAPE_MAX_DIMS);
    for (int i = 0; i < n_dims; i++)
        s.dim[i] = dims[i];
    if (shape_elems(&s) < 1)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "parameter '%.255s' has a dimension below 1, or too many elements",
                                name);
    *out = s;
    return WEIR_OK;
}

static int make_room(struct weir *w, int64_t n)
{
    if (w->n_params == w->params_room) {
        int room = w->params_room ? 2 * w->params_room : PARAMS_FIRST_ROOM;
        struct param *params = realloc(w->params, (size_t)room * sizeof *params);
        if (!params)
            return 0;
        w->params = params;
        w->params_room = room;
    }
    if (w->n_elems + n > w->elems_room) {
        int64_t room = w->elems_room + w->elems_room / 2;
        room = room > w->n_elems + n ? room : w->n_elems + n;
        float *values = realloc(w->first_values, (size_t)room * sizeof *values);
        if (!values)
            return 0;
        w->first_values = values;
        w->elems_room = room;
    }
    return 1;
}

static int refuse_name(struct weir *w, const char *name)
{
    char shown[CHUNKS_MAX_NAME + 1];
    snprintf(shown, sizeof shown, "%s", name);
    for (char *c = shown; *c; c++)
        *c = iscntrl((unsigned char)*c) ? '?' : *c;
    return weir_errors_fail(
        w, WEIR_E_INVALID,
        "parameter '%s': a name has 1 to %d printable ASCII characters and no spaces; rename it",
        shown, CHUNKS_MAX_NAME);
}

int weir_param(struct weir *w, const char *name, int dtype, int n_dims, const int64_t *dims,
               const float *values)
{
    struct shape shape;
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    if (w->state != HANDLE_NEW)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "parameters must be named before the first weir_next");
    if (!name || !*name)
        return weir_errors_fail(w, WEIR_E_INVALID, "parameter %d has no name", w->n_params);
    if (!chunks_name_ok(name))
        return refuse_name(w, name);
    if (dtype != WEIR_FLOAT32)
        return weir_errors_fail(w, WEIR_E_UNSUPPORTED,
                                "parameter '%.255s': dtype %d is unknown; use WEIR_FLOAT32", name,
                                dtype);
    int code = read_shape(w, name, n_dims, dims, &shape);
    if (code != WEIR_OK)
        return code;
    if (w->n_params == CHUNKS_MAX_PARAMS)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "parameter '%.255s' exceeds the maximum of %d parameters", name,
                                CHUNKS_MAX_PARAMS);
    int64_t n = shape_elems(&shape);
    char *copy = strdup(name);
    if (!copy || !make_room(w, n)) {
        free(copy);
        return weir_errors_fail(w, WEIR_E_NOMEM,
                                "out of memory for parameter '%.255s' of %lld elements", name,
                                (long long)n);
    }
    float *to = w->first_values + w->n_elems;
    if (values)
        memcpy(to, values, (size_t)n * sizeof *to);
    else
        memset(to, 0, (size_t)n * sizeof *to);
    w->params[w->n_params] = (struct param){
        .name = copy, .shape = shape, .keep = -1, .factors = {1, 1}, .first = w->n_elems};
    w->n_elems += n;
    return w->n_params++;
}

int weir_param_average(struct weir *w, int param, double keep)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    if (w->state != HANDLE_NEW)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "parameters must be named before the first weir_next");
    if (!weir_params_find(w, param))
        return WEIR_E_INVALID;
    const struct optim_factors *factors = &w->params[param].factors;
    if (factors->rate != 1 || factors->decay != 1)
        return weir_rates_refuse_statistic(w, param);
    if (!(keep >= 0 && keep <= 1))
        return weir_errors_fail(w, WEIR_E_INVALID, "parameter '%.255s': keep must be from 0 to 1",
                                w->params[param].name);
    w->params[param].keep = keep;
    return WEIR_OK;
}

void weir_params_free(struct weir *w)
{
    for (int i = 0; i < w->n_params; i++)
        free(w->params[i].name);
    free(w->params);
    free(w->first_values);
    free(w->values);
    free(w->own_gradients);
    free(w->gather);
    free(w->lacking);
    segment_unref(w->segment);
    chunks_destroy(w->chunks);
}

void weir_params_write_first(void *ctx, float *values)
{
    const struct weir *w = ctx;
    memcpy(values, w->first_values, (size_t)w->n_elems * sizeof *values);
}

static enum status no_memory(const struct weir *w)
{
    LOG_E("out of memory for %lld parameters", (long long)w->n_elems);
    return ST_NOMEM;
}

enum status weir_params_make_chunks(struct weir *w, int64_t chunk_bytes)
{
    enum status st = ST_OK;
    struct net_param *params = calloc((size_t)w->n_params, sizeof *params);
    if (!params)
        return no_memory(w);
    for (int i = 0; i < w->n_params; i++) {
        const struct param *p = &w->params[i];
        params[i] = (struct net_param){.name = p->name,
                                       .shape = p->shape,
                                       .rule = p->keep >= 0 ? PARAM_AVERAGE : PARAM_TRAINED,
                                       .keep = p->keep >= 0 ? (float)p->keep : 0,
                                       .has_factors = p->keep < 0,
                                       .factors = p->factors};
    }
    TRY(chunks_create(params, w->n_params, chunk_bytes, &w->chunks));
    w->values = aligned_take_pages((size_t)w->n_elems * sizeof *w->values);
    w->gather = calloc((size_t)w->chunks->n_chunks, sizeof *w->gather);
    w->lacking = malloc(lacking_total(w->chunks));
    if (!w->values || !w->gather || !w->lacking) {
        st = no_memory(w);
        goto done;
    }
    weir_params_write_first(w, w->values);
    for (int i = 0; i < w->n_params; i++) {
        const struct net_param *p = &w->chunks->params[i];
        for (int c = p->first_chunk; c < p->first_chunk + p->n_chunks; c++)
            w->gather[c].n_params++;
    }
done:
    free(params);
    return st;
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
