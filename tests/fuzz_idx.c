/* tests/fuzz_idx.c - libFuzzer target: IDX data in memory, and as a file, plain or gzipped. In the
 * first byte, bit 1 selects the file, and bit 2 compresses the other bytes. Corpus:
 * tests/corpus/idx. */
#include "tests/fuzz.h"
#include "worker/data/data_array.h"
#include "worker/data/data_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

/* Reads every number, so that the sanitizer detects an array that ends too early. */
static void use(const struct data_array *a)
{
    int64_t n = data_array_elems(a), sum = 0;
    require(n >= 0 && a->n_dims >= 1 && a->n_dims <= DATA_MAX_DIMS);
    for (int64_t i = 0; i < n; i++)
        sum += data_array_integer(a, i) & 1;
    require(sum >= 0 && sum <= n);
}

static uint8_t *pack(const uint8_t *data, size_t size, size_t *packed)
{
    z_stream z = {0};
    require(deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    size_t bound = deflateBound(&z, size);
    uint8_t *out = malloc(bound);
    require(out != NULL);
    z.next_in = (uint8_t *)data;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)bound;
    require(deflate(&z, Z_FINISH) == Z_STREAM_END);
    *packed = bound - z.avail_out;
    deflateEnd(&z);
    return out;
}

static enum status load_as_file(const uint8_t *data, size_t size)
{
    struct data_file *f = NULL;
    struct data_array a;
    char path[64];
    int fd = memfd_create("idx", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum status st = data_file_open(path, &f);
    require((st == ST_OK) == (f != NULL));
    if (st == ST_OK)
        st = data_idx_decode(f->bytes, f->n, path, &a);
    if (st == ST_OK)
        use(&a);
    data_file_close(f);
    close(fd);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    int as_file = data[0] & 2, gzip = data[0] & 4;
    struct data_array a;
    /* A copy of the exact size: AddressSanitizer detects reads beyond it. */
    size_t n = size - 1, packed_bytes;
    uint8_t *copy = malloc(n ? n : 1);
    require(copy != NULL);
    memcpy(copy, data + 1, n);
    enum status st = data_idx_decode(copy, n, "fuzz", &a);
    if (st == ST_OK)
        use(&a);
    if (as_file && gzip) {
        uint8_t *packed = pack(copy, n, &packed_bytes);
        require((load_as_file(packed, packed_bytes) == ST_OK) == (st == ST_OK));
        free(packed);
    } else if (as_file) {
        enum status as = load_as_file(copy, n);
        require(n >= 2 && copy[0] == 0x1f ? 1 : (as == ST_OK) == (st == ST_OK));
    }
    free(copy);
    return 0;
}
