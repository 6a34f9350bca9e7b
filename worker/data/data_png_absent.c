/* worker/data/data_png_absent.c - replaces data_png.c in a build without libpng. */
#include "base/log.h"
#include "worker/data/data_images.h"

enum status data_png_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            struct data_images_picture *out)
{
    (void)bytes;
    (void)n;
    (void)out;
    LOG_E(
        "%s: this worker was built without libpng; install libpng-dev and build it again, or repack the pictures as npy",
        label);
    return ST_UNSUPPORTED;
}
