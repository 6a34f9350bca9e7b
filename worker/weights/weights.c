/* worker/weights/weights.c - matches parameters with tensors of a file, reads the tensors, and logs
 * each parameter that does not fit. See weights.h. */
#include "worker/weights/weights.h"
#include "base/log.h"
#include "net/wire/tables.h"
#include "worker/weights/weights_map.h"
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* MOST_LINES: highest number of log lines of one kind */
enum { MOST_LINES = 20, SHAPE_BYTES = 160, FREEZE_PATTERN_BYTES = 256 };

static const char *shape_text(const struct shape *s, char text[SHAPE_BYTES])
{
    size_t n = 0;
    snprintf(text, SHAPE_BYTES, "a scalar");
    for (int i = 0; i < s->n_dims && n < SHAPE_BYTES; i++)
        n += (size_t)snprintf(text + n, SHAPE_BYTES - n, "%s%" PRId64, i ? "x" : "", s->dim[i]);
    return text;
}

/* Returns true if the shapes are equal when dimensions of size 1, which do not affect the order of
 * values, are ignored. */
static bool shape_fits(const struct shape *a, const struct shape *b)
{
    int i = 0, k = 0;
    for (;;) {
        while (i < a->n_dims && a->dim[i] == 1)
            i++;
        while (k < b->n_dims && b->dim[k] == 1)
            k++;
        if (i == a->n_dims || k == b->n_dims)
            return i == a->n_dims && k == b->n_dims;
        if (a->dim[i++] != b->dim[k++])
            return false;
    }
}

struct count {
    int given, kept, missing, misshapen, unused;
};

/* Finds the tensor with one of these names; *out NULL: no such tensor. */
static enum status find_tensor(struct weights_source *s, const struct weights_names *names,
                               struct weights_tensor **out)
{
    enum status st = ST_OK;
    *out = NULL;
    for (int i = 0; i < names->n && !*out; i++)
        *out = weights_source_find(s, names->name[i]);
    for (int i = 0; i < names->n && !*out; i++)
        TRY(weights_source_find_wrapped(s, names->name[i], out));
done:
    return st;
}

static enum status read_param(const struct weights_request *q, struct weights_source *s,
                              const struct net_param *p, const struct weights_names *names,
                              float *dst, struct count *count)
{
    char here[SHAPE_BYTES], there[SHAPE_BYTES];
    struct weights_tensor *t;
    enum status st = find_tensor(s, names, &t);
    if (st != ST_OK)
        return st;
    if (!t) {
        if (count->missing++ < MOST_LINES)
            LOG_E("--%s=%s: missing: '%s' (%s: no tensor is called '%.200s'%s%.200s%s)", q->flag,
                  q->path, p->name, shape_text(&p->shape, here), names->name[0],
                  names->n > 1 ? " or '" : "", names->name[1], names->n > 1 ? "'" : "");
        return ST_OK;
    }
    t->used = 1;
    if (!t->is_float || !shape_fits(&p->shape, &t->shape)) {
        if (count->misshapen++ < MOST_LINES)
            LOG_E("--%s=%s: other shape: '%s' is %s, but tensor '%.200s' is %s%s%.20s%s", q->flag,
                  q->path, p->name, shape_text(&p->shape, here), t->name,
                  shape_text(&t->shape, there), t->is_float ? "" : ", of dtype ",
                  t->is_float ? "" : t->dtype,
                  t->is_float ? "" : ", which is not read as a parameter");
        return ST_OK;
    }
    count->given++;
    return weights_source_read(s, t, dst);
}

static void list_unused(const struct weights_request *q, struct weights_source *s,
                        struct count *count)
{
    char shape[SHAPE_BYTES];
    int n;
    const struct weights_tensor *t = weights_source_tensors(s, &n);
    for (int i = 0; i < n; i++)
        if (!t[i].used && !t[i].is_count && count->unused++ < MOST_LINES)
            LOG_W("--%s=%s: unexpected: tensor '%.200s' (%s) belongs to no parameter", q->flag,
                  q->path, t[i].name, shape_text(&t[i].shape, shape));
}

static enum status judge_count(const struct weights_request *q, const struct count *c)
{
    if (c->missing + c->misshapen > 0) {
        LOG_E(
            "--%s=%s: the file %slacks %d of %d parameters, and %d have another shape. %s their tensors in --init_map=FILE (PARAMETER = TENSOR, LAYER = MODULE), or keep their initial values (LAYER = -)",
            q->flag, q->path, q->whole ? "is of another model. It " : "", c->missing,
            q->chunks->n_params, c->misshapen,
            q->whole ? "Set --model (and --hidden_units) as in training, or name" : "Name");
        return ST_MISMATCH;
    }
    if (c->given == 0) {
        LOG_E("--%s=%s: --init_map leaves nothing to read; remove both flags", q->flag, q->path);
        return ST_INVALID;
    }
    return ST_OK;
}

/* Checks a file that Weir wrote and whose parameters are used for inference: the file must have
 * exactly the parameters of the model, and a valid normalisation of samples. */
static enum status judge_own(const struct weights_request *q, const struct weights_result *r,
                             int is_valid)
{
    if (!q->whole || r->origin.step < 0)
        return ST_OK;
    if (!is_valid) {
        LOG_E("--%s=%s: its metadata 'mean' and 'std' must be lists of numbers of equal length",
              q->flag, q->path);
        return ST_CORRUPT;
    }
    if (r->n_unused > 0 && !q->map) {
        LOG_E(
            "--%s=%s: the file is of another model. %d of its tensors belong to no parameter: set --model (and --hidden_units) as in training",
            q->flag, q->path, r->n_unused);
        return ST_MISMATCH;
    }
    return ST_OK;
}

/* Checks that each table of a checkpoint that is used for inference belongs to the model. */
static enum status judge_tables(const struct weights_request *q, const struct weights_source *s)
{
    const struct checkpoint_restore *r = weights_source_checkpoint(s);
    const struct chunks *there = r ? checkpoint_restore_manifest(r)->chunks : NULL;
    for (int i = 0; there && q->whole && !q->map && i < there->n_tables; i++) {
        const char *name = there->tables[i].name;
        int k = 0;
        while (k < q->chunks->n_tables && strcmp(q->chunks->tables[k].name, name) != 0)
            k++;
        if (k < q->chunks->n_tables)
            continue;
        LOG_E(
            "--%s=%s: the checkpoint is of another model: no layer reads its table '%s'; set --model as in training",
            q->flag, q->path, name);
        return ST_MISMATCH;
    }
    return ST_OK;
}

enum status weights_read_from(const struct weights_request *q, struct weights_source *source,
                              float *flat, uint8_t *given, struct weights_result *out)
{
    enum status st = ST_OK;
    struct weights_map *map = NULL;
    struct count count = {0};
    struct weights_result result;
    TRY(weights_map_read(q->map, q->chunks, &map));
    for (int i = 0; i < q->chunks->n_params; i++) {
        const struct net_param *p = &q->chunks->params[i];
        struct weights_names names;
        weights_map_names(map, p->name, &names);
        given[i] = names.n > 0;
        count.kept += names.n == 0;
        if (names.n > 0)
            TRY(read_param(q, source, p, &names, flat + p->first, &count));
    }
    list_unused(q, source, &count);
    TRY(judge_count(q, &count));
    int is_valid = weights_source_origin(source, &result.origin);
    result.n_given = count.given;
    result.n_kept = count.kept;
    result.n_unused = count.unused;
    TRY(judge_own(q, &result, is_valid));
    TRY(judge_tables(q, source));
    *out = result;
done:
    weights_map_free(map);
    return st;
}

enum status weights_read(const struct weights_request *q, float *flat, uint8_t *given,
                         struct weights_result *out)
{
    struct weights_source *source = NULL;
    enum status st = weights_source_open(q->flag, q->path, q->checkpoint, &source);
    if (st == ST_OK)
        st = weights_read_from(q, source, flat, given, out);
    weights_source_close(source);
    return st;
}

enum status weights_extent(const struct weights_request *q, int param, int64_t *out)
{
    enum status st = ST_OK;
    struct weights_map *map = NULL;
    struct weights_source *source = NULL;
    struct weights_names names;
    TRY(weights_map_read(q->map, q->chunks, &map));
    TRY(weights_source_open(q->flag, q->path, q->checkpoint, &source));
    weights_map_names(map, q->chunks->params[param].name, &names);
    struct weights_tensor *t;
    TRY(find_tensor(source, &names, &t));
    *out = t && t->shape.n_dims > 0 ? t->shape.dim[0] : 0;
done:
    weights_source_close(source);
    weights_map_free(map);
    return st;
}

static enum status freeze_one(const char *pattern, struct net_param *params, int n_params)
{
    int n = 0;
    for (int i = 0; i < n_params; i++)
        if (fnmatch(pattern, params[i].name, 0) == 0) {
            params[i].rule = PARAM_AVERAGE;
            params[i].keep = 1;
            n++;
        }
    if (n > 0)
        return ST_OK;
    LOG_E(
        "--freeze: no parameter has a name like '%.200s'; names are LAYER/weights, LAYER/biases and so on, for example '%s'",
        pattern, params[0].name);
    return ST_INVALID;
}

/* Copies the pattern at *at, and sets *at to the next one; NULL: it was the last. Returns its
 * length, without a copy of the rest if it is longer than FREEZE_PATTERN_BYTES - 1. */
static size_t next_pattern(const char **at, char pattern[FREEZE_PATTERN_BYTES])
{
    size_t n = strcspn(*at, ",");
    snprintf(pattern, FREEZE_PATTERN_BYTES, "%.*s", (int)n, *at);
    *at = (*at)[n] ? *at + n + 1 : NULL;
    return n;
}

bool weights_freezes(const char *patterns, const char *name)
{
    char pattern[FREEZE_PATTERN_BYTES];
    for (const char *at = patterns; at;)
        if (next_pattern(&at, pattern) < sizeof pattern && fnmatch(pattern, name, 0) == 0)
            return true;
    return false;
}

enum status weights_freeze(const char *patterns, struct net_param *params, int n_params)
{
    enum status st = ST_OK;
    int frozen = 0, trained = 0;
    char pattern[FREEZE_PATTERN_BYTES];
    for (const char *at = patterns; at;) {
        size_t n = next_pattern(&at, pattern);
        if (n < 1 || n >= sizeof pattern) {
            LOG_E(
                "--freeze: '%.300s' must be patterns of 1 to %zu characters with commas between them, for example conv*,dense1/biases",
                patterns, sizeof pattern - 1);
            return ST_INVALID;
        }
        TRY(freeze_one(pattern, params, n_params));
    }
    for (int i = 0; i < n_params; i++) {
        frozen += net_param_is_frozen(&params[i]);
        trained += params[i].rule == PARAM_TRAINED;
    }
    if (trained == 0) {
        LOG_E("--freeze: '%.300s' leaves nothing to train", patterns);
        return ST_INVALID;
    }
    LOG_I("%d of %d parameters are frozen", frozen, n_params);
done:
    return st;
}
