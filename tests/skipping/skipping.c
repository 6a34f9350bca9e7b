/* tests/skipping/skipping.c - a cmocka program that passes, skips and fails as its argument says:
 * tests/python/test_harness.py looks at its exit status, and at what scripts/ctest_report makes of
 * it. */
#include "tests/check.h"
#include "tests/skip.h"
#include <string.h>

enum { MANY = 77 }; /* failed tests, which are no skip */

static void passes(void **state)
{
    assert_null(*state);
}

static void skips(void **state)
{
    skip_because("%d moons are needed", 2);
}

static void skips_mutely(void **state)
{
    skip();
}

static void fails(void **state)
{
    assert_non_null(*state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest good[] = {cmocka_unit_test(passes)};
    const struct CMUnitTest some[] = {cmocka_unit_test(passes), cmocka_unit_test(skips)};
    const struct CMUnitTest mute[] = {cmocka_unit_test(passes), cmocka_unit_test(skips_mutely)};
    const struct CMUnitTest bad[] = {cmocka_unit_test(skips), cmocka_unit_test(fails)};
    struct CMUnitTest many[MANY];
    const char *how = argc > 1 ? argv[1] : "good";
    for (int i = 0; i < MANY; i++)
        many[i] = (struct CMUnitTest)cmocka_unit_test(fails);
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
