/* tests/fuzz_data_safetensors.c - libFuzzer target: a safetensors file as a whole data set, with
 * its tensors "images" and "labels". Corpus: tests/corpus/data_safetensors. */
#include "tests/fuzz.h"
#include "worker/data/dataset.h"
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dataset *d = NULL;
    char path[64];
    int fd = memfd_create("data", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const struct dataset_request r = {
        .dir = "", .part = "train", .data = path, .nhwc = size > 0 && data[size - 1] & 1};
    enum status st = dataset_open(&r, &d);
    require((st == ST_OK) == (d != NULL));
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
