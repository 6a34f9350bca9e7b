/* tests/skip.c - cmocka 1.1 counts skipped tests as passed, and returns the number of failed tests,
 * which may happen to be 77. So the linker wraps two of cmocka's functions. scripts/ctest_report
 * searches for the lines "SKIP: reason". */
#include "tests/skip.h"
#include "tests/check.h"
#include <stdio.h>
#include <stdlib.h>

enum { SKIPPED = 77 };

static int n_failed, n_skipped;

void __real__skip(const char *file, int line);
void __wrap__skip(const char *file, int line);
int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);

static void say(const char *format, va_list args)
{
    char why[512];
    vsnprintf(why, sizeof why, format, args);
    print_message("SKIP: %s\n", why);
    fflush(stdout);
}

void skip_because(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    n_skipped++;
    __real__skip(__FILE__, __LINE__);
    abort(); /* cmocka has jumped out of the test */
}

int skip_program(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return SKIPPED;
}

void __wrap__skip(const char *file, int line)
{
    print_error("skip() gives no reason: use skip_because() of tests/skip.h\n");
    _fail(file, line);
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown)
{
    n_failed += __real__cmocka_run_group_tests(name, tests, n, setup, teardown) != 0;
    return n_failed ? 1 : n_skipped ? SKIPPED : 0;
}
