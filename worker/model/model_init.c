/* worker/model/model_init.c - initial values of parameters. Element i of parameter p is a function
 * of (seed, p, i) alone, so the result depends neither on the process, nor on the order, nor on the
 * division of a parameter into chunks. Each element has its own key, rng_u64(rng_key(seed,
 * RNG_INIT, p), i), so it can draw several numbers: the truncated normal draws again after a number
 * beyond two standard deviations. Normals use the Box-Muller transform, in double. */
#include "base/rng.h"
#include "worker/model/model_private.h"
#include <math.h>
#include <string.h>

static const char init_types[] =
    "truncated_normal normal uniform glorot_uniform he_normal zeros ones constant";

/* Returns the keys that an initialiser of this type may have; NULL: no such type. */
static const char *init_keys(const char *type)
{
    if (strcmp(type, "truncated_normal") == 0 || strcmp(type, "normal") == 0)
        return "type stddev";
    if (strcmp(type, "uniform") == 0)
        return "type limit";
    if (strcmp(type, "constant") == 0)
        return "type value";
    if (strcmp(type, "glorot_uniform") == 0 || strcmp(type, "he_normal") == 0 ||
        strcmp(type, "zeros") == 0 || strcmp(type, "ones") == 0)
        return "type";
    return NULL;
}

static enum status read_type(struct model_reader *r, const char *type, const double fan[2],
                             struct model_init *out)
{
    static const double positive[2] = {1e-9, 1e3}, any[2] = {-1e6, 1e6};
    const double lecun = 1 / sqrt(fan[0]);
    char owner[64], shown[64], hint[96];
    enum status st = ST_OK;
    const char *keys = init_keys(type);
    if (!keys)
        return model_json_fail(r, NULL, "unknown initialiser \"%s\"%s (known: %s)",
                               model_json_printable(shown, sizeof shown, type),
                               model_json_suggest(type, init_types, hint, sizeof hint), init_types);
    snprintf(owner, sizeof owner, "%s", type);
    TRY(model_json_check_keys(r, owner, keys));
    *out = (struct model_init){INIT_CONSTANT, 0};
    if (strcmp(type, "truncated_normal") == 0 || strcmp(type, "normal") == 0) {
        out->kind = type[0] == 't' ? INIT_TRUNCATED_NORMAL : INIT_NORMAL;
        TRY(model_json_double(r, "stddev", positive, &lecun, &out->scale));
    } else if (strcmp(type, "uniform") == 0) {
        out->kind = INIT_UNIFORM;
        TRY(model_json_double(r, "limit", positive, NULL, &out->scale));
    } else if (strcmp(type, "glorot_uniform") == 0) {
        *out = (struct model_init){INIT_UNIFORM, sqrt(6 / (fan[0] + fan[1]))};
    } else if (strcmp(type, "he_normal") == 0) {
        *out = (struct model_init){INIT_NORMAL, sqrt(2 / fan[0])};
    } else if (strcmp(type, "constant") == 0) {
        TRY(model_json_double(r, "value", any, NULL, &out->scale));
    } else {
        out->scale = strcmp(type, "ones") == 0;
    }
done:
    return st;
}

enum status model_init_read(struct model_reader *r, const char *key, double fan_in, double fan_out,
                            struct model_init *out)
{
    const double fan[2] = {fan_in, fan_out};
    const char *type = "glorot_uniform";
    json_t *outer = r->obj, *v = json_object_get(outer, key), *none = json_object();
    enum status st = none ? ST_OK : ST_NOMEM;
    if (st != ST_OK)
        return st;
    if (v && !json_is_string(v) && !json_is_object(v)) {
        json_decref(none);
        return model_json_fail(
            r, key,
            "\"%s\" must be the name of an initialiser, or an object such as {\"type\": \"truncated_normal\", \"stddev\": 0.1}",
            key);
    }
    r->within = key;
    r->obj = json_is_object(v) ? v : none;
    if (json_is_string(v))
        type = json_string_value(v);
    else if (v)
        TRY(model_json_string(r, "type", NULL, &type));
    TRY(read_type(r, type, fan, out));
done:
    r->within = NULL;
    r->obj = outer;
    json_decref(none);
    return st;
}

/* Returns a standard normal number, computed from the draws 2*n and 2*n+1 of an element's key. */
static double normal(uint64_t key, uint64_t n)
{
    /* number in (0, 1], so that its logarithm below is finite */
    double u = (double)((rng_u64(key, 2 * n) >> 11) + 1) * 0x1p-53;
    double v = (double)(rng_u64(key, 2 * n + 1) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static double truncated_normal(uint64_t key)
{
    double z = 0;
    /* One draw in 22 is rejected. 64 rejections in a row are practically impossible, but the loop
     * must end. */
    for (uint64_t n = 0; n < 64; n++) {
        z = normal(key, n);
        if (fabs(z) <= 2)
            return z;
    }
    return 0;
}

static float init_value(const struct model_init *init, uint64_t key)
{
    switch (init->kind) {
    case INIT_UNIFORM:
        return (float)(((double)(rng_u64(key, 0) >> 11) * 0x1p-52 - 1) * init->scale);
    case INIT_NORMAL:
        return (float)(normal(key, 0) * init->scale);
    case INIT_TRUNCATED_NORMAL:
        return (float)(truncated_normal(key) * init->scale);
    case INIT_CONSTANT:
        break;
    }
    return (float)init->scale;
}

bool model_init_is_constant(const struct model *m, int param)
{
    return m->inits[param].kind == INIT_CONSTANT;
}

void model_init_params(const struct model *m, uint64_t seed, float *flat)
{
    for (int p = 0; p < m->n_params; p++) {
        int64_t n = shape_elems(&m->params[p].shape);
        uint64_t key = rng_key(seed, RNG_INIT, (uint64_t)p);
        for (int64_t i = 0; i < n; i++)
            *flat++ = init_value(&m->inits[p], rng_u64(key, (uint64_t)i));
    }
}
