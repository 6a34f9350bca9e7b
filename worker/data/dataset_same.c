/* worker/data/dataset_same.c - compares two sets by their files and offsets, then by their bytes,
 * and by their keys. */
#include "worker/data/dataset_same.h"
#include "worker/data/dataset_impl.h"
#include <string.h>

static bool same_keys(const struct dataset_key_input *a, const struct dataset_key_input *b,
                      int64_t rows)
{
    size_t cells = (size_t)rows * (size_t)a->n_columns, n = a->first ? a->first[cells] : cells;
    return a->n_columns == b->n_columns && !a->first == !b->first &&
           (!a->first || memcmp(a->first, b->first, (cells + 1) * sizeof *a->first) == 0) &&
           memcmp(a->keys, b->keys, n * sizeof *a->keys) == 0;
}

static bool have_same_keys(const struct dataset *a, const struct dataset *b)
{
    int n = a->keys ? a->keys->n : 0;
    if (n != (b->keys ? b->keys->n : 0))
        return false;
    for (int i = 0; i < n; i++)
        if (!same_keys(&a->keys->input[i], &b->keys->input[i], a->n))
            return false;
    return true;
}

bool dataset_same_samples(const struct dataset *a, const struct dataset *b)
{
    const struct data_array *x = &((const struct source *)a)->array[SAMPLES];
    const struct data_array *y = &((const struct source *)b)->array[SAMPLES];
    if (a->n != b->n || x->type != y->type || x->swapped != y->swapped ||
        shape_elems(&a->sample) != shape_elems(&b->sample) || !have_same_keys(a, b))
        return false;
    if (strcmp(a->path, b->path) == 0 && !x->unpacked && !y->unpacked)
        return x->offset == y->offset; /* both sets are in the same file, so no bytes are read */
    size_t bytes = (size_t)data_array_elems(x) * (size_t)data_array_type_bytes(x->type);
    return memcmp(x->data, y->data, bytes) == 0;
}
