/* tests/worker_auc_test.c - compares the area under the ROC curve with its definition. */
#include "base/rng.h"
#include "tests/check.h"
#include "worker/train/auc.h"
#include <math.h>

static double auc_of(const float *score, const int *label, int n)
{
    struct auc *a = NULL;
    assert_int_equal(auc_create(n, &a), ST_OK);
    for (int i = 0; i < n; i++)
        auc_add(a, score[i], label[i] == 1);
    double value = auc_value(a);
    auc_destroy(a);
    return value;
}

static void auc_of_few_samples_is_known(void **state)
{
    static const float score[] = {0.1f, 0.4f, 0.35f, 0.8f};
    assert_true(auc_of(score, (int[]){0, 0, 1, 1}, 4) == 0.75); /* scikit-learn's example */
    assert_true(auc_of(score, (int[]){0, 1, 0, 1}, 4) == 1.0);
    assert_true(auc_of(score, (int[]){1, 0, 1, 0}, 4) == 0.0);
    assert_true(auc_of((float[]){0.5f, 0.5f, 0.5f}, (int[]){1, 0, 1}, 3) == 0.5);
}

static void auc_without_a_class_is_unknown(void **state)
{
    static const float score[] = {0.1f, 0.4f, NAN};
    assert_true(isnan(auc_of(score, (int[]){0, 0}, 2)));
    assert_true(isnan(auc_of(score, (int[]){1, 1}, 2)));
    assert_true(isnan(auc_of(score, (int[]){0, 1, 1}, 3)));
}

static void auc_of_random_scores_is_the_share_of_pairs(void **state)
{
    enum { N = 300 };
    float score[N];
    int label[N];
    double won = 0, pairs = 0;
    for (int i = 0; i < N; i++) { /* few values, so that many are equal */
        label[i] = (int)rng_below(rng_key(1, RNG_TEST, 1), (uint64_t)i, 2);
        score[i] = (float)rng_below(rng_key(1, RNG_TEST, 2), (uint64_t)i, 40) + (float)label[i];
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            if (label[i] == 1 && label[k] == 0) {
                pairs++;
                won += score[i] > score[k] ? 1 : score[i] == score[k] ? 0.5 : 0;
            }
    assert_true(fabs(auc_of(score, label, N) - won / pairs) < 1e-12);
}

int main(void)
{
    return RUN_TESTS(auc_of_few_samples_is_known, auc_without_a_class_is_unknown,
                     auc_of_random_scores_is_the_share_of_pairs);
}
