/* worker/weights/weights_source.c - opens a safetensors file or a checkpoint, and lists and reads
 * its tensors. */
#include "worker/weights/weights_source.h"
#include "base/log.h"
#include "base/slow_wait.h"
#include "checkpoint/best.h"
#include "checkpoint/restore.h"
#include "files/safetensors.h"
#include "kernels/vector/dtype.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096 }; /* number of elements that are converted at once */

struct weights_source {
    const char *flag, *path;       /* borrowed */
    struct safetensors_file *file; /* opened file; NULL: `checkpoint` is set instead */
    struct checkpoint_restore *checkpoint;
    bool is_lent; /* the caller of weights_source_open owns the checkpoint */
    struct weights_tensor *tensors;
    int n;
    struct unwrapped *unwrapped; /* [n_unwrapped], sorted by name */
    int n_unwrapped;
    char *names; /* memory that contains the names */
};

/* A tensor whose name contains parts that PyTorch's wrappers have added. */
struct unwrapped {
    const char *name; /* name without the parts of wrappers */
    struct weights_tensor *tensor;
};

static int by_name(const void *a, const void *b)
{
    const struct weights_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static enum status table_take(struct weights_source *s, int n)
{
    s->tensors = calloc((size_t)n + 1, sizeof *s->tensors);
    if (s->tensors)
        return ST_OK;
    LOG_E("--%s=%s: out of memory for a table of %d tensors", s->flag, s->path, n);
    return ST_NOMEM;
}

static bool is_count(const char *dtype)
{
    return dtype[0] == 'I' || dtype[0] == 'U' || strcmp(dtype, "BOOL") == 0;
}

static enum status open_file(struct weights_source *s)
{
    char why[SAFETENSORS_WHY_BYTES];
    int n;
    enum status st = safetensors_open_any(s->path, &s->file, why);
    /* a restart would not help: the user of this program may not read the file */
    bool is_barred = st == ST_IO && access(s->path, R_OK) != 0 && errno == EACCES;
    if (is_barred)
        st = ST_INVALID;
    if (st != ST_OK) {
        LOG_E(
            "--%s=%s: %s%s", s->flag, s->path, why,
            is_barred ? "; let the user of this program read it"
            : st == ST_CORRUPT
                ? "; it must be a safetensors file (safetensors.torch.save_file makes one from a PyTorch state_dict), or a checkpoint's .json, folder or `best`"
                : "");
        return st;
    }
    const char *format = safetensors_metadata(s->file, "format");
    if (format && strcmp(format, "weir checkpoint") == 0) {
        LOG_E(
            "--%s=%s: is one server's file of a checkpoint; name the checkpoint's weir-E.G-STEP.json or its folder",
            s->flag, s->path);
        return ST_INVALID;
    }
    const struct safetensors_entry *e = safetensors_entries(s->file, &n);
    TRY(table_take(s, n));
    for (; s->n < n; s->n++)
        s->tensors[s->n] = (struct weights_tensor){.name = e[s->n].name,
                                                   .shape = e[s->n].shape,
                                                   .n_elems = e[s->n].n_elems,
                                                   .dtype = e[s->n].dtype_text,
                                                   .is_float = safetensors_is_float(e[s->n].dtype),
                                                   .is_count = is_count(e[s->n].dtype_text),
                                                   .at = s->n};
done:
    return st;
}

/* Returns true if the file is the JSON index of a model in several safetensors files: it has a
 * "weight_map". */
static bool is_index(const char *path)
{
    char head[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head - 1);
    head[n < 0 ? 0 : n] = 0;
    if (fd >= 0)
        close(fd);
    return head[0] == '{' && strstr(head, "\"weight_map\"");
}

enum status weights_source_find_checkpoint(const char *flag, const char *path,
                                           struct checkpoint_restore **out)
{
    if (is_index(path)) {
        LOG_E(
            "--%s=%s: is an index of several files, each with a part of the tensors; name one file with all tensors: load them in Python and save them together with safetensors.torch.save_file",
            flag, path);
        return ST_UNSUPPORTED;
    }
    struct slow_wait *wait = slow_wait_begin(path, -1, NULL, NULL);
    enum status st = checkpoint_restore_find(path, out);
    slow_wait_end(wait);
    if (st == ST_NOT_FOUND)
        LOG_E("--%s=%s: there is no checkpoint", flag, path);
    return st;
}

static enum status open_checkpoint(struct weights_source *s)
{
    enum status st = ST_OK;
    if (!s->is_lent)
        TRY(weights_source_find_checkpoint(s->flag, s->path, &s->checkpoint));
    const struct chunks *chunks = checkpoint_restore_manifest(s->checkpoint)->chunks;
    TRY(table_take(s, chunks->n_params));
    for (; s->n < chunks->n_params; s->n++) {
        const struct net_param *p = &chunks->params[s->n];
        s->tensors[s->n] = (struct weights_tensor){.name = p->name,
                                                   .shape = p->shape,
                                                   .n_elems = p->n_elems,
                                                   .dtype = "F32",
                                                   .is_float = true,
                                                   .at = p->first};
    }
done:
    return st;
}

bool weights_source_is_checkpoint(const char *path)
{
    struct stat st;
    size_t n = strlen(path);
    return (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) ||
           (n > 5 && strcmp(path + n - 5, ".json") == 0) || checkpoint_best_is(path);
}

/* Returns true if the n bytes at `part` are a part that PyTorch's wrappers add to a tensor's name.
 * Most such parts are recognised anywhere in the name; `module` only at the beginning, because
 * elsewhere it could be the name of a module. */
static bool is_wrapper(const char *part, size_t n, bool in_front)
{
    static const char *const names[] = {"module", "_orig_mod", "_fsdp_wrapped_module",
                                        "_checkpoint_wrapped_module"};
    for (size_t i = in_front ? 0 : 1; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && memcmp(names[i], part, n) == 0)
            return true;
    return false;
}

/* Writes a tensor's name without the parts of wrappers. Returns the address after the name's final
 * 0. */
static char *unwrap_name(const char *tensor, char *to)
{
    bool in_front = true;
    while (*tensor) {
        size_t n = strcspn(tensor, ".");
        bool is_last = !tensor[n];
        if (is_last || !is_wrapper(tensor, n, in_front)) {
            memcpy(to, tensor, n + !is_last);
            to += n + !is_last;
            in_front = false;
        }
        tensor += n + !is_last;
    }
    *to = 0;
    return to + 1;
}

static int by_unwrapped_name(const void *a, const void *b)
{
    const struct unwrapped *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Lists the tensors that weights_source_find_wrapped can find. */
static enum status list_unwrapped(struct weights_source *s)
{
    size_t bytes = 1;
    for (int i = 0; i < s->n; i++)
        bytes += strlen(s->tensors[i].name) + 1;
    char *to = s->names = malloc(bytes);
    s->unwrapped = malloc(((size_t)s->n + 1) * sizeof *s->unwrapped);
    if (!s->names || !s->unwrapped) {
        LOG_E("--%s=%s: out of memory for the names of %d tensors", s->flag, s->path, s->n);
        return ST_NOMEM;
    }
    for (int i = 0; i < s->n; i++) {
        char *end = unwrap_name(s->tensors[i].name, to);
        if (strcmp(to, s->tensors[i].name) == 0)
            continue;
        s->unwrapped[s->n_unwrapped++] = (struct unwrapped){to, &s->tensors[i]};
        to = end;
    }
    qsort(s->unwrapped, (size_t)s->n_unwrapped, sizeof *s->unwrapped, by_unwrapped_name);
    return ST_OK;
}

enum status weights_source_open(const char *flag, const char *path,
                                struct checkpoint_restore *checkpoint, struct weights_source **out)
{
    enum status st = ST_OK;
    struct weights_source *s = calloc(1, sizeof *s);
    if (!s) {
        LOG_E("--%s=%s: out of memory", flag, path);
        return ST_NOMEM;
    }
    s->flag = flag;
    s->path = path;
    s->checkpoint = checkpoint;
    s->is_lent = checkpoint != NULL;
    TRY(weights_source_is_checkpoint(path) ? open_checkpoint(s) : open_file(s));
    qsort(s->tensors, (size_t)s->n, sizeof *s->tensors, by_name);
    TRY(list_unwrapped(s));
    *out = s;
    s = NULL;
done:
    weights_source_close(s);
    return st;
}

void weights_source_close(struct weights_source *s)
{
    if (!s)
        return;
    safetensors_close(s->file);
    if (!s->is_lent)
        checkpoint_restore_close(s->checkpoint);
    free(s->tensors);
    free(s->unwrapped);
    free(s->names);
    free(s);
}

const struct checkpoint_restore *weights_source_checkpoint(const struct weights_source *s)
{
    return s->checkpoint;
}

struct weights_tensor *weights_source_tensors(struct weights_source *s, int *n)
{
    *n = s->n;
    return s->tensors;
}

struct weights_tensor *weights_source_find(struct weights_source *s, const char *name)
{
    const struct weights_tensor key = {.name = name};
    return bsearch(&key, s->tensors, (size_t)s->n, sizeof *s->tensors, by_name);
}

enum status weights_source_find_wrapped(struct weights_source *s, const char *name,
                                        struct weights_tensor **out)
{
    int from = 0, to = s->n_unwrapped;
    while (from < to) {
        int half = from + (to - from) / 2;
        if (strcmp(s->unwrapped[half].name, name) < 0)
            from = half + 1;
        else
            to = half;
    }
    const struct unwrapped *u = s->unwrapped + from, *end = s->unwrapped + s->n_unwrapped;
    *out = u < end && strcmp(u->name, name) == 0 ? u->tensor : NULL;
    if (!*out || u + 1 == end || strcmp(u[1].name, name) != 0)
        return ST_OK;
    LOG_E(
        "--%s=%s: tensors '%.200s' and '%.200s' are both '%.200s' without the parts that PyTorch's wrappers add; choose one in --init_map=FILE (PARAMETER = TENSOR)",
        s->flag, s->path, u->tensor->name, u[1].tensor->name, name);
    return ST_MISMATCH;
}

/* Returns true if the averages of a checkpoint are read instead of the values. --init always reads
 * the values, because training continues from them. */
static bool reads_averages(const struct weights_source *s)
{
    return s->checkpoint && strcmp(s->flag, "init") != 0 &&
           checkpoint_restore_manifest(s->checkpoint)->job.optim.ema_decay > 0;
}

bool weights_source_origin(const struct weights_source *s, struct weights_origin *out)
{
    if (s->file)
        return weights_origin_read(s->file, out);
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(s->checkpoint);
    *out = (struct weights_origin){m->step, 1, m->job.normal, reads_averages(s)};
    return true;
}

static void convert_values(const struct safetensors_entry *e, const void *raw, int64_t n,
                           float *dst)
{
    const char *from = raw;
    if (e->dtype == SAFETENSORS_F64)
        for (int64_t i = 0; i < n; i++) {
            double value;
            memcpy(&value, from + i * (int64_t)sizeof value, sizeof value);
            dst[i] = (float)value;
        }
    else
        dtype_decode(e->dtype == SAFETENSORS_F16    ? DTYPE_F16
                     : e->dtype == SAFETENSORS_BF16 ? DTYPE_BF16
                                                    : DTYPE_F32,
                     dst, raw, (size_t)n);
}

static enum status read_entry(struct weights_source *s, const struct safetensors_entry *e,
                              float *dst)
{
    enum status st = ST_OK;
    char why[SAFETENSORS_WHY_BYTES];
    double raw[BLOCK]; /* memory for elements of the widest type */
    if (e->has_crc)
        TRY(safetensors_check_entry(s->file, e, why));
    for (int64_t at = 0, n; at < e->n_elems; at += n) {
        n = e->n_elems - at < BLOCK ? e->n_elems - at : BLOCK;
        TRY(safetensors_read_raw(s->file, e, at, n, raw, why));
        convert_values(e, raw, n, dst + at);
    }
done:
    if (st != ST_OK)
        LOG_E("--%s=%s: %s", s->flag, s->path, why);
    return st;
}

enum status weights_source_read(struct weights_source *s, const struct weights_tensor *t,
                                float *dst)
{
    enum status st = ST_OK;
    int64_t version;
    int n;
    if (s->file)
        TRY(read_entry(s, &safetensors_entries(s->file, &n)[t->at], dst));
    else if (checkpoint_restore_holds(s->checkpoint, t->at, t->n_elems))
        TRY(reads_averages(s)
                ? checkpoint_restore_read_average(s->checkpoint, t->at, t->n_elems, dst)
                : checkpoint_restore_read(s->checkpoint, t->at, t->n_elems, dst, NULL, &version));
    else {
        LOG_E(
            "--%s=%s: the checkpoint is in several servers' own folders; copy all of its files into one folder",
            s->flag, s->path);
        return ST_NOT_FOUND;
    }
    for (int64_t i = 0; i < t->n_elems; i++)
        if (!isfinite(dst[i])) {
            LOG_E("--%s=%s: tensor '%.200s' has %g as its element %" PRId64
                  "; only finite numbers are supported",
                  s->flag, s->path, t->name, (double)dst[i], i);
            return ST_INVALID;
        }
done:
    return st;
}
