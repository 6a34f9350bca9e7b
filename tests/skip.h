/* tests/skip.h - a test that cannot run here reports why, and its program ends with ctest's
 * "skipped". The linker wraps cmocka in every program of this folder. cmocka_run_group_tests()
 * returns, for all groups so far: 1 if a test failed, otherwise 77 (SKIP_RETURN_CODE) if a test was
 * skipped, otherwise 0. cmocka's own skip(), which has no reason, is a failure. A test that does
 * not apply (a backend without a limit of memory) is not a skip: remove it from the list. Owns: the
 * counts, for the life of the program. Threads: the test's own. Errors: none. */
#ifndef TESTS_SKIP_H
#define TESTS_SKIP_H

/* Ends the running test without cleanup: free its resources first. */
_Noreturn void skip_because(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints why a program's tests cannot run, before they begin; returns the return value of main. */
int skip_program(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
