/* tests/fuzz_data_safetensors.c - libFuzzer target: a safetensors or npz file as a whole data set,
 * with its arrays "images" and "labels". Bits of the last byte are settings: 1 sets nhwc, 2 reads
 * keys from the array "ids", and 4 reads no images beside the keys. Corpus:
 * tests/corpus/data_safetensors. */
#include "tests/fuzz.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_keys.h"
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint64_t last_key;

static void use_keys(const struct dataset *d)
{
    const struct dataset_key_input *in = &d->keys->input[0];
    require(d->keys->n == 1 && in->n_columns >= 1 && in->n_columns <= DATASET_MAX_KEY_COLUMNS);
    for (int64_t i = 0; i < d->n * in->n_columns; i++)
        last_key = in->keys[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dataset *d = NULL;
    char path[64];
    int fd = memfd_create("data", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    uint8_t settings = size > 0 ? data[size - 1] : 0;
    const struct dataset_key_source keys = {.input = "fields", .array = "ids"};
    const struct dataset_request r = {.dir = "",
                                      .part = "train",
                                      .data = path,
                                      .nhwc = settings & 1,
                                      .keys = &keys,
                                      .n_keys = (settings & 6) != 0,
                                      .no_dense = settings & 4};
    enum status st = dataset_open(&r, &d);
    require((st == ST_OK) == (d != NULL));
    if (st == ST_OK && r.n_keys > 0)
        use_keys(d);
    if (st == ST_OK) {
        int64_t elems = shape_elems(&d->sample);
        float *sample = malloc((size_t)elems * sizeof *sample);
        require(sample && d->n > 0 && d->classes >= 1 && d->classes <= DATASET_MAX_CLASSES);
        for (int64_t i = 0; i < d->n; i++) {
            require(!d->labels != !d->targets);
            require(!d->labels || (d->labels[i] >= 0 && d->labels[i] < d->classes));
            for (int k = 0; d->targets && k < d->classes; k++)
                require(isfinite(d->targets[i * d->classes + k]));
            if (dataset_sample(d, i, sample) == ST_OK)
                require(sample[0] == sample[0] && sample[elems - 1] == sample[elems - 1]);
        }
        free(sample);
    }
    dataset_destroy(d);
    close(fd);
    return 0;
}
