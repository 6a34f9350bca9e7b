/* worker/data/data_cifar.c - reads CIFAR-10's records. Images and labels alternate in the files, so
 * both are copied into arrays. */
#include "worker/data/data_cifar.h"
#include "base/log.h"
#include "worker/data/data_file.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IMAGE_BYTES = 3 * 32 * 32, RECORD_BYTES = 1 + IMAGE_BYTES, N_CLASSES = 10, N_BATCHES = 5 };

static const char first_batch[] = "data_batch_1.bin";

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool data_cifar_is(const char *path)
{
    const char *name = name_of(path);
    return strcmp(name, "test_batch.bin") == 0 ||
           (strlen(name) == strlen(first_batch) && strncmp(name, "data_batch_", 11) == 0 &&
            name[11] >= '1' && name[11] <= '9' && strcmp(name + 12, ".bin") == 0);
}

/* Writes the path of batch k (1 to 9) in the folder of the first batch. */
static void batch_path(const char *first, int k, char path[PATH_MAX])
{
    int folder = (int)(name_of(first) - first);
    snprintf(path, PATH_MAX, "%.*sdata_batch_%d.bin", folder, first, k);
}

/* Returns the number of batches 1, 2, ... that exist without a gap. */
static int count_batches(const char *first)
{
    char path[PATH_MAX];
    int n = 1;
    for (; n < N_BATCHES; n++) {
        batch_path(first, n + 1, path);
        if (access(path, F_OK) != 0)
            break;
    }
    if (n < N_BATCHES)
        LOG_W(
            "%s: CIFAR-10 has %d batches, but %s is missing: the worker trains on the first %d; scripts/get_cifar10 fetches all",
            first, N_BATCHES, path, n);
    return n;
}

static enum status check_file(const struct data_file *f)
{
    if (f->n == 0 || f->n % RECORD_BYTES != 0) {
        LOG_E(
            "%s: has %llu bytes, but CIFAR-10's records have %d each: the file is incomplete, or not a CIFAR-10 file",
            f->path, (unsigned long long)f->n, RECORD_BYTES);
        return ST_CORRUPT;
    }
    return ST_OK;
}

/* Appends a file's records to both arrays, which already have `at` records. */
static enum status copy_records(const struct data_file *f, int64_t at, uint8_t *pixels,
                                int32_t *labels)
{
    for (uint64_t i = 0; i < f->n / RECORD_BYTES; i++) {
        const uint8_t *record = f->bytes + i * RECORD_BYTES;
        if (record[0] >= N_CLASSES) {
            LOG_E(
                "%s: record %llu (byte %llu) has the label %d, but CIFAR-10's labels are from 0 to %d",
                f->path, (unsigned long long)i, (unsigned long long)(i * RECORD_BYTES), record[0],
                N_CLASSES - 1);
            return ST_CORRUPT;
        }
        labels[at + (int64_t)i] = record[0];
        memcpy(pixels + (at + (int64_t)i) * IMAGE_BYTES, record + 1, IMAGE_BYTES);
    }
    return ST_OK;
}

static struct data_cifar arrays_of(uint8_t *pixels, int32_t *labels, int64_t n)
{
    return (struct data_cifar){
        .samples = {.type = DATA_U8,
                    .n_dims = 4,
                    .dim = {n, 3, 32, 32},
                    .data = pixels,
                    .unpacked = pixels},
        .labels = {.type = DATA_I32,
                   .n_dims = 1,
                   .dim = {n},
                   .data = (const uint8_t *)labels,
                   .unpacked = labels},
    };
}

enum status data_cifar_read(const char *path, bool whole, struct data_cifar *out)
{
    enum status st = ST_OK;
    struct data_file *file[N_BATCHES] = {NULL};
    int n_files = whole ? count_batches(path) : 1;
    int64_t n = 0, at = 0;
    uint8_t *pixels = NULL;
    int32_t *labels = NULL;
    for (int k = 0; k < n_files; k++) {
        char name[PATH_MAX];
        batch_path(path, k + 1, name);
        TRY(data_file_open(whole ? name : path, &file[k]));
        TRY(check_file(file[k]));
        n += (int64_t)(file[k]->n / RECORD_BYTES);
    }
    pixels = malloc((size_t)n * IMAGE_BYTES);
    labels = malloc((size_t)n * sizeof *labels);
    if (!pixels || !labels) {
        LOG_E("%s: no memory for %lld images of CIFAR-10", path, (long long)n);
        TRY(ST_NOMEM);
    }
    for (int k = 0; k < n_files; k++) {
        TRY(copy_records(file[k], at, pixels, labels));
        at += (int64_t)(file[k]->n / RECORD_BYTES);
    }
    *out = arrays_of(pixels, labels, n);
    pixels = NULL;
    labels = NULL;
done:
    for (int k = 0; k < N_BATCHES; k++)
        data_file_close(file[k]);
    free(pixels);
    free(labels);
    return st;
}
