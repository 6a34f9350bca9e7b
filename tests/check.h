/* tests/check.h - includes cmocka after the standard headers that cmocka needs, and defines the
 * macros by which a program runs its tests. The arguments of a macro are the names of test
 * functions, in order; its value is the number of tests that failed. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the headers above */
#include <cmocka.h>

#define RUN_TESTS(...) RUN_GROUP(NULL, NULL, __VA_ARGS__)

/* Calls setup before the first test and teardown after the last one. */
#define RUN_GROUP(setup, teardown, ...) CHECK_RUN(setup, teardown, NULL, NULL, __VA_ARGS__)

/* Calls setup before each test and teardown after it. */
#define RUN_EACH(setup, teardown, ...) CHECK_RUN(NULL, NULL, setup, teardown, __VA_ARGS__)

#define CHECK_RUN(first, last, setup, teardown, ...)                                               \
    cmocka_run_group_tests_name(                                                                   \
        "tests",                                                                                   \
        ((const struct CMUnitTest[]){CHECK_EXPAND(CHECK_ROW(setup, teardown, __VA_ARGS__))}),      \
        first, last)
/* Expands to one row for `test`, then the rows of all other names: each pass of CHECK_EXPAND adds a
 * row. */
#define CHECK_ROW(setup, teardown, test, ...)                                                      \
    {#test, test, setup, teardown, NULL},                                                          \
        __VA_OPT__(CHECK_NEXT CHECK_CALL(setup, teardown, __VA_ARGS__))
#define CHECK_NEXT() CHECK_ROW
#define CHECK_CALL ()
#define CHECK_EXPAND(...) CHECK_4(CHECK_4(CHECK_4(CHECK_4(__VA_ARGS__)))) /* 64 passes or more */
#define CHECK_4(...) CHECK_16(CHECK_16(CHECK_16(CHECK_16(__VA_ARGS__))))
#define CHECK_16(...) CHECK_64(CHECK_64(CHECK_64(CHECK_64(__VA_ARGS__))))
#define CHECK_64(...) __VA_ARGS__
#endif
