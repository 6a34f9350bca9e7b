/* worker/train/tower_batch.c - allocates and fills the lists of a batch, see tower_batch.h. */
#include "worker/train/tower_batch.h"
#include "base/aligned.h"
#include "base/log.h"
#include "worker/data/augment.h"
#include "worker/data/dataset_targets.h"
#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

enum status tower_batch_create(const struct dataset *d, int n_samples, struct tower_batch *b)
{
    size_t n = (size_t)n_samples, elems = (size_t)shape_elems(&d->sample);
    int floats = !dataset_is_bytes(d), augments = job_input_augments(&b->augment);
    b->item = calloc(n, sizeof *b->item);
    b->position = calloc(n, sizeof *b->position);
    b->images = calloc(n, sizeof *b->images);
    b->labels = calloc(n, sizeof *b->labels);
    b->rows = calloc(n, sizeof *b->rows);
    b->classes = calloc(n, sizeof *b->classes);
    b->targets = calloc(n, sizeof *b->targets);
    b->floats = floats ? aligned_take(n * elems * sizeof *b->floats) : NULL;
    b->changed = augments && !floats ? malloc(n * elems) : NULL;
    b->plain = augments && floats ? aligned_take(elems * sizeof *b->plain) : NULL;
    if (!b->item || !b->position || !b->images || !b->labels || !b->rows || !b->classes ||
        !b->targets || (floats && !b->floats) || (augments && !b->changed && !b->plain)) {
        LOG_E("out of memory for a batch of %d samples", n_samples);
        return ST_NOMEM;
    }
    for (size_t i = 0; floats && i < n; i++)
        b->rows[i] = b->floats + i * elems;
    return batch_keys_create(d, n_samples, &b->keys);
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
    free(b->changed);
    free(b->plain);
    batch_keys_free(&b->keys);
    *b = (struct tower_batch){0};
}

/* Reads a byte of each page of a mapped file, so that the system reads the page from the disk
 * now. */
static void bring(const uint8_t *from, size_t bytes)
{
    const volatile uint8_t *at = from;
    for (size_t i = 0; i < bytes; i += PAGE_BYTES)
        (void)at[i];
    (void)at[bytes - 1];
}

/* Augments sample i of the batch. The sample's position determines the pass, which affects the
 * random changes. */
static void augment(const struct tower_batch *b, const struct dataset *d, int i, const void *src,
                    void *dst)
{
    uint64_t pass = b->position[i] / (uint64_t)d->n;
    const struct augment_draw draw =
        augment_draw(&b->augment, &d->sample, b->seed, pass, b->item[i]);
    augment_apply(&draw, &d->sample, b->plain ? sizeof(float) : 1, src, dst);
}

static void read_bytes(struct tower_batch *b, const struct dataset *d, int i)
{
    size_t pixels = (size_t)shape_elems(&d->sample);
    b->images[i] = dataset_bytes(d, b->item[i]);
    if (b->changed) {
        uint8_t *to = b->changed + (size_t)i * pixels;
        augment(b, d, i, b->images[i], to);
        b->images[i] = to;
    } else if (d->in_file) {
        bring(b->images[i], pixels);
    }
}

static enum status read_floats(struct tower_batch *b, const struct dataset *d, int i)
{
    enum status st = ST_OK;
    if (!b->plain)
        return dataset_sample(d, b->item[i], b->rows[i]);
    TRY(dataset_plain(d, b->item[i], b->plain));
    augment(b, d, i, b->plain, b->rows[i]);
    TRY(dataset_normalise(d, b->item[i], b->rows[i]));
done:
    return st;
}

enum status tower_batch_read(struct tower_batch *b, const struct dataset *d, int n)
{
    enum status st = ST_OK;
    int bytes = dataset_is_bytes(d);
    for (int i = 0; i < n; i++) {
        int32_t label = d->labels ? dataset_label(d, b->item[i]) : 0;
        if (dataset_has_labels(d))
            b->targets[i] = dataset_targets_of(d, b->item[i]);
        if (bytes) {
            read_bytes(b, d, i);
            b->labels[i] = (uint8_t)label;
        } else {
            TRY(read_floats(b, d, i));
            b->classes[i] = label;
        }
    }
done:
    return st;
}
