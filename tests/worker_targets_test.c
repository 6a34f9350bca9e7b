/* tests/worker_targets_test.c - labels of float32 are targets: read from each format, compared with
 * a network's outputs, split with their samples, and refused if they do not fit. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_targets.h"
#include <math.h>
#include <sys/stat.h>

enum { N = 12, SIDE = 3, MOST = 4096 };

struct folder {
    char dir[32];
};

static int setup(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    assert_non_null(f);
    folder_rig_new(f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct folder *f = *state;
    assert_int_equal(folder_rig_delete(f->dir), 0);
    free(f);
    return 0;
}

static void save(const struct folder *f, const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    folder_rig_save(path, data, n);
}

/* Saves an array; shape: "(12, 2)". */
static void save_npy(const struct folder *f, const char *name, const char *descr, const char *shape,
                     const void *data, size_t n)
{
    uint8_t file[MOST];
    char *dict = (char *)file + 10;
    int bytes =
        snprintf(dict, 200, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    memcpy(file, "\x93NUMPY\1\0", 8);
    file[8] = (uint8_t)bytes;
    file[9] = 0;
    assert_true(10 + (size_t)bytes + n <= MOST);
    memcpy(file + 10 + bytes, data, n);
    save(f, name, file, 10 + (size_t)bytes + n);
}

/* Saves images whose first pixel is their number. */
static void save_images(const struct folder *f, const char *part)
{
    uint8_t pixels[N * SIDE * SIDE] = {0};
    char name[64];
    for (int i = 0; i < N; i++)
        pixels[i * SIDE * SIDE] = (uint8_t)i;
    snprintf(name, sizeof name, "%s-images.npy", part);
    save_npy(f, name, "|u1", "(12, 3, 3)", pixels, sizeof pixels);
}

static float target(int i, int k)
{
    return (float)i / 8 - (float)k;
}

/* Saves k targets per sample. */
static void save_targets(const struct folder *f, const char *part, int k)
{
    float targets[N * 3];
    char name[64], shape[32];
    for (int i = 0; i < N * k; i++)
        targets[i] = target(i / k, i % k);
    snprintf(name, sizeof name, "%s-labels.npy", part);
    snprintf(shape, sizeof shape, k == 1 ? "(12,)" : "(12, %d)", k);
    save_npy(f, name, "<f4", shape, targets, (size_t)(N * k) * sizeof *targets);
}

static enum status open_part(const struct folder *f, const char *part, struct dataset **out)
{
    const struct dataset_request r = {.dir = f->dir, .part = part};
    *out = NULL;
    return CAPTURE(dataset_open(&r, out));
}

static struct dataset *open_good(const struct folder *f, const char *part)
{
    struct dataset *d;
    if (open_part(f, part, &d) != ST_OK)
        fail_msg("said: %s", capture_text);
    return d;
}

static struct layer loss_of(enum layer_kind kind, int outputs)
{
    struct layer l = {.kind = kind, .in = {1, {outputs}}, .out = {1, {outputs}}};
    strcpy(l.name, "loss1");
    return l;
}

static void check_said(enum status st, enum status want, const char *piece)
{
    if (st != want || capture_lines() != 1 || !strstr(capture_text, piece))
        fail_msg("status %s, wanted %s with \"%s\"; said: %s", status_name(st), status_name(want),
                 piece, capture_text);
}

static void one_and_several_are_read(void **state)
{
    for (int k = 1; k <= 3; k++) {
        const struct folder *f = *state;
        save_images(f, "train");
        save_targets(f, "train", k);
        struct dataset *d = open_good(f, "train");
        struct layer squared = loss_of(LAYER_SQUARED, k);
        assert_int_equal(d->n, N);
        assert_int_equal(d->classes, k);
        assert_null(d->labels);
        assert_non_null(d->targets);
        for (int i = 0; i < N * k; i++)
            assert_true(d->targets[i] == target(i / k, i % k));
        assert_true(dataset_is_bytes(d));
        assert_int_equal(dataset_targets_check_outputs(d, &squared), ST_OK);
        dataset_destroy(d);
    }
}

/* Numbers of IDX type 0x0d are big-endian. */
static void idx_of_floats_is_read(void **state)
{
    const struct folder *f = *state;
    uint8_t file[4 + 4 + N * 4] = {0, 0, 0x0d, 1, 0, 0, 0, N};
    for (int i = 0; i < N; i++) {
        float t = target(i, 0);
        uint32_t bits;
        memcpy(&bits, &t, 4);
        for (int b = 0; b < 4; b++)
            file[8 + 4 * i + b] = (uint8_t)(bits >> (24 - 8 * b));
    }
    save_images(f, "train");
    save(f, "y.idx", file, sizeof file);
    char data[64], labels[64];
    snprintf(data, sizeof data, "%s/train-images.npy", f->dir);
    snprintf(labels, sizeof labels, "%s/y.idx", f->dir);
    const struct dataset_request r = {.part = "train", .data = data, .labels = labels};
    struct dataset *d = NULL;
    assert_int_equal(CAPTURE(dataset_open(&r, &d)), ST_OK);
    assert_string_equal(d->labels_path, labels);
    for (int i = 0; i < N; i++)
        assert_true(d->targets[i] == target(i, 0));
    dataset_destroy(d);
}

static void split_keeps_samples_and_targets_together(void **state)
{
    const struct folder *f = *state;
    struct dataset *held = NULL;
    save_images(f, "train");
    save_targets(f, "train", 2);
    struct dataset *d = open_good(f, "train");
    assert_int_equal(dataset_split(d, 0.25, 7, &held), ST_OK);
    assert_int_equal(held->n, 3);
    assert_int_equal(d->n, 9);
    struct dataset *sets[2] = {d, held};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < sets[s]->n; i++)
            for (int k = 0; k < 2; k++)
                assert_true(dataset_targets(sets[s], i)[k] ==
                            target(dataset_bytes(sets[s], i)[0], k));
    assert_non_null(strstr(held->labels_path, "train-labels.npy"));
    dataset_destroy(held);
    dataset_destroy(d);
}

static void unsuitable_targets_refused(void **state)
{
    const struct folder *f = *state;
    struct dataset *d, *other;
    float damaged[N * 2] = {0};
    uint8_t classes[N] = {[3] = 1};
    save_images(f, "train");
    save_targets(f, "train", 2);
    d = open_good(f, "train");
    struct layer softmax = loss_of(LAYER_SOFTMAX_XENT, 2), squared = loss_of(LAYER_SQUARED, 3);
    struct layer sigmoids = loss_of(LAYER_SIGMOID_XENT, 2);
    check_said(CAPTURE(dataset_targets_check_outputs(d, &softmax)), ST_MISMATCH,
               "labels are floats, which are targets, but layer 'loss1', a softmax_cross_entropy");
    assert_non_null(strstr(capture_text, "labels.astype(numpy.int64)"));
    d->uses |= DATASET_USES_COLUMN;
    check_said(CAPTURE(dataset_targets_check_outputs(d, &softmax)), ST_MISMATCH,
               "name their column with --label_column instead of --target_columns");
    check_said(CAPTURE(dataset_targets_check_outputs(d, &squared)), ST_MISMATCH,
               "has 2 targets for each sample, but the model has 3 outputs");
    check_said(
        CAPTURE(dataset_targets_check_outputs(d, &sigmoids)), ST_MISMATCH,
        "target 1 of sample 0 is -1, but layer 'loss1', a sigmoid_cross_entropy, needs targets "
        "from 0 to 1");
    save_images(f, "test");
    save_npy(f, "test-labels.npy", "|u1", "(12,)", classes, sizeof classes);
    other = open_good(f, "test");
    check_said(CAPTURE(dataset_targets_alike(d, other)), ST_MISMATCH,
               "train-labels.npy has targets, but ");
    assert_int_equal(dataset_targets_alike(d, NULL), ST_OK);
    assert_int_equal(dataset_targets_check_outputs(other, &softmax), ST_OK);
    for (int i = 0; i < 2; i++) {
        struct layer one = loss_of(i ? LAYER_SQUARED : LAYER_SOFTMAX_XENT, 1);
        check_said(CAPTURE(dataset_targets_check_outputs(other, &one)), ST_MISMATCH,
                   "test-labels.npy: its labels are classes, but the model has 1 output, which "
                   "distinguishes no classes; set \"classes\": 2 or more");
    }
    struct layer chance = loss_of(LAYER_SIGMOID_XENT, 1);
    assert_int_equal(dataset_targets_check_outputs(other, &chance), ST_OK);
    assert_true(dataset_targets_are_labels(other, 1) && !dataset_targets_are_labels(other, 2));
    assert_true(!dataset_targets_are_labels(d, 1) && dataset_by_targets(d, 2));
    assert_true(*dataset_targets_of(other, 0) == 0.0f && *dataset_targets_of(other, 3) == 1.0f);
    dataset_destroy(other);
    dataset_destroy(d);
    damaged[5] = NAN;
    save_npy(f, "train-labels.npy", "<f4", "(12, 2)", damaged, sizeof damaged);
    check_said(open_part(f, "train", &d), ST_CORRUPT,
               "target 1 of sample 2 is nan, which is not finite");
    save_npy(f, "train-labels.npy", "<f4", "(6, 2, 2)", damaged, sizeof damaged);
    check_said(open_part(f, "train", &d), ST_CORRUPT, "floats of shape (n) or (n, targets)");
    save_npy(f, "train-labels.npy", "|u1", "(6, 2)", classes, sizeof classes);
    check_said(open_part(f, "train", &d), ST_CORRUPT, "an array of (6, 2) of uint8");
    save_npy(f, "train-labels.npy", "<f4", "(24,)", damaged, sizeof damaged);
    check_said(open_part(f, "train", &d), ST_MISMATCH, "12 samples, but");
}

int main(void)
{
#define WITH_FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(one_and_several_are_read),
        WITH_FOLDER(idx_of_floats_is_read),
        WITH_FOLDER(split_keeps_samples_and_targets_together),
        WITH_FOLDER(unsuitable_targets_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
