/* worker/data/dataset.c - a set of images with their labels, from two IDX files of one folder.
 * The files stay in memory as they were unpacked; images and labels point into them. */
#include "worker/data/dataset.h"
#include "base/log.h"
#include "base/rng.h"
#include "worker/data/dataset_idx.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct files {
    struct dataset d; /* first, so that dataset_destroy finds the rest */
    uint8_t *image_file, *label_file;
};

/* Opens <dir>/<part>-<kind>, or that with .gz; path: the one that was there. */
static enum status open_either(const char *dir, const char *part, const char *kind,
                               char path[PATH_MAX], int *fd)
{
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        if (snprintf(path, PATH_MAX, "%s/%s-%s%s", dir, part, kind, endings[i]) >= PATH_MAX) {
            LOG_E("--data_dir=%s: the path is too long", dir);
            return ST_NOT_FOUND;
        }
        /* Not to hang on a pipe of that name. */
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (*fd >= 0)
            return ST_OK;
        if (errno != ENOENT && errno != ENOTDIR) {
            enum status st = status_of_errno(errno);
            LOG_E("cannot open %s: %s", path, strerror(errno));
            return st;
        }
    }
    LOG_E("no %s/%s-%s, nor with .gz: install Fashion-MNIST (apt-get install "
          "dataset-fashion-mnist), or fetch MNIST (scripts/get_mnist), and name the data's folder "
          "with --data_dir",
          dir, part, kind);
    return ST_NOT_FOUND;
}

static enum status check_labels(const char *path, const uint8_t *labels, int64_t n, int classes)
{
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] >= classes) {
            LOG_E("%s: label %lld is %u, but the model has %d classes (0 to %d)", path,
                  (long long)i, labels[i], classes, classes - 1);
            return ST_MISMATCH;
        }
    }
    return ST_OK;
}

enum status dataset_read(const char *dir, const char *part, int classes, struct dataset **out)
{
    char image_path[PATH_MAX], label_path[PATH_MAX];
    uint32_t image_dims[3], label_dims[3];
    const uint8_t *images, *labels;
    int image_fd = -1, label_fd = -1;
    enum status st;
    struct files *f = calloc(1, sizeof *f);
    if (!f) {
        LOG_E("%s: no memory for the %s set", dir, part);
        return ST_NOMEM;
    }
    TRY(open_either(dir, part, "images-idx3-ubyte", image_path, &image_fd));
    TRY(open_either(dir, part, "labels-idx1-ubyte", label_path, &label_fd));
    TRY(dataset_idx_load(image_fd, 3, image_path, &f->image_file, image_dims, &images));
    TRY(dataset_idx_load(label_fd, 1, label_path, &f->label_file, label_dims, &labels));
    if (image_dims[0] != label_dims[0]) {
        LOG_E("%s has %u images, but %s has %u labels: they are not of one set", image_path,
              image_dims[0], label_path, label_dims[0]);
        TRY(ST_MISMATCH);
    }
    TRY(check_labels(label_path, labels, label_dims[0], classes));
    f->d = (struct dataset){image_dims[0], (int)image_dims[1], (int)image_dims[2],
                            f->image_file + (images - f->image_file),
                            f->label_file + (labels - f->label_file)};
    *out = &f->d;
    f = NULL;
done:
    if (image_fd >= 0)
        close(image_fd);
    if (label_fd >= 0)
        close(label_fd);
    if (f)
        dataset_destroy(&f->d);
    return st;
}

/* [n] 1: the item is held out: the first k of a shuffle. NULL: no memory. */
static uint8_t *choose(int64_t n, int64_t k, uint64_t seed)
{
    uint64_t key = rng_key(seed, RNG_SPLIT, 0);
    uint8_t *out = calloc((size_t)n, 1);
    uint32_t *item = malloc((size_t)n * sizeof *item);
    for (int64_t i = 0; out && item && i < n; i++)
        item[i] = (uint32_t)i;
    for (int64_t i = 0; out && item && i < k; i++) {
        int64_t j = i + (int64_t)rng_below(key, (uint64_t)i, (uint64_t)(n - i));
        out[item[j]] = 1;
        item[j] = item[i];
    }
    if (!item) {
        free(out);
        out = NULL;
    }
    free(item);
    return out;
}

enum status dataset_split(struct dataset *d, double share, uint64_t seed, struct dataset **held_out)
{
    size_t pixels = (size_t)d->rows * (size_t)d->columns;
    int64_t n = d->n, k = (int64_t)(share * (double)n), kept = 0, taken = 0;
    if (k < 1 || k >= n) {
        LOG_E("--validation_split: %g of %lld training images is %lld; at least one must be held "
              "out and one left",
              share, (long long)n, (long long)k);
        return ST_INVALID;
    }
    struct files *f = calloc(1, sizeof *f);
    uint8_t *chosen = choose(n, k, seed);
    if (f) {
        f->image_file = malloc((size_t)k * pixels);
        f->label_file = malloc((size_t)k);
    }
    if (!f || !chosen || !f->image_file || !f->label_file) {
        LOG_E("--validation_split: no memory for %lld images", (long long)k);
        free(chosen);
        dataset_destroy(f ? &f->d : NULL);
        return ST_NOMEM;
    }
    f->d = (struct dataset){k, d->rows, d->columns, f->image_file, f->label_file};
    for (int64_t i = 0; i < n; i++) {
        struct dataset *to = chosen[i] ? &f->d : d;
        int64_t at = chosen[i] ? taken++ : kept++;
        memmove(to->images + (size_t)at * pixels, d->images + (size_t)i * pixels, pixels);
        to->labels[at] = d->labels[i];
    }
    d->n = kept;
    free(chosen);
    *held_out = &f->d;
    return ST_OK;
}

void dataset_destroy(struct dataset *d)
{
    struct files *f = (struct files *)d;
    if (!f)
        return;
    free(f->image_file);
    free(f->label_file);
    free(f);
}
