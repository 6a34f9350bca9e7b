/* worker/self_test/self_test_child.h - a function run in a process of its own: it may crash or
 * hang.
 * Threads: none when it is called. Errors: not logged, said in why. */
#ifndef WORKER_SELF_TEST_SELF_TEST_CHILD_H
#define WORKER_SELF_TEST_SELF_TEST_CHILD_H
#include "base/status.h"
#include <stddef.h>

enum { SELF_TEST_WHY_SIZE = 1024 };

/* Runs f in a child, which sends back result[size]; f may write to nothing else of ours. The child
 * is killed when it has taken longer than `seconds`, and dies with this process.
 * ST_DEADLINE, ST_INTERNAL (it died), ST_NOMEM (none could be started): why[SELF_TEST_WHY_SIZE]
 * says more. */
enum status self_test_child_run(void (*f)(const void *arg, void *result), const void *arg,
                                void *result, size_t size, int seconds, char *why);

#endif
