/* libweir/params.c - the parameters, their names and their chunks; see weir_impl.h. */
#include "base/log.h"
#include "libweir/arrays.h"
#include "libweir/rates.h"
#include "libweir/tables.h"
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

static int make_room(struct weir *w)
{
    if (w->n_params == w->params_room) {
        int room = w->params_room ? 2 * w->params_room : PARAMS_FIRST_ROOM;
        struct param *params = realloc(w->params, (size_t)room * sizeof *params);
        if (!params)
            return 0;
        w->params = params;
        w->params_room = room;
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
        return weir_errors_fail(w, WEIR_E_INVALID, "call weir_param before the first weir_next");
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
    /* calloc's zeros need no memory until they are written */
    float *first = calloc((size_t)n, sizeof *first);
    if (!copy || !first || !make_room(w)) {
        free(copy);
        free(first);
        return weir_errors_fail(w, WEIR_E_NOMEM,
                                "out of memory for parameter '%.255s' of %lld elements", name,
                                (long long)n);
    }
    if (values)
        memcpy(first, values, (size_t)n * sizeof *first);
    w->params[w->n_params] = (struct param){.name = copy,
                                            .shape = shape,
                                            .keep = -1,
                                            .factors = {1, 1},
                                            .first = w->n_elems,
                                            .first_values = first};
    w->n_elems += n;
    return w->n_params++;
}

int weir_param_average(struct weir *w, int param, double keep)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    if (w->state != HANDLE_NEW)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "call weir_param_average before the first weir_next");
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
    free(w->gather);
    free(w->lacking);
    chunks_destroy(w->chunks);
}

enum status weir_params_make_chunks(struct weir *w, int64_t chunk_bytes)
{
    enum status st = ST_OK;
    struct net_param *params = calloc((size_t)w->n_params, sizeof *params);
    if (!params)
        return weir_arrays_no_memory(w);
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
    TRY(weir_tables_add(w));
    w->gather = calloc((size_t)w->chunks->n_chunks, sizeof *w->gather);
    w->lacking = malloc(lacking_total(w->chunks));
    if (!w->gather || !w->lacking) {
        st = weir_arrays_no_memory(w);
        goto done;
    }
    TRY(weir_arrays_make_values(w));
    for (int i = 0; i < w->n_params; i++) {
        const struct net_param *p = &w->chunks->params[i];
        for (int c = p->first_chunk; c < p->first_chunk + p->n_chunks; c++)
            w->gather[c].n_params++;
    }
done:
    free(params);
    return st;
}
