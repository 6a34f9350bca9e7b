/* worker/data/data_images.c - reads a folder of pictures into two arrays. It reads all files even
 * after an error, so that one run reports every bad file. */
#include "worker/data/data_images.h"
#include "base/log.h"
#include "base/utf8.h"
#include "worker/data/data_file.h"
#include "worker/data/dataset.h"
#include "worker/data/reading.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Largest number of values that one byte of a PNG can produce. deflate unpacks a byte to at most
 * 1032 bytes, each of these has at most 8 pixels, and a palette has 3 values for a pixel. A byte of
 * a JPEG produces fewer. */
enum { MOST_OF_A_BYTE = 1032 * 8 * 3, FIRST_ROOM = 16, MOST_NAMED = 20 };

/* Names in a folder, sorted. */
struct names {
    struct dirent **entry;
    int n;
};

struct set {
    const char *dir;
    uint8_t *pixels; /* memory for `room` pictures, each of `bytes` bytes */
    int32_t *labels; /* [room] */
    int64_t n, room, bytes, dim[3];
    char first[PATH_MAX]; /* picture that determined the size */
    /* number of all files; of files that cannot be read; of files with another size or other
     * colours */
    int64_t n_files, n_bad, n_other;
    struct reading reading;
    int keeps_names;
    char *names; /* memory of names_room bytes, of which names_bytes are in use */
    size_t names_bytes, names_room;
};

static int is_seen(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Compares names byte by byte, independently of the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static enum status names_read(const char *dir, struct names *out)
{
    out->n = scandir(dir, &out->entry, is_seen, by_name);
    if (out->n >= 0)
        return ST_OK;
    enum status st = status_of_errno(errno);
    LOG_E("%s: cannot list it: %s", dir, strerror(errno));
    out->n = 0;
    out->entry = NULL;
    return st;
}

static void names_free(struct names *n)
{
    for (int i = 0; i < n->n; i++)
        free(n->entry[i]);
    free(n->entry);
}

enum status data_images_picture_alloc(const char *label, uint64_t n, const int64_t dim[3],
                                      uint8_t **rows)
{
    for (int i = 0; i < 3; i++)
        if (dim[i] < 1 || dim[i] > DATASET_MAX_SIDE) {
            LOG_E("%s: the picture has %lldx%lld pixels; each side must have from 1 to %d", label,
                  (long long)dim[1], (long long)dim[2], DATASET_MAX_SIDE);
            return ST_CORRUPT;
        }
    if (dim[0] * dim[1] * dim[2] > DATASET_MAX_ELEMS) {
        LOG_E("%s: a picture of %lldx%lld is larger than 2^28 numbers", label, (long long)dim[1],
              (long long)dim[2]);
        return ST_CORRUPT;
    }
    if ((uint64_t)(dim[0] * dim[1] * dim[2]) / MOST_OF_A_BYTE > n) {
        LOG_E(
            "%s: its header states a picture of %lldx%lld, which its %llu bytes cannot hold; it is damaged or meant to exhaust memory: remove it",
            label, (long long)dim[1], (long long)dim[2], (unsigned long long)n);
        return ST_CORRUPT;
    }
    *rows = malloc((size_t)(dim[0] * dim[1] * dim[2]));
    if (*rows)
        return ST_OK;
    LOG_E("%s: no memory for a picture of %lldx%lld", label, (long long)dim[1], (long long)dim[2]);
    return ST_NOMEM;
}

enum status data_images_picture_turn(const char *label, const int64_t dim[3], uint8_t *rows,
                                     struct data_images_picture *out)
{
    struct data_images_picture p = {.dim = {dim[0], dim[1], dim[2]}, .pixels = rows};
    int64_t places = dim[1] * dim[2];
    if (dim[0] > 1) {
        p.pixels = malloc((size_t)(dim[0] * places));
        if (!p.pixels) {
            LOG_E("%s: no memory for a picture of %lldx%lld", label, (long long)dim[1],
                  (long long)dim[2]);
            free(rows);
            return ST_NOMEM;
        }
        for (int64_t c = 0; c < dim[0]; c++)
            for (int64_t k = 0; k < places; k++)
                p.pixels[c * places + k] = rows[k * dim[0] + c];
        free(rows);
    }
    *out = p;
    return ST_OK;
}

static enum status decode_file(const struct data_file *f, struct data_images_picture *out)
{
    if (f->n >= 8 && memcmp(f->bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
        return data_png_decode(f->bytes, f->n, f->path, out);
    if (f->n >= 3 && memcmp(f->bytes, "\xff\xd8\xff", 3) == 0)
        return data_jpeg_decode(f->bytes, f->n, f->path, out);
    LOG_E("%s: neither PNG nor JPEG; put nothing but pictures into the folders of classes",
          f->path);
    return ST_CORRUPT;
}

static enum status grow_set(struct set *s, const char *path)
{
    int64_t room = s->room ? s->room * 2 : FIRST_ROOM;
    uint8_t *pixels = realloc(s->pixels, (size_t)(room * s->bytes));
    s->pixels = pixels ? pixels : s->pixels;
    int32_t *labels = realloc(s->labels, (size_t)room * sizeof *labels);
    s->labels = labels ? labels : s->labels;
    if (!pixels || !labels || room > DATASET_MAX_ITEMS) {
        LOG_E(
            "%s: no memory for %lld decoded pictures; repack them as npy (scripts/make_data shows how), which the worker maps into memory",
            path, (long long)room);
        return ST_NOMEM;
    }
    s->room = room;
    return ST_OK;
}

static enum status keep_name(struct set *s, const char *path)
{
    const char *name = path + strlen(s->dir) + 1;
    size_t n = strlen(name) + 1;
    if (!s->keeps_names)
        return ST_OK;
    if (s->names_room - s->names_bytes < n) {
        size_t room = 2 * s->names_room + PATH_MAX;
        char *more = realloc(s->names, room);
        if (!more) {
            LOG_E("%s: no memory for the names of its pictures", s->dir);
            return ST_NOMEM;
        }
        s->names = more;
        s->names_room = room;
    }
    memcpy(s->names + s->names_bytes, name, n);
    s->names_bytes += n;
    return ST_OK;
}

/* Logs the first picture whose size differs from that of the first picture, and counts all such
 * pictures. */
static enum status other_picture(struct set *s, const char *path, const int64_t dim[3])
{
    char fix[128];
    if (s->n_other++ > 0)
        return ST_MISMATCH;
    if (dim[1] != s->dim[1] || dim[2] != s->dim[2])
        snprintf(
            fix, sizeof fix,
            "resize all to one size, for example by ImageMagick's mogrify -resize '%lldx%lld!' FILE...",
            (long long)s->dim[2], (long long)s->dim[1]);
    else
        snprintf(
            fix, sizeof fix,
            "convert all to grey, for example by ImageMagick's mogrify -colorspace Gray FILE..., or all to colour");
    LOG_E(
        "%s: the picture has the shape %lldx%lldx%lld (channels, height, width), but %s has %lldx%lldx%lld; %s",
        path, (long long)dim[0], (long long)dim[1], (long long)dim[2], s->first,
        (long long)s->dim[0], (long long)s->dim[1], (long long)s->dim[2], fix);
    return ST_MISMATCH;
}

static enum status add_file(struct set *s, const char *path, int32_t label)
{
    enum status st = ST_OK;
    struct data_file *f = NULL;
    struct data_images_picture p = {.pixels = NULL};
    TRY(data_file_open(path, &f));
    TRY(decode_file(f, &p));
    if (s->n == 0) {
        memcpy(s->dim, p.dim, sizeof s->dim);
        s->bytes = p.dim[0] * p.dim[1] * p.dim[2];
        snprintf(s->first, sizeof s->first, "%s", path);
    }
    if (memcmp(s->dim, p.dim, sizeof s->dim) != 0)
        TRY(other_picture(s, path, p.dim));
    if (s->n == s->room)
        TRY(grow_set(s, path));
    TRY(keep_name(s, path));
    memcpy(s->pixels + s->n * s->bytes, p.pixels, (size_t)s->bytes);
    s->labels[s->n++] = label;
done:
    free(p.pixels);
    data_file_close(f);
    return st;
}

/* Adds a picture. If the file cannot be used, logs and counts it, so that one run names all such
 * files. */
static enum status add_or_count(struct set *s, const char *path, int32_t label)
{
    log_mute(s->n_bad >= MOST_NAMED);
    enum status st = add_file(s, path, label);
    log_mute(0);
    s->n_files++;
    if (st == ST_OK || st == ST_MISMATCH)
        return ST_OK;
    if (st == ST_NOMEM || st == ST_UNSUPPORTED) {
        if (s->n_bad >= MOST_NAMED)
            LOG_E("%s: cannot be read: %s", path, status_text(st));
        return st;
    }
    s->n_bad++;
    return ST_OK;
}

/* Logs the number of unusable files if there is more than one. */
static enum status judge_set(const struct set *s)
{
    if (s->n_bad > 1)
        LOG_E(
            "%s: %lld of its %lld files cannot be used; the lines above name %s: repair or remove them",
            s->dir, (long long)s->n_bad, (long long)s->n_files,
            s->n_bad > MOST_NAMED ? "the first 20" : "them");
    if (s->n_other > 1)
        LOG_E("%s: %lld of its %lld files have another size, or other colours, than %s", s->dir,
              (long long)s->n_other, (long long)s->n_files, s->first);
    return s->n_bad > 0 ? ST_CORRUPT : s->n_other > 0 ? ST_MISMATCH : ST_OK;
}

/* Adds all files of the folder. */
static enum status add_folder(struct set *s, const char *folder, const struct names *files,
                              int32_t label)
{
    enum status st = ST_OK;
    char path[PATH_MAX];
    for (int i = 0; i < files->n; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, files->entry[i]->d_name) >= PATH_MAX) {
            LOG_E("%s: the path of a file in it is too long", folder);
            TRY(ST_INVALID);
        }
        TRY(add_or_count(s, path, label));
        reading_at(&s->reading, (double)s->n_files, 0);
    }
done:
    return st;
}

/* Refuses a folder that contains several sets, because an operator may name such a folder by
 * mistake instead of one of its sets. */
static enum status check_depth(const struct set *s, const char *class, const char *folder,
                               const struct names *files)
{
    char path[PATH_MAX];
    struct stat info;
    if (files->n == 0 ||
        snprintf(path, sizeof path, "%s/%s", folder, files->entry[0]->d_name) >= PATH_MAX ||
        stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return ST_OK;
    int has_train = snprintf(path, sizeof path, "%s/train", s->dir) < PATH_MAX &&
                    stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    LOG_E(
        "%s/%s: is a folder instead of a picture of a class; name the folder that has a folder for each class, such as %s/%s, not its parent",
        folder, files->entry[0]->d_name, s->dir, has_train ? "train" : class);
    return ST_INVALID;
}

static enum status add_class(struct set *s, const char *name, int32_t label)
{
    enum status st = ST_OK;
    const char *dir = s->dir;
    char folder[PATH_MAX];
    struct names files = {NULL, 0};
    struct stat info;
    if (snprintf(folder, sizeof folder, "%s/%s", dir, name) >= PATH_MAX) {
        LOG_E("%s: the path is too long", dir);
        return ST_INVALID;
    }
    if (strchr(name, '\n')) {
        LOG_E("%s: the name of a folder in it has a line break; rename it", dir);
        return ST_INVALID;
    }
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode)) {
        LOG_E(
            "%s: not a folder; %s must hold a folder of pictures for each class, and nothing else",
            folder, dir);
        return ST_INVALID;
    }
    TRY(names_read(folder, &files));
    TRY(check_depth(s, name, folder, &files));
    TRY(add_folder(s, folder, &files, label));
done:
    names_free(&files);
    return st;
}

static char *join_names(const struct names *n)
{
    size_t bytes = 1;
    for (int i = 0; i < n->n; i++)
        bytes += strlen(n->entry[i]->d_name) + 1;
    char *text = calloc(1, bytes), *at = text;
    for (int i = 0; text && i < n->n; i++)
        at = stpcpy(stpcpy(at, i ? "\n" : ""), n->entry[i]->d_name);
    return text;
}

/* Returns true if there are pictures in the folder itself, not in folders inside it; the first
 * entry of the folder decides. */
static bool is_flat(const char *dir, const struct names *names)
{
    char path[PATH_MAX];
    struct stat info;
    return names->n > 0 &&
           snprintf(path, sizeof path, "%s/%s", dir, names->entry[0]->d_name) < PATH_MAX &&
           stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static enum status add_all(struct set *s, const struct names *names, int is_flat)
{
    enum status st = is_flat ? add_folder(s, s->dir, names, 0) : ST_OK;
    for (int i = 0; !is_flat && i < names->n && st == ST_OK; i++)
        st = add_class(s, names->entry[i]->d_name, i);
    if (st == ST_OK)
        st = judge_set(s);
    if (st != ST_OK || s->n > 0)
        return st;
    LOG_E(
        "%s: no picture in its folders; it must hold a folder of PNG or JPEG files for each class%s",
        s->dir, s->keeps_names ? ", or such files without labels" : "");
    return ST_NOT_FOUND;
}

/* Warns, before training, of class names that an export cannot contain. */
static void warn_of_names(const char *dir, const struct names *names)
{
    char shown[PATH_MAX];
    for (int i = 0; i < names->n; i++) {
        const char *name = names->entry[i]->d_name;
        if (utf8_is_valid(name, strlen(name)))
            continue;
        snprintf(shown, sizeof shown, "%s", name);
        utf8_mask(shown);
        LOG_W(
            "%s: the name of class %d, '%s', is not UTF-8: --export leaves the names of all classes out; rename its folder",
            dir, i, shown);
        return;
    }
}

static void put_set(struct set *s, int is_flat, struct data_images *out)
{
    *out = (struct data_images){.names = s->names,
                                .samples = {.type = DATA_U8,
                                            .n_dims = 4,
                                            .dim = {s->n, s->dim[0], s->dim[1], s->dim[2]},
                                            .data = s->pixels,
                                            .unpacked = s->pixels}};
    s->pixels = NULL;
    s->names = NULL;
    if (is_flat)
        return;
    out->labels = (struct data_array){.type = DATA_I32,
                                      .n_dims = 1,
                                      .dim = {s->n},
                                      .data = (uint8_t *)s->labels,
                                      .unpacked = s->labels};
    s->labels = NULL;
}

enum status data_images_read(const char *dir, int to_predict, enum progress_style progress,
                             struct data_images *out)
{
    enum status st = ST_OK;
    struct set *s = calloc(1, sizeof *s);
    struct names names = {NULL, 0};
    char *joined = NULL;
    TRY(names_read(dir, &names));
    joined = join_names(&names);
    if (!s || !joined) {
        LOG_E("%s: no memory for the names of its classes", dir);
        TRY(ST_NOMEM);
    }
    s->dir = dir;
    s->keeps_names = to_predict;
    int flat = to_predict && is_flat(dir, &names);
    reading_begin(&s->reading, progress, dir, "decoding", "pictures");
    st = add_all(s, &names, flat);
    reading_end(&s->reading);
    TRY(st);
    put_set(s, flat, out);
    if (!flat) {
        warn_of_names(dir, &names);
        out->classes = joined;
        joined = NULL;
    }
done:
    if (s) {
        free(s->pixels);
        free(s->labels);
        free(s->names);
    }
    free(s);
    free(joined);
    names_free(&names);
    return st;
}
