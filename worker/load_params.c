/* worker/load_params.c - see load_params.h. */
#include "worker/load_params.h"
#include "base/log.h"
#include "checkpoint/restore.h"
#include "files/safetensors.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct source {
    const char *flag, *path;
    const struct chunks *chunks;
    float *flat;
    struct params_told *told;
};

static enum status refuse(const struct source *s, enum status st, const char *what)
{
    LOG_E("--%s: %s: %s", s->flag, s->path, what);
    return st;
}

static int same_shape(const struct shape *a, const struct shape *b)
{
    int same = a->n_dims == b->n_dims;
    for (int d = 0; same && d < a->n_dims; d++)
        same = a->dim[d] == b->dim[d];
    return same;
}

static enum status other_model(const struct source *s, int param, const char *what)
{
    LOG_E("--%s: %s: of another model: parameter %d, '%s', %s; give the --model (and "
          "--hidden_units) that it was trained with",
          s->flag, s->path, param, s->chunks->params[param].name, what);
    return ST_MISMATCH;
}

static const struct safetensors_entry *entry_named(const struct safetensors_file *f,
                                                   const char *name)
{
    int n;
    const struct safetensors_entry *e = safetensors_entries(f, &n);
    for (int i = 0; i < n; i++)
        if (strcmp(e[i].name, name) == 0)
            return &e[i];
    return NULL;
}

/* What --export writes. */
static enum status read_metadata(const struct source *s, const struct safetensors_file *f)
{
    const char *step = safetensors_metadata(f, "global_step");
    s->told->step = step ? strtoll(step, NULL, 10) : -1;
    if (!weights_normal_read(f, &s->told->normal))
        return refuse(s, ST_CORRUPT,
                      "its metadata 'mean' and 'std' are no lists of as many numbers");
    return ST_OK;
}

static enum status read_export(const struct source *s, const struct safetensors_file *f)
{
    char why[SAFETENSORS_WHY_BYTES];
    int n;
    safetensors_entries(f, &n);
    for (int i = 0; i < s->chunks->n_params; i++) {
        const struct net_param *p = &s->chunks->params[i];
        const struct safetensors_entry *e = entry_named(f, p->name);
        if (!e || !same_shape(&e->shape, &p->shape))
            return other_model(s, i, e ? "has another shape there" : "is not there");
        enum status st = safetensors_read(f, e, 0, p->n_elems, s->flat + p->first, why);
        if (st != ST_OK)
            return refuse(s, st, why);
    }
    if (n > s->chunks->n_params) {
        LOG_E("--%s: %s: of another model: %d tensors, where this --model has %d parameters",
              s->flag, s->path, n, s->chunks->n_params);
        return ST_MISMATCH;
    }
    return read_metadata(s, f);
}

static enum status load_export(const struct source *s)
{
    char why[SAFETENSORS_WHY_BYTES];
    struct safetensors_file *f = NULL;
    enum status st = safetensors_open(s->path, &f, why);
    if (st == ST_OK)
        st = safetensors_check(f, NULL, why);
    if (st != ST_OK) {
        refuse(s, st, why);
        goto done;
    }
    const char *format = safetensors_metadata(f, "format");
    if (format && strcmp(format, "weir checkpoint") == 0)
        st =
            refuse(s, ST_INVALID,
                   "is one server's file of a checkpoint; give the checkpoint's weir-E.G-STEP.json "
                   "or its folder");
    else
        st = read_export(s, f);
done:
    safetensors_close(f);
    return st;
}

static enum status read_checkpoint(const struct source *s, const struct ps_restore *r)
{
    const struct chunks *there = ps_restore_manifest(r)->chunks;
    for (int i = 0; i < s->chunks->n_params; i++) {
        const struct net_param *p = &s->chunks->params[i];
        const struct net_param *q = i < there->n_params ? &there->params[i] : NULL;
        if (!q || strcmp(p->name, q->name) != 0)
            return other_model(s, i, "is not there");
        if (!same_shape(&p->shape, &q->shape))
            return other_model(s, i, "has another shape there");
    }
    if (there->n_params > s->chunks->n_params)
        return refuse(s, ST_MISMATCH, "of another model, which has more parameters");
    for (int i = 0; i < s->chunks->n_chunks; i++) {
        const struct net_chunk *c = &s->chunks->chunks[i];
        int64_t version;
        if (!ps_restore_holds(r, c->first, c->n_elems))
            return refuse(s, ST_NOT_FOUND,
                          "lies in several servers' own folders; copy all of its files into one");
        enum status st =
            ps_restore_read(r, c->first, c->n_elems, s->flat + c->first, NULL, &version);
        if (st != ST_OK)
            return st;
    }
    s->told->step = ps_restore_manifest(r)->step;
    s->told->normal = (struct weights_normal){1, ps_restore_manifest(r)->job.normal};
    return ST_OK;
}

static enum status load_checkpoint(const struct source *s)
{
    struct ps_restore *r = NULL;
    enum status st = ps_restore_find(s->path, &r);
    if (st == ST_NOT_FOUND)
        return refuse(s, st, "there is no checkpoint");
    if (st == ST_OK)
        st = read_checkpoint(s, r);
    ps_restore_close(r);
    return st;
}

/* A checkpoint, by its manifest or its folder; else an export. */
static int is_checkpoint(const char *path)
{
    struct stat st;
    size_t n = strlen(path);
    int is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return is_folder || (n > 5 && strcmp(path + n - 5, ".json") == 0);
}

enum status params_load(const char *flag, const char *path, const struct chunks *chunks,
                        float *flat, struct params_told *out)
{
    struct params_told told = {.step = -1};
    const struct source s = {flag, path, chunks, flat, &told};
    enum status st = is_checkpoint(path) ? load_checkpoint(&s) : load_export(&s);
    if (st == ST_OK)
        *out = told;
    return st;
}

static int64_t last_dim(const struct shape *s)
{
    return s->n_dims > 0 ? s->dim[s->n_dims - 1] : 0;
}

int64_t params_outputs(const char *path)
{
    char why[SAFETENSORS_WHY_BYTES];
    struct safetensors_file *f = NULL;
    struct ps_restore *r = NULL;
    int64_t outputs = 0;
    int n = 0;
    if (is_checkpoint(path)) {
        if (ps_restore_find(path, &r) == ST_OK) {
            const struct chunks *c = ps_restore_manifest(r)->chunks;
            outputs = c->n_params > 0 ? last_dim(&c->params[c->n_params - 1].shape) : 0;
        }
        ps_restore_close(r);
    } else if (safetensors_open(path, &f, why) == ST_OK) {
        const struct safetensors_entry *e = safetensors_entries(f, &n);
        outputs = n > 0 ? last_dim(&e[n - 1].shape) : 0;
        safetensors_close(f);
    }
    return outputs;
}
