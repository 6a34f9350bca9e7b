/* worker/self_test/self_test_child.h - runs a function that may crash or hang in a child process.
 * Threads: none when it is called. Errors:  not logged, but written to why. */
#ifndef WORKER_SELF_TEST_SELF_TEST_CHILD_H
#define WORKER_SELF_TEST_SELF_TEST_CHILD_H
#include "base/status.h"
#include <stddef.h>

enum { SELF_TEST_WHY_SIZE = 1024 };

/* Runs f in a child, which sends result[size] back; f must not write to other memory. The child is
 * killed after `seconds`, and when this process exits. ST_DEADLINE, ST_INTERNAL (the child died),
 * ST_NOMEM (no child could be started): why[SELF_TEST_WHY_SIZE] contains the reason. */
enum status self_test_child_run(void (*f)(const void *arg, void *result), const void *arg,
                                void *result, size_t size, int seconds, char *why);

#endif
