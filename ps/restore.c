/* ps/restore.c - see restore.h. The tensors' names say which elements of which parameter they are;
 * sorted by place, they must follow each other without gaps, the values over all parameters, each
 * slot over those that are trained. */
#include "ps/restore.h"
#include "base/log.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct tensor {
    int slot;         /* -1: values */
    int64_t first, n; /* in the flat block of all parameters */
    int64_t version;
    int file;
    const struct safetensors_entry *entry;
};

struct ps_restore {
    struct ps_manifest *m;
    char folder[PATH_MAX], name[MANIFEST_NAME_BYTES];
    struct safetensors_file **files; /* m->n_files */
    struct tensor *tensors;          /* by slot, then by place */
    int n_tensors;
};

static enum status corrupt(char why[MANIFEST_WHY_BYTES], const char *file, const char *text)
{
    char copy[SAFETENSORS_WHY_BYTES]; /* text may be in why */
    snprintf(copy, sizeof copy, "%s", text);
    snprintf(why, MANIFEST_WHY_BYTES, "%s %s", file, copy);
    return ST_CORRUPT;
}

static int by_name(const void *a, const void *b)
{
    const struct net_param *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The parameters by name, malloc'd. */
static const struct net_param **index_params(const struct chunks *chunks)
{
    const struct net_param **index = malloc((size_t)chunks->n_params * sizeof *index);
    for (int i = 0; index && i < chunks->n_params; i++)
        index[i] = &chunks->params[i];
    if (index)
        qsort(index, (size_t)chunks->n_params, sizeof *index, by_name);
    return index;
}

/* Reads a tensor's name; 0: it is none of ours, or is not as long as it says. */
static int place_tensor(const struct ps_manifest *m, const struct net_param **index,
                        struct tensor *t)
{
    char name[CHUNKS_MAX_NAME + 1];
    const char *text = t->entry->name, *space = strchr(text, ' ');
    size_t length = space ? (size_t)(space - text) : strlen(text);
    if (length > CHUNKS_MAX_NAME)
        return 0;
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    const struct net_param want = {.name = name}, *key = &want;
    const struct net_param **found =
        bsearch(&key, index, (size_t)m->chunks->n_params, sizeof *index, by_name);
    if (!found)
        return 0;
    int64_t begin = 0, end = (*found)->n_elems;
    int used = 0;
    const char *rest = text + length;
    t->slot = -1;
    if (sscanf(rest, " slot %d%n", &t->slot, &used) == 1)
        rest += used;
    used = 0;
    if (*rest && (sscanf(rest, " [%" SCNd64 ":%" SCNd64 "]%n", &begin, &end, &used) != 2 || !used ||
                  rest[used]))
        return 0;
    int n_slots = (*found)->rule == PARAM_AVERAGE ? 0 : optim_n_slots(&m->job.optim);
    if (t->slot < -1 || t->slot >= n_slots || begin < 0 || begin > end || end > (*found)->n_elems)
        return 0;
    t->first = (*found)->first + begin;
    t->n = end - begin;
    return t->n == t->entry->n_elems;
}

static int by_place(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The next element, from `at` on, that the slot has a value for. */
static int64_t next_owned(const struct chunks *chunks, int slot, int *param, int64_t at)
{
    for (; slot >= 0 && *param < chunks->n_params; (*param)++) {
        const struct net_param *p = &chunks->params[*param];
        if (at >= p->first + p->n_elems)
            continue;
        if (p->rule != PARAM_AVERAGE)
            break;
        at = p->first + p->n_elems;
    }
    return at;
}

/* 1 if the tensors cover everything, nothing twice. */
static int check_cover(const struct ps_restore *r)
{
    const struct chunks *chunks = r->m->chunks;
    int i = 0;
    for (int slot = -1; slot < optim_n_slots(&r->m->job.optim); slot++) {
        int param = 0;
        int64_t at = next_owned(chunks, slot, &param, 0);
        for (; i < r->n_tensors && r->tensors[i].slot == slot; i++) {
            if (r->tensors[i].first != at)
                return 0;
            at = next_owned(chunks, slot, &param, at + r->tensors[i].n);
        }
        if (at != chunks->n_elems)
            return 0;
    }
    return i == r->n_tensors;
}

static int64_t version_of(const struct safetensors_file *f, const char *name, int64_t step)
{
    char key[CHUNKS_MAX_NAME + 128];
    snprintf(key, sizeof key, "version %.*s", CHUNKS_MAX_NAME + 80, name);
    const char *text = safetensors_metadata(f, key);
    char *end = NULL;
    int64_t version = text ? strtoll(text, &end, 10) : step;
    return text && (*end || version < 0) ? step : version;
}

static enum status index_tensors(struct ps_restore *r, char why[MANIFEST_WHY_BYTES])
{
    size_t room = 1;
    int n;
    enum status st = ST_OK;
    for (int i = 0; i < r->m->n_files; i++) {
        safetensors_entries(r->files[i], &n);
        room += (size_t)n;
    }
    const struct net_param **index = index_params(r->m->chunks);
    r->tensors = calloc(room, sizeof *r->tensors);
    TRY(index && r->tensors ? ST_OK : ST_NOMEM);
    for (int i = 0; i < r->m->n_files; i++) {
        const struct safetensors_entry *e = safetensors_entries(r->files[i], &n);
        for (int k = 0; k < n; k++) {
            struct tensor *t = &r->tensors[r->n_tensors++];
            *t = (struct tensor){.file = i, .entry = &e[k]};
            t->version = version_of(r->files[i], e[k].name, r->m->step);
            if (!place_tensor(r->m, index, t))
                TRY(corrupt(why, e[k].name, "is no tensor of this job"));
        }
    }
    qsort(r->tensors, (size_t)r->n_tensors, sizeof *r->tensors, by_place);
    if (!check_cover(r))
        TRY(corrupt(why, "a part of the parameters or of their slots",
                    "is missing or there twice"));
done:
    free(index);
    return st;
}

/* Is the file the one that the manifest means, and whole? */
static enum status open_file(struct ps_restore *r, int i, char why[MANIFEST_WHY_BYTES])
{
    char path[PATH_MAX + MANIFEST_NAME_BYTES], name[MANIFEST_NAME_BYTES];
    ps_manifest_file_name(r->m->step, i, r->m->n_files, name);
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    enum status st = safetensors_open(path, &r->files[i], why);
    if (st == ST_OK)
        st = safetensors_check(r->files[i], &r->m->files[i], why);
    return st == ST_OK || st == ST_NOMEM ? st : corrupt(why, name, why);
}

static enum status open_manifest(const char *folder, const char *name, struct ps_restore **out,
                                 char why[MANIFEST_WHY_BYTES])
{
    enum status st = ST_OK;
    char path[PATH_MAX + MANIFEST_NAME_BYTES];
    struct ps_restore *r = calloc(1, sizeof *r);
    snprintf(why, MANIFEST_WHY_BYTES, "%s", status_text(ST_NOMEM));
    if (!r)
        return ST_NOMEM;
    snprintf(r->folder, sizeof r->folder, "%s", folder);
    snprintf(r->name, sizeof r->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TRY(ps_manifest_read(path, &r->m, why));
    r->files = calloc((size_t)r->m->n_files, sizeof *r->files);
    TRY(r->files ? ST_OK : ST_NOMEM);
    for (int i = 0; i < r->m->n_files; i++)
        TRY(open_file(r, i, why));
    TRY(index_tensors(r, why));
    *out = r;
    r = NULL;
done:
    ps_restore_close(r);
    return st;
}

static enum status find_in_folder(const char *folder, struct ps_restore **out)
{
    struct ps_manifest_place *list = NULL;
    char why[MANIFEST_WHY_BYTES], name[MANIFEST_NAME_BYTES];
    int n = 0;
    enum status st = ps_manifest_list(folder, &list, &n);
    if (st != ST_OK)
        return st;
    st = n > 0 ? ST_CORRUPT : ST_NOT_FOUND;
    for (int i = 0; i < n && st == ST_CORRUPT; i++) {
        ps_manifest_name(list[i].step, name);
        st = list[i].readable ? open_manifest(folder, name, out, why) : ST_CORRUPT;
        if (st == ST_OK)
            break;
        LOG_W("%s/%s: not restored: %s%s; trying the one before", folder, name,
              list[i].readable ? "" : "it ", list[i].readable ? why : list[i].why);
        st = ST_CORRUPT;
    }
    free(list);
    if (st == ST_CORRUPT)
        LOG_E("%s: none of its checkpoints is whole; start with another --checkpoint_dir to begin "
              "from the first step",
              folder);
    return st;
}

enum status ps_restore_find(const char *path, struct ps_restore **out)
{
    struct stat s;
    char folder[PATH_MAX], why[MANIFEST_WHY_BYTES];
    const char *slash = strrchr(path, '/');
    if (stat(path, &s) != 0 || S_ISDIR(s.st_mode))
        return find_in_folder(path, out);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (slash && slash == path)
        snprintf(folder, sizeof folder, "/");
    enum status st = open_manifest(folder, slash ? slash + 1 : path, out, why);
    if (st != ST_OK)
        LOG_E("%s: not restored: %s", path, why);
    return st;
}

void ps_restore_close(struct ps_restore *r)
{
    if (!r)
        return;
    for (int i = 0; r->files && i < r->m->n_files; i++)
        safetensors_close(r->files[i]);
    free(r->files);
    free(r->tensors);
    ps_manifest_free(r->m);
    free(r);
}

int ps_restore_has_all_steps(const struct ps_restore *r)
{
    return r && r->m->step >= r->m->job.train_steps;
}

const struct ps_manifest *ps_restore_manifest(const struct ps_restore *r)
{
    return r->m;
}

/* The first tensor of the slot that ends behind `at`. */
static int find_tensor(const struct ps_restore *r, int slot, int64_t at)
{
    int low = 0, high = r->n_tensors;
    while (low < high) {
        int mid = (low + high) / 2;
        const struct tensor *t = &r->tensors[mid];
        if (t->slot < slot || (t->slot == slot && t->first + t->n <= at))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static enum status read_slot(const struct ps_restore *r, int slot, int64_t first, int64_t n,
                             float *dst, int64_t *version)
{
    char why[MANIFEST_WHY_BYTES];
    for (int i = find_tensor(r, slot, first); n > 0; i++) {
        const struct tensor *t = &r->tensors[i];
        if (i >= r->n_tensors || t->slot != slot || t->first > first)
            return ST_NOT_FOUND; /* our own bug: the cover was checked */
        int64_t skip = first - t->first, some = t->n - skip < n ? t->n - skip : n;
        enum status st = safetensors_read(r->files[t->file], t->entry, skip, some, dst, why);
        if (st != ST_OK) {
            LOG_E("%s/%s: tensor '%s': %s", r->folder, r->name, t->entry->name, why);
            return st;
        }
        if (*version < 0 || t->version < *version)
            *version = t->version;
        first += some;
        dst += some;
        n -= some;
    }
    return ST_OK;
}

enum status ps_restore_read(const struct ps_restore *r, int64_t first, int64_t n, float *value,
                            float *slots, int64_t *version)
{
    *version = -1;
    enum status st = read_slot(r, -1, first, n, value, version);
    for (int k = 0; slots && k < optim_n_slots(&r->m->job.optim) && st == ST_OK; k++)
        st = read_slot(r, k, first, n, slots + k * n, version);
    return st;
}
