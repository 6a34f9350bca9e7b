/* worker/data/dataset.c - a set of images with their labels, from two IDX files of one folder.
 * The files stay in memory as they were unpacked; images and labels point into them. */
#include "worker/data/dataset.h"
#include "base/log.h"
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

void dataset_destroy(struct dataset *d)
{
    struct files *f = (struct files *)d;
    if (!f)
        return;
    free(f->image_file);
    free(f->label_file);
    free(f);
}
