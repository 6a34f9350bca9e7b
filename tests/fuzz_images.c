/* tests/fuzz_images.c - libFuzzer target: a PNG or JPEG file, distinguished by its first byte. If a
 * PNG's last byte is odd, its checksums are fixed first, so that the code after their check runs,
 * too. Accepted pictures are within bounds, and no larger than the file's bytes can hold. Corpus:
 * tests/corpus/images. */
#include "tests/fuzz.h"
#include "worker/data/data_images.h"
#include "worker/data/dataset.h"
#include <string.h>
#include <zlib.h>

enum { MOST_OF_A_BYTE = 1032 * 8 * 3 };

static void fix(uint8_t *bytes, size_t n)
{
    for (size_t at = 8; at <= n && n - at >= 12;) {
        size_t length = (size_t)bytes[at] << 24 | (size_t)bytes[at + 1] << 16 |
                        (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (length > n - at - 12)
            return;
        uint32_t sum = (uint32_t)crc32(0, bytes + at + 4, (uInt)length + 4);
        for (int i = 0; i < 4; i++)
            bytes[at + 8 + length + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at += 12 + length;
    }
}

static void use(const struct data_images_picture *p, size_t n)
{
    int64_t elems = p->dim[0] * p->dim[1] * p->dim[2], sum = 0;
    require(p->dim[0] == 1 || p->dim[0] == 3);
    for (int i = 1; i < 3; i++)
        require(p->dim[i] >= 1 && p->dim[i] <= DATASET_MAX_SIDE);
    require(elems <= DATASET_MAX_ELEMS && (size_t)elems / MOST_OF_A_BYTE <= n);
    for (int64_t i = 0; i < elems; i++)
        sum += p->pixels[i];
    require(sum >= 0 && sum <= 255 * elems);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct data_images_picture p = {.pixels = NULL};
    /* A copy of the exact size: AddressSanitizer detects reads beyond it. */
    uint8_t *copy = malloc(size ? size : 1);
    require(copy != NULL);
    memcpy(copy, data, size);
    int is_jpeg = size > 0 && data[0] == 0xff;
    if (!is_jpeg && size > 0 && data[size - 1] & 1)
        fix(copy, size);
    enum status st = is_jpeg ? data_jpeg_decode(copy, size, "fuzz", &p)
                             : data_png_decode(copy, size, "fuzz", &p);
    require((st == ST_OK) == (p.pixels != NULL));
    if (st == ST_OK)
        use(&p, size);
    free(p.pixels);
    free(copy);
    return 0;
}
