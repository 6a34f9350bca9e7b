/* tests/skipping/skipping.c - a cmocka program that passes, skips and fails, depending on its
 * argument: tests/python/test_harness.py checks its exit status, and the report of
 * scripts/ctest_report. */
#include "tests/check.h"
#include "tests/skip.h"
#include <string.h>

enum { MANY = 77 }; /* number of failed tests, which does not mean "skipped" here */

static void test_passes(void **state)
{
    assert_null(*state);
}

static void test_skips(void **state)
{
    skip_because("%d moons are needed", 2);
}

static void test_skips_mutely(void **state)
{
    skip();
}

static void test_fails(void **state)
{
    assert_non_null(*state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest good[] = {cmocka_unit_test(test_passes)};
    const struct CMUnitTest some[] = {cmocka_unit_test(test_passes), cmocka_unit_test(test_skips)};
    const struct CMUnitTest mute[] = {cmocka_unit_test(test_passes),
                                      cmocka_unit_test(test_skips_mutely)};
    const struct CMUnitTest bad[] = {cmocka_unit_test(test_skips), cmocka_unit_test(test_fails)};
    struct CMUnitTest many[MANY];
    const char *how = argc > 1 ? argv[1] : "good";
    for (int i = 0; i < MANY; i++)
        many[i] = (struct CMUnitTest)cmocka_unit_test(test_fails);
    if (strcmp(how, "none") == 0)
        return skip_program("no %s here", "moon");
    if (strcmp(how, "some") == 0)
        return cmocka_run_group_tests(some, NULL, NULL);
    if (strcmp(how, "mute") == 0)
        return cmocka_run_group_tests(mute, NULL, NULL);
    if (strcmp(how, "bad") == 0)
        return cmocka_run_group_tests(bad, NULL, NULL);
    if (strcmp(how, "many") == 0)
        return cmocka_run_group_tests(many, NULL, NULL);
    if (strcmp(how, "groups") == 0)
        cmocka_run_group_tests(some, NULL, NULL);
    return cmocka_run_group_tests(good, NULL, NULL);
}
