/* worker/data/data_safetensors.c - finds a tensor in a safetensors file, in the mapped bytes;
 * files/safetensors checks the header. */
#include "base/log.h"
#include "files/safetensors.h"
#include "worker/data/data_array.h"
#include <stdio.h>
#include <string.h>

_Static_assert((int)SHAPE_MAX_DIMS <= (int)DATA_MAX_DIMS, "every shape fits");

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

static void not_there(const struct safetensors_file *f, const char *path, const char *name)
{
    int n;
    char there[300] = "";
    size_t shown = 0;
    const struct safetensors_entry *e = safetensors_entries(f, &n);
    for (int i = 0; i < n; i++) {
        for (const char *c = e[i].name; *c && shown + 4 < sizeof there; c++)
            there[shown++] = *c >= ' ' && *c <= '~' ? *c : '?';
        if (shown + 4 < sizeof there)
            there[shown++] = ' ';
        there[shown] = 0;
    }
    LOG_E(
        "%s: has no tensor '%s' (it has: %s); name the array of samples with --images_name, or each input of a model file with --input_names, and that of labels with --labels_name",
        path, name, *there ? there : "none");
}

static enum status open_file(const char *path, struct safetensors_file **out)
{
    char why[SAFETENSORS_WHY_BYTES];
    enum status st = safetensors_open_any(path, out, why);
    if (st != ST_OK)
        LOG_E("%s: %s", path, why);
    return st;
}

enum status data_safetensors_find(const char *path, const char *name, int *found)
{
    struct safetensors_file *f;
    enum status st = open_file(path, &f);
    if (st != ST_OK)
        return st;
    *found = entry_named(f, name) != NULL;
    safetensors_close(f);
    return ST_OK;
}

static enum status fill(const struct safetensors_entry *e, const uint8_t *bytes, uint64_t n,
                        const char *path, struct data_array *out)
{
    static const char *const names[DATA_N_TYPES] = {
        [DATA_U8] = "U8",    [DATA_I8] = "I8",   [DATA_U16] = "U16", [DATA_I16] = "I16",
        [DATA_U32] = "U32",  [DATA_I32] = "I32", [DATA_U64] = "U64", [DATA_I64] = "I64",
        [DATA_F32] = "F32",  [DATA_F64] = "F64", [DATA_F16] = "F16", [DATA_BF16] = "BF16",
        [DATA_BOOL] = "BOOL"};
    int type = 0;
    while (type < DATA_N_TYPES && strcmp(names[type], e->dtype_text) != 0)
        type++;
    if (type == DATA_N_TYPES) {
        LOG_E(
            "%s: tensor '%s' (byte %llu) is of dtype %s; supported are F64, F32, F16, BF16, BOOL and whole numbers: save samples and targets with a.astype(numpy.float32), class labels with a.astype(numpy.int64)",
            path, e->name, (unsigned long long)e->offset, e->dtype_text);
        return ST_UNSUPPORTED;
    }
    uint64_t data = (uint64_t)e->n_elems * (uint64_t)e->elem_bytes;
    if (e->offset > n || data > n - e->offset) {
        LOG_E("%s: it became shorter while it was opened", path);
        return ST_CORRUPT;
    }
    *out = (struct data_array){.type = (enum data_array_type)type,
                               .n_dims = e->shape.n_dims,
                               .data = bytes + e->offset,
                               .offset = e->offset};
    for (int i = 0; i < e->shape.n_dims; i++)
        out->dim[i] = e->shape.dim[i];
    return ST_OK;
}

enum status data_safetensors_decode(const uint8_t *bytes, uint64_t n, const char *path,
                                    const char *name, struct data_array *out)
{
    struct safetensors_file *f;
    enum status st = open_file(path, &f);
    if (st != ST_OK)
        return st;
    const struct safetensors_entry *e = entry_named(f, name);
    if (!e)
        not_there(f, path, name);
    st = e ? fill(e, bytes, n, path, out) : ST_NOT_FOUND;
    safetensors_close(f);
    return st;
}
