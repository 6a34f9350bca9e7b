/* worker/train/device_data.c - keeps one copy of a data set per device, created at the first
 * request. */
#include "worker/train/device_data.h"
#include "base/log.h"
#include "worker/data/dataset_targets.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct copy {
    const struct backend *backend;
    int device;
    const struct dataset *set;
    struct backend_data *data; /* NULL: the set does not fit in the device's memory */
};

struct device_data {
    struct copy copies[2 * TOWERS_MAX]; /* copies of the training and the test sets */
    int n;
};

enum status device_data_create(struct device_data **out)
{
    *out = calloc(1, sizeof **out);
    if (*out)
        return ST_OK;
    LOG_E("out of memory for a list of data sets");
    return ST_NOMEM;
}

void device_data_destroy(struct device_data *d)
{
    for (int i = 0; d && i < d->n; i++)
        if (d->copies[i].data)
            d->copies[i].backend->data_destroy(d->copies[i].data);
    free(d);
}

/* Returns the set's samples in one contiguous block. If the file does not store them contiguously,
 * copies them to *own, which the caller frees. NULL: no memory. */
static const uint8_t *in_one_run(const struct dataset *s, uint8_t **own)
{
    size_t pixels = (size_t)shape_elems(&s->sample);
    if (!s->rows)
        return s->bytes;
    *own = malloc((size_t)s->n * pixels);
    for (int64_t i = 0; *own && i < s->n; i++)
        memcpy(*own + (size_t)i * pixels, dataset_bytes(s, i), pixels);
    return *own;
}

static enum status copy_make(struct copy *c)
{
    const struct dataset *s = c->set;
    int64_t pixels = shape_elems(&s->sample);
    uint8_t *labels = malloc((size_t)s->n), *own = NULL;
    const uint8_t *images = labels ? in_one_run(s, &own) : NULL;
    if (!images) {
        LOG_E("out of memory for %" PRId64 " samples that are copied to %s:%d", s->n,
              c->backend->name, c->device);
        free(labels);
        return ST_NOMEM;
    }
    for (int64_t i = 0; i < s->n; i++)
        labels[i] = (uint8_t)dataset_label(s, i);
    enum status st = c->backend->data_create(c->device, images, labels, s->n, pixels, &c->data);
    free(labels);
    free(own);
    if (st == ST_OK)
        LOG_I("%s:%d holds %" PRId64 " images of the data set, %.0f MB", c->backend->name,
              c->device, s->n, (double)(s->n * (pixels + 1)) / 1e6);
    return st == ST_NOMEM ? ST_OK : st; /* the backend has logged it */
}

enum status device_data_get(struct device_data *d, const struct tower_spec *tower, int outputs,
                            const struct dataset *set, const struct backend_data **out)
{
    enum status st = ST_OK;
    struct copy c = {tower->own.backend, tower->own.device, set, NULL};
    *out = NULL;
    if (tower->n_others > 0 || !c.backend->data_create || !dataset_is_bytes(set) ||
        dataset_by_targets(set, outputs))
        return ST_OK;
    for (int i = 0; i < d->n; i++) {
        const struct copy *has = &d->copies[i];
        if (has->backend == c.backend && has->device == c.device && has->set == set) {
            *out = has->data;
            return ST_OK;
        }
    }
    CHECK(d->n < 2 * TOWERS_MAX);
    TRY(copy_make(&c));
    d->copies[d->n++] = c;
    *out = c.data;
done:
    return st;
}
