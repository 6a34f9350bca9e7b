/* tests/libweir_alone_test.c - libweir without servers: what a push that is refused leaves behind,
 * cancelling, and the order of samples. */
#include "tests/libweir_open.h"

static void test_shared_samples_differ(void **state)
{
    static const char *const settings[][2] = {{"optimizer", "sgd"}, {NULL, NULL}};
    const int64_t two = 2;
    const float g[2] = {1, -1};
    struct weir *w = open_with(settings);
    struct weir_step s;
    assert_int_equal(weir_param(w, "a", 0, 1, &two, NULL), 0);
    assert_int_equal(weir_param(w, "b", 0, 1, &two, NULL), 1);
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    assert_int_equal(weir_push(w, 0, g, 4), WEIR_OK);
    assert_error(w, weir_push(w, 1, g, 3), WEIR_E_INVALID, "have to be the same");
    assert_int_equal(weir_push(w, 1, g, 4), WEIR_OK); /* which has changed nothing */
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    weir_cancel(w);
    assert_error(w, weir_push(w, 0, g, 4), WEIR_E_CANCELLED, "cancelled");
    assert_error(w, weir_next(w, -1, &s), WEIR_E_CANCELLED, "cancelled");
    weir_close(w);
}

static void test_samples(void **state)
{
    enum { ITEMS = 50 };
    static const char *const settings[][2] = {{"seed", "5"}, {NULL, NULL}};
    struct weir *w = open_with(settings);
    int seen[ITEMS] = {0};
    for (int i = 0; i < 2 * ITEMS; i++) {
        int64_t item = weir_sample(w, ITEMS, i);
        assert_in_range(item, 0, ITEMS - 1);
        assert_int_equal(seen[item]++, i / ITEMS);
    }
    assert_error(w, (int)weir_sample(w, (int64_t)1 << 40, 0), -1, "cannot be ordered");
    assert_int_equal(weir_set(w, "join", "true"), WEIR_OK);
    assert_error(w, (int)weir_sample(w, ITEMS, 0), -1, "the running job's");
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_samples_differ),
        cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
