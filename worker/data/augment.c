/* worker/data/augment.c - draws and applies the random changes of a sample. The visible part of a
 * row is contiguous, so it is copied at once. */
#include "worker/data/augment.h"
#include "base/rng.h"
#include <string.h>

/* Indices of one sample's draws in the random stream of a pass. */
enum { FLIP, SHIFT, CROP = SHIFT + 2, CUTOUT = CROP + 2, N_DRAWS = 8 };

struct augment_draw augment_draw(const struct job_augment *a, const struct shape *sample,
                                 uint64_t seed, uint64_t pass, int64_t item)
{
    struct augment_draw d = {0};
    uint64_t key = rng_key(seed, RNG_AUGMENT, pass), at = (uint64_t)item * N_DRAWS;
    d.flip = a->flip && rng_below(key, at + FLIP, 2);
    for (int i = 0; i < 2; i++) {
        int64_t side = sample->dim[1 + i];
        uint64_t shifts = 2 * (uint64_t)a->shift + 1, crops = 2 * (uint64_t)a->crop + 1;
        d.shift[i] = (int64_t)rng_below(key, at + SHIFT + (uint64_t)i, shifts) - a->shift;
        d.crop[i] = (int64_t)rng_below(key, at + CROP + (uint64_t)i, crops) - a->crop;
        if (a->cutout == 0)
            continue;
        int64_t centre = (int64_t)rng_below(key, at + CUTOUT + (uint64_t)i, (uint64_t)side);
        int64_t first = centre - a->cutout / 2, end = first + a->cutout;
        d.cut[i][0] = first > 0 ? first : 0;
        d.cut[i][1] = end < side ? end : side;
    }
    return d;
}

/* Returns the distance from a pixel to the pixel that it is copied from, along one axis of n
 * pixels. Pixels from *first up to *end - 1 show the sample after shift and crop; all others are
 * 0. */
static int64_t visible(const struct augment_draw *d, int axis, int64_t n, int64_t *first,
                       int64_t *end)
{
    int64_t crop = d->crop[axis], both = crop + d->shift[axis];
    *first = crop < 0 ? -crop : 0;
    *first = -both > *first ? -both : *first;
    *end = crop > 0 ? n - crop : n;
    *end = n - both < *end ? n - both : *end;
    *end = *end > *first ? *end : *first;
    return both;
}

static void turn_row(uint8_t *row, int64_t n, int elem_bytes)
{
    for (int64_t x = 0; x < n / 2; x++) {
        uint8_t swap[4], *a = row + x * elem_bytes, *b = row + (n - 1 - x) * elem_bytes;
        memcpy(swap, a, (size_t)elem_bytes);
        memcpy(a, b, (size_t)elem_bytes);
        memcpy(b, swap, (size_t)elem_bytes);
    }
}

void augment_apply(const struct augment_draw *d, const struct shape *sample, int elem_bytes,
                   const void *src, void *dst)
{
    int64_t height = sample->dim[1], width = sample->dim[2], bytes = width * elem_bytes;
    int64_t top, bottom, left, right;
    int64_t down = visible(d, 0, height, &top, &bottom);
    int64_t along = visible(d, 1, width, &left, &right);
    size_t seen = (size_t)((right - left) * elem_bytes);
    size_t cut = (size_t)((d->cut[1][1] - d->cut[1][0]) * elem_bytes);
    for (int64_t c = 0; c < sample->dim[0]; c++) {
        const uint8_t *from = (const uint8_t *)src + c * height * bytes;
        uint8_t *to = (uint8_t *)dst + c * height * bytes;
        memset(to, 0, (size_t)(height * bytes));
        for (int64_t y = top; y < bottom; y++) {
            uint8_t *row = to + y * bytes;
            if (seen > 0)
                memcpy(row + left * elem_bytes,
                       from + (y + down) * bytes + (left + along) * elem_bytes, seen);
            if (d->flip)
                turn_row(row, width, elem_bytes);
            if (y >= d->cut[0][0] && y < d->cut[0][1])
                memset(row + d->cut[1][0] * elem_bytes, 0, cut);
        }
    }
}
