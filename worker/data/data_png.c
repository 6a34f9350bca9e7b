/* worker/data/data_png.c - PNG by libpng's simplified interface: see data_images.h. libpng receives
 * only the chunks that are needed to decode the numbers. libpng would also unpack and keep chunks
 * with texts: a file may have a thousand of these, each of a few thousand bytes that unpack to
 * millions (I9). libpng would also convert the numbers by gAMA, cHRM and iCCP; PIL, OpenCV and
 * TensorFlow do not do that. Transparency is dropped, as by PIL's convert("RGB"): tRNS is skipped,
 * and an alpha channel is read and removed, because libpng would otherwise blend the colours with a
 * background. */
#include "base/log.h"
#include "worker/data/data_images.h"
#include <png.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* MARK: bytes before the first chunk; AROUND: bytes of a chunk besides its content */
enum { MARK = 8, AROUND = 12 };

static bool is_needed(const uint8_t *kind)
{
    int may_be_left_out = kind[0] & 0x20;
    return !may_be_left_out;
}

/* Copies the needed chunks, up to the first incomplete chunk: for such a chunk libpng would
 * allocate and clear up to 2 GB, its declared length, before it finds the end. Returns the bytes
 * copied. */
static size_t copy_needed(const uint8_t *bytes, size_t n, uint8_t *to)
{
    size_t at = n < MARK ? n : MARK, have = at;
    memcpy(to, bytes, at);
    while (n - at >= AROUND) {
        const uint8_t *b = bytes + at;
        size_t length = (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
        if (length > n - at - AROUND)
            break;
        if (is_needed(b + 4)) {
            memcpy(to + have, b, length + AROUND);
            have += length + AROUND;
        }
        at += length + AROUND;
    }
    return have;
}

/* Copies pixels, each of `channels` numbers and an alpha value, and drops the alpha value. */
static void drop_alpha(const uint8_t *from, int64_t n_pixels, int64_t channels, uint8_t *to)
{
    for (int64_t i = 0; i < n_pixels; i++)
        memcpy(to + i * channels, from + i * (channels + 1), (size_t)channels);
}

/* Reads the pixels of an image whose header was already read, into memory of their size. */
static enum status read_pixels(png_image *image, const char *label, int64_t channels, uint8_t *rows)
{
    enum status st = ST_OK;
    bool has_alpha = image->format & PNG_FORMAT_FLAG_ALPHA;
    int64_t n_pixels = (int64_t)image->width * image->height;
    uint8_t *all = has_alpha ? malloc((size_t)(n_pixels * (channels + 1))) : rows;
    if (!all) {
        LOG_E("%s: no memory for a picture of %ux%u", label, image->height, image->width);
        return ST_NOMEM;
    }
    /* without this flag libpng would treat 16-bit values as linear light */
    image->flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    image->format = (channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY) |
                    (has_alpha ? PNG_FORMAT_FLAG_ALPHA : 0);
    if (!png_image_finish_read(image, NULL, all, 0, NULL)) {
        LOG_E("%s: cannot read this PNG: %s; repair or remove it", label, image->message);
        st = ST_CORRUPT;
    }
    if (has_alpha && st == ST_OK)
        drop_alpha(all, n_pixels, channels, rows);
    if (has_alpha)
        free(all);
    return st;
}

enum status data_png_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            struct data_images_picture *out)
{
    enum status st = ST_OK;
    png_image image = {.version = PNG_IMAGE_VERSION};
    uint8_t *rows = NULL, *file = malloc((size_t)n + 1);
    if (!file) {
        LOG_E("%s: no memory to read it", label);
        return ST_NOMEM;
    }
    size_t n_file = copy_needed(bytes, (size_t)n, file);
    if (!png_image_begin_read_from_memory(&image, file, n_file)) {
        LOG_E("%s: cannot read this PNG: %s; repair or remove it", label, image.message);
        TRY(ST_CORRUPT);
    }
    int64_t channels = image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
    int64_t dim[3] = {channels, image.height, image.width};
    TRY(data_images_picture_alloc(label, n, dim, &rows));
    TRY(read_pixels(&image, label, channels, rows));
    st = data_images_picture_turn(label, dim, rows, out);
    rows = NULL;
done:
    png_image_free(&image);
    free(file);
    free(rows);
    return st;
}
