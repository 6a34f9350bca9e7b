/* worker/train/tower_batch.c - see the header. */
#include "worker/train/tower_batch.h"
#include "base/aligned.h"
#include "base/log.h"
#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

enum status tower_batch_create(const struct dataset *d, int n_samples, struct tower_batch *b)
{
    size_t n = (size_t)n_samples, elems = (size_t)shape_elems(&d->sample);
    int floats = !dataset_is_bytes(d);
    b->item = calloc(n, sizeof *b->item);
    b->position = calloc(n, sizeof *b->position);
    b->images = calloc(n, sizeof *b->images);
    b->labels = calloc(n, sizeof *b->labels);
    b->rows = calloc(n, sizeof *b->rows);
    b->classes = calloc(n, sizeof *b->classes);
    b->targets = calloc(n, sizeof *b->targets);
    b->floats = floats ? aligned_take(n * elems * sizeof *b->floats) : NULL;
    if (!b->item || !b->position || !b->images || !b->labels || !b->rows || !b->classes ||
        !b->targets || (floats && !b->floats)) {
        LOG_E("out of memory for a batch of %d samples", n_samples);
        return ST_NOMEM;
    }
    for (size_t i = 0; floats && i < n; i++)
        b->rows[i] = b->floats + i * elems;
    return ST_OK;
}

void tower_batch_free(struct tower_batch *b)
{
    free(b->item);
    free(b->position);
    free(b->images);
    free(b->labels);
    free(b->rows);
    free(b->classes);
    free(b->targets);
    free(b->floats);
    *b = (struct tower_batch){0};
}

/* A page of a mapped file comes from the disk when it is read first. */
static void bring(const uint8_t *from, size_t bytes)
{
    const volatile uint8_t *at = from;
    for (size_t i = 0; i < bytes; i += PAGE_BYTES)
        (void)at[i];
    (void)at[bytes - 1];
}

enum status tower_batch_read(struct tower_batch *b, const struct dataset *d, int n)
{
    enum status st = ST_OK;
    size_t pixels = (size_t)shape_elems(&d->sample);
    int bytes = dataset_is_bytes(d);
    for (int i = 0; i < n; i++) {
        int32_t label = d->targets ? 0 : d->labels[b->item[i]];
        if (d->targets)
            b->targets[i] = d->targets + (size_t)b->item[i] * (size_t)d->classes;
        if (bytes) {
            b->images[i] = d->bytes + (size_t)b->item[i] * pixels;
            b->labels[i] = (uint8_t)label;
            if (d->in_file)
                bring(b->images[i], pixels);
        } else {
            TRY(dataset_sample(d, b->item[i], b->rows[i]));
            b->classes[i] = label;
        }
    }
done:
    return st;
}
