/* worker/data/dataset_keys.c - see dataset_keys.h. Arrays of 64-bit numbers stay in the mapped
 * file, if they are aligned there. */
#include "worker/data/dataset_keys.h"
#include "base/log.h"
#include "member/dataset_order.h"
#include <stdlib.h>
#include <string.h>

static enum status check_array(const struct dataset_key_source *source, const struct data_array *a,
                               const char *path, int64_t n)
{
    char shape[128];
    data_array_shape(a, shape, sizeof shape);
    if (data_array_type_is_plain(a->type)) {
        LOG_E("%s: array '%s' has numbers of type %s, but the keys of input '%s' are whole numbers",
              path, source->array, data_array_type_name(a->type), source->input);
        return ST_CORRUPT;
    }
    if (a->n_dims < 1 || a->n_dims > 2 || data_array_row_elems(a) < 1 ||
        data_array_row_elems(a) > DATASET_MAX_KEY_COLUMNS) {
        LOG_E(
            "%s: array '%s' is an array of %s, but the keys of input '%s' are (n) or (n, columns), with 1 to %d columns",
            path, source->array, shape, source->input, DATASET_MAX_KEY_COLUMNS);
        return ST_CORRUPT;
    }
    if (a->dim[0] == n)
        return ST_OK;
    LOG_E("%s: array '%s' is an array of %s, but there are %lld samples", path, source->array,
          shape, (long long)n);
    return ST_MISMATCH;
}

/* Returns number i of an array of 64-bit numbers in the file's order of bytes. */
static uint64_t raw_number(const struct data_array *a, int64_t i)
{
    uint64_t bits;
    memcpy(&bits, a->data + i * (int64_t)sizeof bits, sizeof bits);
    return a->swapped ? __builtin_bswap64(bits) : bits;
}

enum status dataset_keys_read(const struct dataset_key_source *source, const struct data_array *a,
                              const char *path, int64_t n, struct dataset_key_input *out,
                              uint64_t **own)
{
    enum status st = check_array(source, a, path, n);
    if (st != ST_OK)
        return st;
    int64_t n_keys = data_array_elems(a);
    bool is_64 = a->type == DATA_U64 || a->type == DATA_I64;
    *own = NULL;
    *out = (struct dataset_key_input){.n_columns = (int)data_array_row_elems(a)};
    if (is_64 && !a->swapped && (uintptr_t)a->data % sizeof(uint64_t) == 0) {
        out->keys = (const void *)a->data;
        return ST_OK;
    }
    uint64_t *keys = malloc(((size_t)n_keys + 1) * sizeof *keys);
    if (!keys) {
        LOG_E("%s: no memory for %lld keys of array '%s'", path, (long long)n_keys, source->array);
        return ST_NOMEM;
    }
    for (int64_t i = 0; i < n_keys; i++)
        keys[i] = is_64 ? raw_number(a, i) : (uint64_t)data_array_integer(a, i);
    *own = keys;
    out->keys = keys;
    return ST_OK;
}

enum status dataset_keys_alone(const char *path, int64_t n, struct data_array *out)
{
    if (n < 1 || n > DATASET_MAX_ITEMS) {
        LOG_E("%s: its keys are those of %lld samples; it must have from 1 to %d", path,
              (long long)n, DATASET_MAX_ITEMS);
        return ST_CORRUPT;
    }
    uint8_t *zeros = calloc((size_t)n, 1);
    if (!zeros) {
        LOG_E("%s: no memory for %lld samples", path, (long long)n);
        return ST_NOMEM;
    }
    *out = (struct data_array){
        .type = DATA_U8, .n_dims = 2, .dim = {n, 1}, .data = zeros, .unpacked = zeros};
    return ST_OK;
}
