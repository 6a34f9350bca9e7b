/* worker/data/dataset_same.c - compares two sets by their files and offsets, then by their
 * bytes. */
#include "worker/data/dataset_same.h"
#include "worker/data/dataset_impl.h"
#include <string.h>

bool dataset_same_samples(const struct dataset *a, const struct dataset *b)
{
    const struct data_array *x = &((const struct source *)a)->array[SAMPLES];
    const struct data_array *y = &((const struct source *)b)->array[SAMPLES];
    if (a->n != b->n || x->type != y->type || x->swapped != y->swapped ||
        shape_elems(&a->sample) != shape_elems(&b->sample))
        return false;
    if (strcmp(a->path, b->path) == 0 && !x->unpacked && !y->unpacked)
        return x->offset == y->offset; /* both sets are in the same file, so no bytes are read */
    size_t bytes = (size_t)data_array_elems(x) * (size_t)data_array_type_bytes(x->type);
    return memcmp(x->data, y->data, bytes) == 0;
}
