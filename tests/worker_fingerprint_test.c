/* tests/worker_fingerprint_test.c - the fingerprint distinguishes data sets, and messages name the
 * difference. */
#include "tests/check.h"
#include "worker/data/fingerprint.h"
#include <string.h>

enum { N = 3000, SIDE = 4, PIXELS = N * SIDE * SIDE, N_TEST = 100 };

static uint8_t images[PIXELS];
static int32_t labels[N];

static void fill(void)
{
    for (int i = 0; i < PIXELS; i++)
        images[i] = (uint8_t)(i * 7 + i / 251);
    for (int i = 0; i < N; i++)
        labels[i] = i % 10;
}

static struct job_data take(const char *dir)
{
    const struct dataset train = {
        .n = N, .sample = {3, {1, SIDE, SIDE}}, .classes = 10, .bytes = images, .labels = labels};
    struct dataset test = train;
    struct job_data d;
    test.n = N_TEST;
    assert_int_equal(fingerprint_compute(&train, &test, dir, 0, &d), ST_OK);
    return d;
}

static void expect_differ(const struct job_data *a, const struct job_data *b, const char *text)
{
    char why[400];
    assert_int_equal(job_data_compare(a, b, why, sizeof why), ST_MISMATCH);
    if (!strstr(why, text))
        fail_msg("'%s' is not in '%s'", text, why);
}

static void expect_same(const struct job_data *a, const struct job_data *b)
{
    char why[400];
    assert_int_equal(job_data_compare(a, b, why, sizeof why), ST_OK);
}

/* The fingerprint of targets covers their bits, and their number per sample. */
static void target_bits_change_fingerprint(void **state)
{
    static float targets[2 * N];
    const struct dataset train = {
        .n = N, .sample = {3, {1, SIDE, SIDE}}, .classes = 2, .bytes = images, .targets = targets};
    struct job_data a, b;
    fill();
    for (int i = 0; i < 2 * N; i++)
        targets[i] = (float)i / 3;
    assert_int_equal(fingerprint_compute(&train, &train, "/", 0, &a), ST_OK);
    assert_int_equal(a.classes, 2);
    targets[2 * N - 1] = 0;
    assert_int_equal(fingerprint_compute(&train, &train, "/", 0, &b), ST_OK);
    expect_differ(&a, &b, "CRC-32C of the training labels");
    b = take("/usr");
    expect_differ(&a, &b, "labels: the servers have targets in /, ");
    expect_differ(&a, &b, ", the worker has class labels in /usr");
    a.own = b.own = 1; /* --data_shard=own: only shapes and kinds of labels are compared */
    expect_differ(&a, &b, "labels: the servers have targets in /, ");
    expect_differ(&b, &a, "labels: the servers have class labels in /usr, ");
    a.labels = JOB_LABELS_UNSAID; /* sent by an earlier version of the program */
    expect_same(&a, &b);
}

static void equal_sets_have_equal_fingerprints(void **state)
{
    fill();
    struct job_data a = take("/"), b = take("/usr");
    expect_same(&a, &b); /* the folder does not count */
    assert_int_equal(a.n_train, N);
    assert_int_equal(a.n_test, N_TEST);
    assert_int_equal(a.classes, 10);
    assert_string_equal(b.name, "/usr");
}

/* Changes one byte, anywhere, of samples or labels. */
static void any_byte_changes_fingerprint(void **state)
{
    fill();
    struct job_data a = take("/"), b;
    images[PIXELS - 1] ^= 1;
    b = take("/usr");
    expect_differ(&a, &b, "CRC-32C of the training samples: ");
    expect_differ(&a, &b, " in /, the worker has ");
    expect_differ(&a, &b, " in /usr");
    fill();
    labels[N - 1] ^= 1;
    b = take("/");
    expect_differ(&a, &b, "CRC-32C of the training labels: ");
    fill();
    b = a;
    b.test_samples ^= 1;
    expect_differ(&a, &b, "CRC-32C of the test samples: ");
    b = a;
    b.test_labels ^= 1;
    expect_differ(&a, &b, "CRC-32C of the test labels: ");
}

static void counts_and_shapes_compared(void **state)
{
    fill();
    struct job_data a = take("/"), b = a;
    b.n_train = 60000;
    expect_differ(&a, &b,
                  "training samples: the servers have 3000 in /, the worker has 60000 in /");
    b = a;
    b.n_test = 7;
    b.name[0] = 0;
    expect_differ(&a, &b, "test samples: the servers have 100 in /, the worker has 7 in its data");
    b = a;
    b.dim[2] = 28;
    expect_differ(&a, &b,
                  "shape of a sample: the servers have 1x4x4 in /, the worker has 1x4x28 in /");
    b = a;
    b.classes = 2;
    expect_differ(&a, &b, "classes: the servers have 10");
}

static void standardized_differs_from_plain(void **state)
{
    fill();
    struct job_data a = take("/"), b = a;
    b.standardized = 1;
    expect_differ(&a, &b, "--standardize: the servers' job does not have it, the worker has it");
    expect_differ(&b, &a, "--standardize: the servers' job has it, the worker does not have it");
    b.own = a.own = 1;
    expect_differ(&a, &b, "--standardize: ");
}

/* Parts of --data_shard=own must have equal shapes, and all members must set the flag. */
static void own_parts_compare_shapes_only(void **state)
{
    fill();
    struct job_data a = take("/"), b = a;
    b.n_train = 5;
    b.train_samples ^= 1;
    b.own = 1;
    expect_differ(&a, &b, "--data_shard: the servers have same, the worker has own");
    a.own = 1;
    expect_same(&a, &b);
    b.dim[0] = 3;
    expect_differ(&a, &b, "shape of a sample: the servers have 1x4x4");
}

/* The names of the classes are compared if labels are not. */
static void own_parts_compare_class_names(void **state)
{
    struct dataset d = {
        .n = N, .sample = {3, {1, SIDE, SIDE}}, .classes = 10, .bytes = images, .labels = labels};
    struct job_data a, b;
    fill();
    d.class_names = "ant\nbee";
    assert_int_equal(fingerprint_compute(&d, NULL, "/", 1, &a), ST_OK);
    d.class_names = "ant\ncat";
    assert_int_equal(fingerprint_compute(&d, NULL, "/usr", 1, &b), ST_OK);
    expect_differ(
        &a, &b,
        "names of the classes (all workers need the same; an empty folder is a class, too, and a CSV file can have numbers instead of words): the servers have ");
    expect_differ(&a, &b, " in /, the worker has ");
    expect_same(&a, &a);
    d.class_names = NULL; /* the labels are numbers, from a file of labels */
    assert_int_equal(fingerprint_compute(&d, NULL, "/usr", 1, &b), ST_OK);
    assert_int_equal(b.class_names, 0);
    expect_same(&a, &b);
    expect_same(&b, &a);
}

static void unknown_fields_match(void **state)
{
    fill();
    struct job_data a = take("/"), none = {0};
    expect_same(&a, &none);
    expect_same(&none, &a);
}

/* The fingerprint of held-out samples covers their number, bytes and labels. */
static void held_out_samples_compared(void **state)
{
    fill();
    struct dataset d = {
        .n = N, .sample = {3, {1, SIDE, SIDE}}, .classes = 10, .bytes = images, .labels = labels};
    struct job_validation a, b;
    assert_int_equal(fingerprint_validation(&d, &a), ST_OK);
    assert_int_equal(fingerprint_validation(&d, &b), ST_OK);
    assert_true(a.n == N && job_validation_same(&a, &b));
    labels[N - 1]++;
    assert_int_equal(fingerprint_validation(&d, &b), ST_OK);
    assert_false(job_validation_same(&a, &b));
    fill();
    images[PIXELS - 1] ^= 1;
    assert_int_equal(fingerprint_validation(&d, &b), ST_OK);
    assert_false(job_validation_same(&a, &b));
    fill();
    d.n--;
    assert_int_equal(fingerprint_validation(&d, &b), ST_OK);
    assert_false(job_validation_same(&a, &b));
}

static void class_names_compared(void **state)
{
    struct job_data d;
    char path[300];
    memset(path, 'a', sizeof path);
    memcpy(path + sizeof path - 9, "/mnist\n\x80", 9);
    job_data_set_name(&d, path);
    assert_int_equal(strlen(d.name), JOB_DATA_NAME_BYTES - 1);
    assert_memory_equal(d.name, "...a", 4);
    assert_string_equal(d.name + strlen(d.name) - 8, "/mnist??");
}

int main(void)
{
    return RUN_TESTS(equal_sets_have_equal_fingerprints, any_byte_changes_fingerprint,
                     counts_and_shapes_compared, standardized_differs_from_plain,
                     own_parts_compare_shapes_only, unknown_fields_match, class_names_compared,
                     own_parts_compare_class_names, target_bits_change_fingerprint,
                     held_out_samples_compared);
}
