/* tests/fuzz_idx.c - libFuzzer target: IDX data in memory, and as a file, plain or gzipped.
 * The first byte chooses: bit 0 labels, bit 1 as a file, bit 2 gzip the rest first.
 * Corpus: tests/corpus/idx. */
#include "tests/fuzz.h"
#include "worker/data/dataset_idx.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

/* Touches every byte, so that the sanitizer sees a payload that ends too early. */
static void use(const uint8_t *payload, const uint32_t dims[3])
{
    uint64_t n = (uint64_t)dims[0] * dims[1] * dims[2], sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += payload[i];
    require(n > 0 && sum <= n * 255);
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

static enum status load_as_file(const uint8_t *data, size_t size, int n_dims)
{
    uint8_t *file = NULL;
    const uint8_t *payload = NULL;
    uint32_t dims[3];
    int fd = memfd_create("idx", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    enum status st = dataset_idx_load(fd, n_dims, "fuzz", &file, dims, &payload);
    require((st == ST_OK) == (file != NULL));
    if (st == ST_OK)
        use(payload, dims);
    free(file);
    close(fd);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    int n_dims = data[0] & 1 ? 1 : 3, as_file = data[0] & 2, gzip = data[0] & 4;
    const uint8_t *payload = NULL;
    uint32_t dims[3];
    /* A copy of the exact size: reading past it is seen. */
    size_t n = size - 1, packed_bytes;
    uint8_t *copy = malloc(n ? n : 1);
    require(copy != NULL);
    memcpy(copy, data + 1, n);
    enum status st = dataset_decode_idx(copy, n, n_dims, "fuzz", dims, &payload);
    if (st == ST_OK)
        use(payload, dims);
    if (as_file && gzip) {
        uint8_t *packed = pack(copy, n, &packed_bytes);
        require((load_as_file(packed, packed_bytes, n_dims) == ST_OK) == (st == ST_OK));
        free(packed);
    } else if (as_file) {
        enum status as = load_as_file(copy, n, n_dims);
        require(n >= 2 && copy[0] == 0x1f ? 1 : (as == ST_OK) == (st == ST_OK));
    }
    free(copy);
    return 0;
}
