/* tests/worker_classes_test.c - the classes of a training set: a single class is refused; classes
 * without a sample and labels that look like targets are reported. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/data/dataset_classes.h"
#include "worker/data/dataset_targets.h"

enum { MOST = 300 };

static struct dataset set_of(const int32_t *labels, int n)
{
    struct dataset d = {.n = n, .labels = labels, .path = "x.npy", .labels_path = "y.npy"};
    for (int i = 0; i < n; i++)
        d.classes = labels[i] + 1 > d.classes ? labels[i] + 1 : d.classes;
    return d;
}

static void check(const struct dataset *d, enum status want, const char *text)
{
    enum status st = CAPTURE(dataset_classes_check(d));
    if (st != want || capture_lines() != (text != NULL) || (text && !strstr(capture_text, text)))
        fail_msg("status %s, wanted %s and \"%s\"; said: %s", status_name(st), status_name(want),
                 text ? text : "", capture_text);
}

static void one_class_alone_is_refused(void **state)
{
    const int32_t labels[] = {3, 3, 3, 3};
    struct dataset d = set_of(labels, 4);
    check(&d, ST_INVALID, "y.npy: all 4 training samples are of one class, 3: ");
    assert_non_null(strstr(capture_text, "--labels_name"));
    d.class_names = "ant\nbee\ncat\ndog";
    check(&d, ST_INVALID, "samples are of one class, the folder 'dog': ");
    assert_non_null(strstr(capture_text, "create a folder of pictures for each class"));
    d.uses = DATASET_USES_COLUMN;
    check(&d, ST_INVALID, "samples are of one class, 'dog': ");
    assert_non_null(strstr(capture_text, "--label_column"));
}

static void classes_without_samples_are_warned_of(void **state)
{
    const int32_t healthy[] = {0, 1, 2, 1}, from_1[] = {1, 2, 3, 1}, stray[] = {0, 1, 2, 999, 1};
    struct dataset d = set_of(healthy, 4);
    check(&d, ST_OK, NULL);
    d = set_of(from_1, 4);
    check(&d, ST_OK,
          "y.npy: 1 of its 4 classes has no training sample (the first of them: class 0;");
    assert_non_null(strstr(capture_text, "subtract the smallest label"));
    d = set_of(stray, 5);
    check(&d, ST_OK,
          "y.npy: 996 of its 1000 classes have no training sample (the first of them: class 3; "
          "class 999, the last of all, has 1)");
    d = set_of(healthy, 4);
    d.class_names = "ant\nbee\ncat\ndog"; /* the last class has no sample either */
    check(&d, ST_OK, "class 3 ('dog');");
    assert_non_null(strstr(capture_text, "remove the folders that are empty"));
    d.labels = NULL;
    check(&d, ST_OK, NULL);
}

static void labels_of_many_values_warned_of_as_targets(void **state)
{
    int32_t prices[MOST];
    for (int i = 0; i < MOST; i++)
        prices[i] = 20000 + 7 * i;
    struct dataset d = set_of(prices, MOST);
    check(&d, ST_OK, "y.npy: its labels have 300 different values in 300 samples");
    assert_non_null(strstr(capture_text, "--target_columns"));
    for (int i = 0; i < MOST; i++)
        prices[i] = i / 2;
    d = set_of(prices, MOST);
    check(&d, ST_OK, NULL);
}

static void class_labels_need_one_hot_to_be_fitted(void **state)
{
    int32_t ratings[] = {0, 1, 2, 3, 4, 0};
    const float numbers[] = {0, 1};
    struct dataset d = set_of(ratings, 6);
    struct layer loss = {.name = "loss", .kind = LAYER_SQUARED, .in = {1, {d.classes}}};
    assert_int_equal(CAPTURE(dataset_targets_check_loss(&d, &loss)), ST_MISMATCH);
    assert_non_null(strstr(capture_text, "y.npy: its labels are classes, 0 to 4"));
    assert_non_null(strstr(capture_text, "save them as float32"));
    d.uses = DATASET_USES_COLUMN;
    assert_int_equal(CAPTURE(dataset_targets_check_loss(&d, &loss)), ST_MISMATCH);
    assert_non_null(strstr(capture_text, "--target_columns"));
    loss.one_hot = true;
    assert_int_equal(dataset_targets_check_loss(&d, &loss), ST_OK);
    loss = (struct layer){.name = "loss", .kind = LAYER_SOFTMAX_XENT, .in = {1, {d.classes}}};
    assert_int_equal(dataset_targets_check_loss(&d, &loss), ST_OK);
    loss.kind = LAYER_SQUARED;
    d.targets = numbers;
    assert_int_equal(dataset_targets_check_loss(&d, &loss), ST_OK);
}

int main(void)
{
    return RUN_TESTS(one_class_alone_is_refused, classes_without_samples_are_warned_of,
                     class_labels_need_one_hot_to_be_fitted,
                     labels_of_many_values_warned_of_as_targets);
}
