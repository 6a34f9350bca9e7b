/* worker/data/data_png.c - PNG by libpng's simplified interface: see data_images.h. */
#include "base/log.h"
#include "worker/data/data_images.h"
#include <png.h>
#include <stdlib.h>
#include <string.h>

enum status data_png_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            struct data_picture *out)
{
    enum status st = ST_OK;
    png_image image = {.version = PNG_IMAGE_VERSION};
    const png_color black = {0, 0, 0};
    uint8_t *rows = NULL;
    if (!png_image_begin_read_from_memory(&image, bytes, (size_t)n)) {
        LOG_E("%s: no PNG that can be read: %s", label, image.message);
        return ST_CORRUPT;
    }
    int64_t channels = image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
    int64_t dim[3] = {channels, image.height, image.width};
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* else 16 bits would be taken for linear light */
    image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    TRY(data_picture_take(label, n, dim, &rows));
    if (!png_image_finish_read(&image, &black, rows, 0, NULL)) {
        LOG_E("%s: no PNG that can be read: %s", label, image.message);
        TRY(ST_CORRUPT);
    }
    st = data_picture_turn(label, dim, rows, out);
    rows = NULL;
done:
    png_image_free(&image);
    free(rows);
    return st;
}
