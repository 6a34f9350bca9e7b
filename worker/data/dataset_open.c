/* worker/data/dataset_open.c - opens a set: two arrays become samples and labels. The first bytes
 * of a file decide its format, not its name. All labels are read when a set is opened. The samples
 * are read only when they are requested, except for an npz, whose checksum is checked. */
#include "base/log.h"
#include "files/safetensors.h"
#include "worker/data/data_cifar.h"
#include "worker/data/data_images.h"
#include "worker/data/dataset_csv.h"
#include "worker/data/dataset_find.h"
#include "worker/data/dataset_impl.h"
#include "worker/data/dataset_targets.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_safetensors(const struct data_file *f)
{
    uint64_t length = 0;
    for (int i = 0; i < 8 && f->n > 8; i++)
        length |= (uint64_t)f->bytes[i] << (8 * i);
    return f->n > 8 && f->bytes[8] == '{' && length <= SAFETENSORS_MAX_HEADER && f->mapped;
}

static bool is_npz(const struct data_file *f)
{
    return f->n >= 4 && (memcmp(f->bytes, "PK\3\4", 4) == 0 || memcmp(f->bytes, "PK\5\6", 4) == 0);
}

static bool has_names(const struct data_file *f)
{
    return is_safetensors(f) || is_npz(f);
}

/* Returns true for files of torch.save ("NAME/data.pkl" and more in a zip archive) and of
 * pickle.dump. */
static bool is_pickled(const struct data_file *f)
{
    const uint8_t *b = f->bytes;
    uint64_t n = f->n > 30 ? b[26] | (uint64_t)b[27] << 8 : 0;
    return (f->n > 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5) ||
           (is_npz(f) && n >= 8 && n <= f->n - 30 && memcmp(b + 30 + n - 8, "data.pkl", 8) == 0);
}

static enum status decode_file(const struct data_file *f, const char *name, struct data_array *out)
{
    const uint8_t *b = f->bytes;
    if (f->n == 0) {
        LOG_E("%s: empty", f->path);
        return ST_CORRUPT;
    }
    if (is_safetensors(f))
        return data_safetensors_decode(b, f->n, f->path, name, out);
    if (is_pickled(f)) {
        LOG_E(
            "%s: was written by torch.save or pickle, and is not read, because it may contain a program: save the arrays with safetensors.torch.save_file, numpy.savez or numpy.save",
            f->path);
        return ST_UNSUPPORTED;
    }
    if (f->n >= 6 && memcmp(b, "\x93NUMPY", 6) == 0)
        return data_npy_decode(b, f->n, f->path, out);
    if (is_npz(f))
        return data_npz_decode(b, f->n, f->path, name, out);
    if (b[0] == 0 && (f->n < 2 || b[1] == 0))
        return data_idx_decode(b, f->n, f->path, out);
    LOG_E(
        "%s: unknown format, which begins with the bytes 0x%02x%02x; Weir reads IDX, npy, npz, safetensors, CSV (the file's name must end in .csv), and folders of PNG and JPEG files",
        f->path, b[0], f->n > 1 ? b[1] : 0);
    return ST_UNSUPPORTED;
}

/* Refuses a single picture where a folder of pictures is required. */
static enum status check_picture(const struct data_file *f, int to_predict)
{
    bool is_png = f->n >= 4 && memcmp(f->bytes, "\x89PNG", 4) == 0;
    bool is_jpeg = f->n >= 3 && memcmp(f->bytes, "\xff\xd8\xff", 3) == 0;
    if (!is_png && !is_jpeg)
        return ST_OK;
    LOG_E("%s: is one %s picture; name the folder that %s", f->path, is_png ? "PNG" : "JPEG",
          to_predict ? "holds the pictures" : "has a folder of pictures for each class");
    return ST_UNSUPPORTED;
}

static enum status check_labels(const struct source *s)
{
    const struct data_array *a = &s->array[LABELS];
    const char *path = source_labels_path(s);
    char shape[128];
    data_array_shape(a, shape, sizeof shape);
    if (data_array_type_is_float(a->type) && a->n_dims == 2 && a->dim[1] > 0)
        return ST_OK; /* targets */
    if (a->n_dims < 1 || data_array_row_elems(a) != 1) {
        LOG_E(
            "%s: holds an array of %s of %s, but labels are one whole number for each sample, or floats of shape (n) or (n, targets): are the files swapped, or is the flag that names the labels missing? If the labels are one-hot rows, save labels.argmax(axis=1)",
            path, shape, data_array_type_name(a->type));
        return ST_CORRUPT;
    }
    return ST_OK;
}

/* Returns true if a pixel may have n channels: those of grey, RGB or RGBA. */
static bool is_pixel(int64_t n)
{
    return n == 1 || n == 3 || n == 4;
}

/* Checks that the shape is (n, H, W), (n, C, H, W) or (n, features), and sets the shape of a
 * sample: (1, 1, features) for a sample of features. */
static enum status check_samples(struct source *s)
{
    const struct data_array *a = &s->array[SAMPLES];
    const char *path = s->file[SAMPLES]->path;
    char shape[128];
    data_array_shape(a, shape, sizeof shape);
    if (a->n_dims == 1) {
        LOG_E(
            "%s: holds an array of %s, which are labels, instead of samples: are the files swapped?",
            path, shape);
        return ST_CORRUPT;
    }
    if (a->n_dims < 2 || a->n_dims > 4) {
        LOG_E(
            "%s: holds an array of %s; samples are (n, features), (n, H, W), (n, C, H, W) or, with --data_layout=nhwc, (n, H, W, C)",
            path, shape);
        return ST_CORRUPT;
    }
    if (a->dim[0] < 1 || a->dim[0] > DATASET_MAX_ITEMS) {
        LOG_E("%s: its header states %lld items; it must be from 1 to %d", path,
              (long long)a->dim[0], DATASET_MAX_ITEMS);
        return ST_CORRUPT;
    }
    struct shape *to = &s->d.sample;
    *to = (struct shape){3, {1, 1, 1}};
    for (int i = 1; i < a->n_dims; i++)
        to->dim[i + 3 - a->n_dims] = a->dim[i];
    if (s->nhwc && a->n_dims == 4)
        *to = (struct shape){3, {a->dim[3], a->dim[1], a->dim[2]}};
    if (!s->nhwc && !s->class_names && a->n_dims == 4 && is_pixel(a->dim[3]) &&
        !is_pixel(a->dim[1]))
        LOG_W(
            "%s: holds an array of %s, which looks like (n, H, W, C) but is read as (n, C, H, W): if the last extent is the channels, add --data_layout=nhwc",
            path, shape);
    int64_t elems = shape_elems(to);
    for (int i = 0; i < 3; i++)
        if (to->dim[i] < 1 || to->dim[i] > DATASET_MAX_SIDE || elems > DATASET_MAX_ELEMS) {
            LOG_E(
                "%s: holds an array of %s; each side of a sample must be from 1 to %d, and all of it at most 2^28 numbers",
                path, shape, DATASET_MAX_SIDE);
            return ST_CORRUPT;
        }
    return ST_OK;
}

static enum status read_targets(struct source *s)
{
    const struct data_array *a = &s->array[LABELS];
    float *to;
    enum status st = dataset_targets_read(a, source_labels_path(s), &to);
    if (st != ST_OK)
        return st;
    s->d.targets = to;
    s->d.classes = (int)data_array_row_elems(a);
    return ST_OK;
}

static enum status read_labels(struct source *s)
{
    const struct data_array *a = &s->array[LABELS];
    if (data_array_type_is_float(a->type))
        return read_targets(s);
    int32_t *to = malloc((size_t)a->dim[0] * sizeof *to), largest = 0;
    if (!to) {
        LOG_E("%s: no memory for %lld labels", source_labels_path(s), (long long)a->dim[0]);
        return ST_NOMEM;
    }
    s->d.labels = to;
    for (int64_t i = 0; i < a->dim[0]; i++) {
        int64_t label = data_array_integer(a, i);
        if (label < 0 || label >= DATASET_MAX_CLASSES) {
            LOG_E(
                "%s: label %lld (byte %llu, %s) is %lld; labels are from 0 to %d: number the classes, as numpy.unique(labels, return_inverse=True)[1] does",
                source_labels_path(s), (long long)i,
                (unsigned long long)(a->offset +
                                     (uint64_t)i * (uint64_t)data_array_type_bytes(a->type)),
                data_array_type_name(a->type), (long long)label, DATASET_MAX_CLASSES - 1);
            return ST_CORRUPT;
        }
        to[i] = (int32_t)label;
        largest = to[i] > largest ? to[i] : largest;
    }
    s->d.classes = largest + 1;
    return ST_OK;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Returns a file object that has a name but no bytes. NULL: no memory. */
static struct data_file *name_alone(const char *path)
{
    struct data_file *file = calloc(1, sizeof *file);
    if (file && !(file->path = strdup(path))) {
        free(file);
        file = NULL;
    }
    return file;
}

static enum status open_pictures(struct source *s, const struct dataset_request *r,
                                 const struct dataset_paths *p)
{
    if (*p->labels) {
        LOG_E("--%s_labels: %s is a folder, whose folders' names are the labels; remove the flag",
              r->part, p->data);
        return ST_INVALID;
    }
    s->file[SAMPLES] = name_alone(p->data);
    if (!s->file[SAMPLES]) {
        LOG_E("no memory for the %s set", r->part);
        return ST_NOMEM;
    }
    s->nhwc = 0; /* the decoder has put the channels first */
    struct data_images images;
    enum status st = data_images_read(p->data, r->to_predict, r->progress, &images);
    if (st != ST_OK)
        return st;
    s->array[SAMPLES] = images.samples;
    s->array[LABELS] = images.labels;
    s->class_names = images.classes;
    s->names = images.names;
    return ST_OK;
}

/* Opens all batches of a folder that --data_dir names; otherwise opens only the file at the
 * path. */
static enum status open_cifar(struct source *s, const struct dataset_request *r,
                              const struct dataset_paths *p)
{
    struct data_cifar cifar;
    if (*p->labels) {
        LOG_E("--%s_labels: %s contains the labels; remove the flag", r->part, p->data);
        return ST_INVALID;
    }
    s->file[SAMPLES] = name_alone(p->data);
    if (!s->file[SAMPLES]) {
        LOG_E("no memory for the %s set", r->part);
        return ST_NOMEM;
    }
    s->nhwc = 0;
    enum status st = data_cifar_read(p->data, !r->data && strcmp(r->part, "train") == 0, &cifar);
    if (st != ST_OK)
        return st;
    s->array[SAMPLES] = cifar.samples;
    s->array[LABELS] = cifar.labels;
    return ST_OK;
}

/* Returns the flags that apply to this set. --data_layout does not apply to an IDX file of two or
 * three dims, because its samples are rows, or pictures of one channel. */
static unsigned check_use(const struct source *s)
{
    const struct data_file *f = s->file[SAMPLES];
    int idx = f->n > 0 && f->bytes[0] == 0;
    return (unsigned)(has_names(f) ? DATASET_USES_IMAGES_NAME : 0) |
           (unsigned)(has_names(s->file[LABELS] ? s->file[LABELS] : f) ? DATASET_USES_LABELS_NAME
                                                                       : 0) |
           (unsigned)(!idx || s->array[SAMPLES].n_dims > 3 ? DATASET_USES_LAYOUT : 0);
}

static enum status find_array(const struct data_file *f, const char *name, int *found)
{
    *found = 0;
    return is_safetensors(f) ? data_safetensors_find(f->path, name, found)
           : is_npz(f)       ? data_npz_find(f->bytes, f->n, f->path, name, found)
                             : ST_OK;
}

/* Names of the arrays. part: the part that a file with these names has. */
struct names {
    const char *part, *samples, *labels;
    const char *suffix; /* text after the name of each array of keys */
};

/* Logs the names that the file has instead of the usual ones. */
static void log_names(const struct data_file *f, const struct dataset_request *r,
                      const struct names *n)
{
    if (r->no_dense)
        LOG_I("%s: labels are its array '%s'", f->path, n->labels);
    else
        LOG_I("%s: samples are its array '%s', labels are '%s'", f->path, n->samples, n->labels);
}

/* Looks for the names in Keras' files, each of which contains a training set and a test set. */
static enum status choose_keras(struct source *s, const struct dataset_request *r,
                                struct names *out)
{
    static const struct names keras[] = {{"train", "x_train", "y_train", "_train"},
                                         {"test", "x_test", "y_test", "_test"},
                                         {"validation", "x_val", "y_val", "_val"},
                                         {"validation", "x_test", "y_test", "_test"}};
    enum status st = ST_OK;
    const struct data_file *f = s->file[SAMPLES];
    int found = 0, has_test;
    for (size_t i = 0; !found && i < sizeof keras / sizeof *keras; i++) {
        if (strcmp(keras[i].part, r->part) != 0)
            continue;
        TRY(find_array(f, r->no_dense ? keras[i].labels : keras[i].samples, &found));
        if (!found)
            continue;
        *out = keras[i];
        log_names(f, r, out);
        TRY(find_array(f, r->no_dense ? keras[1].labels : keras[1].samples, &has_test));
        s->d.has_test_beside = i == 0 && has_test;
    }
done:
    return st;
}

/* Chooses the names of the arrays: the names in the flags; otherwise that of the model's dense
 * input, or "images", and "labels"; otherwise the names in Keras' files. */
static enum status choose_names(struct source *s, const struct dataset_request *r,
                                const struct dataset_paths *p, struct names *out)
{
    enum status st = ST_OK;
    const struct data_file *f = s->file[SAMPLES];
    int found = 0;
    *out = (struct names){r->part, r->images_name ? r->images_name : "images",
                          r->labels_name ? r->labels_name : "labels", ""};
    if (!has_names(f) || is_pickled(f))
        return ST_OK;
    if (r->dense_input && !r->images_name)
        TRY(find_array(f, r->dense_input, &found));
    if (found)
        out->samples = r->dense_input;
    if (found || r->images_name || r->labels_name || *p->labels)
        return ST_OK;
    TRY(find_array(f, r->no_dense ? out->labels : out->samples, &found));
    if (!found)
        TRY(choose_keras(s, r, out));
done:
    return st;
}

/* Finds the labels: a separate file, or a member or tensor of the samples' file. It is no error if
 * labels that may be missing do not exist. */
static enum status find_labels(const struct source *s, const struct dataset_request *r,
                               const struct dataset_paths *p, const char *name, int *found)
{
    *found = 1;
    if (!r->to_predict || *p->labels || r->labels_name)
        return ST_OK;
    return find_array(s->file[SAMPLES], name, found);
}

static enum status no_keys(const char *path, const struct dataset_request *r)
{
    LOG_E(
        "%s: input '%s' of the model reads keys, which npz and safetensors files have as an array and CSV files as columns: save samples and keys in one such file",
        path, r->keys[0].input);
    return ST_UNSUPPORTED;
}

/* Decodes the arrays of keys. */
static enum status decode_keys(struct source *s, const struct dataset_request *r,
                               const char *suffix)
{
    enum status st = ST_OK;
    const struct data_file *f = s->file[SAMPLES];
    char name[DATA_MAX_NAME + 16];
    int found;
    for (int i = 0; i < r->n_keys; i++) {
        const char *input = r->keys[i].input;
        snprintf(name, sizeof name, "%.255s%s", r->keys[i].array, suffix);
        TRY(find_array(f, name, &found));
        if (!found) {
            LOG_E(
                "%s: input '%s' of the model reads the array '%s', which the file does not have; save the keys under this name, or set --input_names=%s=ARRAY",
                f->path, input, name, input);
            TRY(ST_NOT_FOUND);
        }
        TRY(decode_file(f, name, &s->key_array[i]));
        if (s->key_array[i].n_dims == 0) {
            LOG_E("%s: array '%s' is one number, but input '%s' of the model reads keys", f->path,
                  name, input);
            TRY(ST_CORRUPT);
        }
    }
done:
    return st;
}

/* Decodes the samples and their keys. */
static enum status decode_samples(struct source *s, const struct dataset_request *r,
                                  const struct names *names)
{
    enum status st = ST_OK;
    const struct data_file *f = s->file[SAMPLES];
    if (r->n_keys > 0 && !has_names(f) && !is_pickled(f))
        return no_keys(f->path, r);
    if (!r->no_dense || is_pickled(f))
        TRY(decode_file(f, names->samples, &s->array[SAMPLES]));
    TRY(decode_keys(s, r, names->suffix));
    const struct data_array *keys = &s->key_array[0];
    if (r->no_dense)
        TRY(dataset_keys_alone(f->path, data_array_row_elems(keys) > 0 ? keys->dim[0] : 0,
                               &s->array[SAMPLES]));
done:
    return st;
}

static enum status open_arrays(struct source *s, const struct dataset_request *r,
                               const struct dataset_paths *p)
{
    enum status st = ST_OK;
    int found;
    struct names names;
    CHECK(r->n_keys <= DATASET_MAX_KEY_INPUTS && (r->n_keys > 0 || !r->no_dense));
    if (r->n_keys > 0 && (is_folder(p->data) || data_cifar_is(p->data)))
        return no_keys(p->data, r);
    if (is_folder(p->data) && (r->labels || !*p->labels)) {
        TRY(open_pictures(s, r, p));
        return ST_OK;
    }
    if (data_cifar_is(p->data)) {
        TRY(open_cifar(s, r, p));
        return ST_OK;
    }
    TRY(data_file_open(p->data, &s->file[SAMPLES]));
    if (dataset_csv_is(p->data)) {
        TRY(dataset_csv_open(s, r, p));
        s->d.uses = DATASET_USES_COLUMN;
        return ST_OK;
    }
    if (r->data)
        TRY(check_picture(s->file[SAMPLES], r->to_predict));
    TRY(choose_names(s, r, p, &names));
    TRY(decode_samples(s, r, &names));
    TRY(find_labels(s, r, p, names.labels, &found));
    if (found) {
        if (*p->labels)
            TRY(dataset_find_check_path(r->part, "labels", p->labels));
        TRY(data_file_open(*p->labels ? p->labels : p->data, &s->file[LABELS]));
        TRY(decode_file(s->file[LABELS], names.labels, &s->array[LABELS]));
    }
    s->d.uses = check_use(s);
done:
    return st;
}

/* Reads the labels or targets, after the samples were checked: there must be as many rows of labels
 * as samples. */
static enum status load_labels(struct source *s, const struct dataset_request *r)
{
    enum status st = ST_OK;
    const struct data_array *samples = &s->array[SAMPLES], *labels = &s->array[LABELS];
    TRY(check_labels(s));
    if (r->target_columns && !data_array_type_is_float(labels->type)) {
        LOG_E(
            "--target_columns is for CSV files; the labels of %s are whole numbers: save them as float32, or remove the flag",
            source_labels_path(s));
        TRY(ST_INVALID);
    }
    if (samples->dim[0] != labels->dim[0]) {
        LOG_E("%s has %lld samples, but %s has %lld labels: the files do not belong together",
              s->file[SAMPLES]->path, (long long)samples->dim[0], source_labels_path(s),
              (long long)labels->dim[0]);
        TRY(ST_MISMATCH);
    }
    TRY(read_labels(s));
done:
    return st;
}

/* Reads the keys, after the samples were checked. */
static enum status load_keys(struct source *s, const struct dataset_request *r)
{
    enum status st = ST_OK;
    const char *path = s->file[SAMPLES]->path;
    for (int i = 0; i < r->n_keys; i++) {
        const struct dataset_key_source *from = &r->keys[i];
        struct dataset_key_input *to = &s->keys.input[i];
        if (s->key_array[i].n_dims > 0)
            TRY(dataset_keys_read(from, &s->key_array[i], path, s->array[SAMPLES].dim[0], to,
                                  &s->own_keys[i]));
        if (from->n_columns == 0 || to->n_columns == from->n_columns)
            continue;
        LOG_E("%s: input '%s' of the model reads %d columns of keys, but here it has %d", path,
              from->input, from->n_columns, to->n_columns);
        TRY(ST_MISMATCH);
    }
    s->keys.n = r->n_keys;
    s->d.keys = r->n_keys > 0 ? &s->keys : NULL;
done:
    return st;
}

static enum status make_sets(struct source *s, const struct dataset_request *r,
                             const struct dataset_paths *p)
{
    enum status st = ST_OK;
    const struct data_array *samples = &s->array[SAMPLES];
    s->nhwc = r->nhwc;
    s->d.progress = r->progress;
    for (int v = 0; v < 256; v++)
        s->value[v] = (float)v / 255.0f;
    TRY(open_arrays(s, r, p));
    TRY(check_samples(s));
    if (s->array[LABELS].n_dims > 0)
        TRY(load_labels(s, r));
    TRY(load_keys(s, r));
    s->d.n = samples->dim[0];
    s->d.path = s->file[SAMPLES]->path;
    s->d.labels_path = source_labels_path(s);
    s->d.class_names = s->class_names;
    s->d.columns = s->columns;
    s->d.label_names = s->label_names;
    s->d.ignored_names = s->ignored_names;
    s->d.csv_roles = s->csv_roles;
    s->d.names = s->names;
    int turned = s->nhwc && samples->n_dims == 4 && s->d.sample.dim[0] > 1;
    s->d.floats = data_array_type_is_plain(samples->type);
    data_array_log_converted(samples, s->d.path, "samples");
    if (s->d.targets)
        data_array_log_converted(&s->array[LABELS], s->d.labels_path, "targets");
    if (samples->type == DATA_U8 && !turned)
        s->d.bytes = samples->data;
    s->d.in_file = s->file[SAMPLES]->mapped && !samples->unpacked;
done:
    return st;
}

enum status dataset_open(const struct dataset_request *r, struct dataset **out)
{
    enum status st = ST_OK;
    struct source *s = calloc(1, sizeof *s);
    struct dataset_paths *p = malloc(sizeof *p);
    if (!s || !p) {
        LOG_E("no memory for the %s set", r->part);
        TRY(ST_NOMEM);
    }
    TRY(dataset_find(r, p));
    if (!*p->data) {
        *out = NULL;
        goto done;
    }
    TRY(make_sets(s, r, p));
    *out = &s->d;
    s = NULL;
done:
    free(p);
    if (s)
        dataset_destroy(&s->d);
    return st;
}
