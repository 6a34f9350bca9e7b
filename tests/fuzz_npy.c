/* tests/fuzz_npy.c - libFuzzer target: reads npy data in memory or, if the first byte is odd, npz
 * data. An accepted array must lie within the bytes, or in memory for unpacked data. Corpus:
 * tests/corpus/npy. */
#include "tests/fuzz.h"
#include "worker/data/data_array.h"
#include <stdlib.h>
#include <string.h>

static void use(const struct data_array *a)
{
    int64_t n = data_array_elems(a), sum = 0;
    char shape[64];
    require(n >= 0 && a->n_dims >= 0 && a->n_dims <= DATA_MAX_DIMS);
    require(*data_array_shape(a, shape, sizeof shape) == '(');
    for (int64_t i = 0; i < n; i++)
        sum += data_array_integer(a, i) & 1;
    require(sum >= 0 && sum <= n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct data_array a;
    if (size == 0)
        return 0;
    /* A copy of the exact size: AddressSanitizer detects reads beyond it. */
    size_t n = size - 1;
    uint8_t *copy = malloc(n ? n : 1);
    require(copy != NULL);
    memcpy(copy, data + 1, n);
    enum status st = data[0] & 1 ? data_npz_decode(copy, n, "fuzz", "images", &a)
                                 : data_npy_decode(copy, n, "fuzz", &a);
    if (st == ST_OK) {
        use(&a);
        free(a.unpacked);
    }
    free(copy);
    return 0;
}
