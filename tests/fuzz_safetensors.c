/* tests/fuzz_safetensors.c - libFuzzer target: any bytes as a safetensors file; an accepted file
 * must have the bytes of all its entries. Corpus: tests/corpus/safetensors. */
#include "files/safetensors.h"
#include "tests/fuzz.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void read_all(const struct safetensors_file *f, size_t size)
{
    char why[SAFETENSORS_WHY_BYTES];
    size_t sum = 0;
    int n;
    const struct safetensors_entry *e = safetensors_entries(f, &n);
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)e[i].n_elems * sizeof(float);
        require(bytes <= size && strlen(e[i].name) <= size);
        float *values = malloc(bytes + 1);
        require(values != NULL);
        require(safetensors_read(f, &e[i], 0, e[i].n_elems, values, why) == ST_OK);
        require(safetensors_read(f, &e[i], 1, e[i].n_elems, values, why) != ST_OK);
        free(values);
        sum += bytes;
    }
    require(sum <= size);
    enum status st = safetensors_check(f, NULL, why);
    require(st == ST_OK || st == ST_CORRUPT);
}

static void read_raw(const struct safetensors_file *f, size_t size)
{
    char why[SAFETENSORS_WHY_BYTES];
    size_t sum = 0;
    int n;
    const struct safetensors_entry *e = safetensors_entries(f, &n);
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)e[i].bytes;
        require(e[i].elem_bytes >= 0 && e[i].elem_bytes <= 8 && bytes <= size);
        sum += bytes;
        if (e[i].elem_bytes == 0) {
            require(safetensors_read_raw(f, &e[i], 0, 0, NULL, why) == ST_CORRUPT);
            continue;
        }
        require(bytes == (size_t)e[i].n_elems * (size_t)e[i].elem_bytes);
        char *raw = malloc(bytes + 1);
        require(raw != NULL);
        require(safetensors_read_raw(f, &e[i], 0, e[i].n_elems, raw, why) == ST_OK);
        require(safetensors_read_raw(f, &e[i], 1, e[i].n_elems, raw, why) != ST_OK);
        free(raw);
    }
    require(sum <= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], why[SAFETENSORS_WHY_BYTES] = "";
    struct safetensors_file *f = NULL, *any = NULL;
    int fd = memfd_create("safetensors", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (safetensors_open(path, &f, why) == ST_OK)
        read_all(f, size);
    else
        require(why[0] != 0);
    if (safetensors_open_any(path, &any, why) == ST_OK)
        read_raw(any, size);
    else
        require(f == NULL); /* a file of only float32 also opens for any dtype */
    safetensors_close(f);
    safetensors_close(any);
    close(fd);
    return 0;
}
