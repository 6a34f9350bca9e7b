/* worker/data/data_jpeg_absent.c - replaces data_jpeg.c in a build without libjpeg. */
#include "base/log.h"
#include "worker/data/data_images.h"

enum status data_jpeg_decode(const uint8_t *bytes, uint64_t n, const char *label,
                             struct data_images_picture *out)
{
    (void)bytes;
    (void)n;
    (void)out;
    LOG_E(
        "%s: this worker was built without libjpeg; install libjpeg-dev and build it again, or repack the pictures as npy",
        label);
    return ST_UNSUPPORTED;
}
