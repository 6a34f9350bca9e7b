/* tests/skip.h - a test that cannot run here says so, and its program ends with ctest's "skipped".
 *
 * Every cmocka program of this folder is linked so that cmocka_run_group_tests() returns, for all
 * groups that ran so far: 1 if a test failed, else 77 (SKIP_RETURN_CODE) if one was skipped, else
 * 0; and so that cmocka's own skip(), which gives no reason, is a failure. What does not apply to
 * what is tested (a backend without a limit of memory) is no skip: leave it out of the list.
 * Owns: the counts, for the life of the program. Threads: the test's own. Errors: none. */
#ifndef TESTS_SKIP_H
#define TESTS_SKIP_H

/* Ends the running test. What it holds is not freed: free it first. */
_Noreturn void skip_because(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* For a main() before its tests: says why none of them can run; what main is to return. */
int skip_program(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
