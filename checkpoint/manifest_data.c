/* checkpoint/manifest_data.c - see manifest_data.h. */
#include "checkpoint/manifest_data.h"
#include <stdbool.h>
#include <string.h>

static const char *const kinds[JOB_LABELS_N_KINDS] = {NULL, "classes", "targets"};

json_t *manifest_data_to_json(const struct job_data *d)
{
    if (!d->n_train)
        return json_null();
    return json_pack(
        "{s:s, s:I, s:I, s:[i,i,i], s:i, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:s*}", "name",
        d->name, "training_samples", (json_int_t)d->n_train, "test_samples", (json_int_t)d->n_test,
        "shape", d->dim[0], d->dim[1], d->dim[2], "classes", d->classes, "training_samples_crc32c",
        (json_int_t)d->train_samples, "training_labels_crc32c", (json_int_t)d->train_labels,
        "test_samples_crc32c", (json_int_t)d->test_samples, "test_labels_crc32c",
        (json_int_t)d->test_labels, "class_names_crc32c", (json_int_t)d->class_names, "own_shards",
        d->own, "files", d->files, "standardized", d->standardized, "labels", kinds[d->labels]);
}

/* Reads an integer from 0 to `most`; false: missing, or invalid. */
static bool read(const json_t *o, const char *key, int64_t most, int64_t *to)
{
    const json_t *v = json_object_get(o, key);
    *to = json_integer_value(v);
    return json_is_integer(v) && *to >= 0 && *to <= most;
}

/* Reads an integer from 0 to `most` that older manifests do not have; it is 0 then. */
static bool read_later(const json_t *o, const char *key, int64_t most, int64_t *to)
{
    *to = 0;
    return !json_object_get(o, key) || read(o, key, most, to);
}

/* Reads the kind of the labels, which older manifests do not have; false: an unknown kind. */
static bool read_kind(const json_t *v, enum job_labels *to)
{
    const char *name = json_string_value(v);
    *to = JOB_LABELS_UNSAID;
    if (!v)
        return true;
    for (int i = JOB_LABELS_CLASSES; name && i < JOB_LABELS_N_KINDS; i++)
        if (strcmp(name, kinds[i]) == 0)
            *to = (enum job_labels)i;
    return *to != JOB_LABELS_UNSAID;
}

bool manifest_data_from_json(const json_t *o, struct job_data *out)
{
    int64_t n[2], classes, sum[5];
    enum job_labels labels;
    memset(out, 0, sizeof *out);
    if (!o || json_is_null(o))
        return true;
    const json_t *name = json_object_get(o, "name"), *shape = json_object_get(o, "shape");
    if (!read(o, "training_samples", INT32_MAX, &n[0]) || n[0] < 1 ||
        !read(o, "test_samples", INT32_MAX, &n[1]) || !read(o, "classes", INT32_MAX, &classes) ||
        !read(o, "training_samples_crc32c", UINT32_MAX, &sum[0]) ||
        !read(o, "training_labels_crc32c", UINT32_MAX, &sum[1]) ||
        !read(o, "test_samples_crc32c", UINT32_MAX, &sum[2]) ||
        !read(o, "test_labels_crc32c", UINT32_MAX, &sum[3]) ||
        !read_later(o, "class_names_crc32c", UINT32_MAX, &sum[4]) || !json_is_string(name) ||
        json_array_size(shape) != 3 || !read_kind(json_object_get(o, "labels"), &labels))
        return false;
    *out = (struct job_data){.n_train = n[0],
                             .n_test = n[1],
                             .classes = (int)classes,
                             .labels = labels,
                             .train_samples = (uint32_t)sum[0],
                             .train_labels = (uint32_t)sum[1],
                             .test_samples = (uint32_t)sum[2],
                             .test_labels = (uint32_t)sum[3],
                             .class_names = (uint32_t)sum[4],
                             .own = json_is_true(json_object_get(o, "own_shards")),
                             .files = json_is_true(json_object_get(o, "files")),
                             .standardized = json_is_true(json_object_get(o, "standardized"))};
    for (size_t i = 0; i < 3; i++) {
        json_int_t side = json_integer_value(json_array_get(shape, i));
        if (side < 1 || side > INT32_MAX)
            return false;
        out->dim[i] = (int)side;
    }
    job_data_set_name(out, json_string_value(name));
    return true;
}
