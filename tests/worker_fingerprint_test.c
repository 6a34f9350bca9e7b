/* tests/worker_fingerprint_test.c - what tells one data set from another, and what is said of two
 * that differ. */
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

/* Of targets the bits count, and how many a sample has. */
static void test_targets(void **state)
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
    a.own = b.own = 1; /* else only the shape counts */
    expect_differ(&a, &b, "labels: the servers have targets in /, ");
    expect_differ(&b, &a, "labels: the servers have class labels in /usr, ");
    a.labels = JOB_LABELS_UNSAID; /* a program of before */
    expect_same(&a, &b);
}

static void test_same(void **state)
{
    fill();
    struct job_data a = take("/"), b = take("/usr");
    expect_same(&a, &b); /* in whatever folder */
    assert_int_equal(a.n_train, N);
    assert_int_equal(a.n_test, N_TEST);
    assert_int_equal(a.classes, 10);
    assert_string_equal(b.name, "/usr");
}

/* One byte, anywhere, of samples or labels. */
static void test_one_byte(void **state)
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

static void test_counts(void **state)
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

static void test_standardized(void **state)
{
    fill();
    struct job_data a = take("/"), b = a;
    b.standardized = 1;
    expect_differ(&a, &b, "--standardize: the servers' job does not have it, the worker has it");
    expect_differ(&b, &a, "--standardize: the servers' job has it, the worker does not have it");
    b.own = a.own = 1;
    expect_differ(&a, &b, "--standardize: ");
}

/* Parts of their own have to be of one shape, and everybody has to know of it. */
static void test_own(void **state)
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

/* What a label is depends on the classes' names, where the labels are not compared. */
static void test_own_classes(void **state)
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
        "names of the classes (all workers need the same; a folder may be empty, a CSV file's words may be numbers): the servers have ");
    expect_differ(&a, &b, " in /, the worker has ");
    expect_same(&a, &a);
    d.class_names = NULL; /* numbers, as in a file of labels */
    assert_int_equal(fingerprint_compute(&d, NULL, "/usr", 1, &b), ST_OK);
    assert_int_equal(b.class_names, 0);
    expect_same(&a, &b);
    expect_same(&b, &a);
}

static void test_not_said(void **state)
{
    fill();
    struct job_data a = take("/"), none = {0};
    expect_same(&a, &none);
    expect_same(&none, &a);
}

/* Of held-out samples: their number and bytes tell, and their labels. */
static void test_validation(void **state)
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

static void test_names(void **state)
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
    return RUN_TESTS(test_same, test_one_byte, test_counts, test_standardized, test_own,
                     test_not_said, test_names, test_own_classes, test_targets, test_validation);
}
