/* tests/libweir_rig.h - a handle of libweir, and its one server in the same process
 * (tests/net_tiny.h), with the same model. Owns: both. Threads: the test's. */
#ifndef TESTS_LIBWEIR_RIG_H
#define TESTS_LIBWEIR_RIG_H
#include "tests/libweir_open.h"
#include "tests/net_tiny.h"

struct librig {
    struct tiny_member m;
    struct tiny tiny;
    struct weir *w;
    int fd;
};

/* Opens a job of one member, 10 steps of 3 samples by sgd; more: settings, ended by NULL; NULL:
 * none. */
void librig_open(struct librig *r, const char *const (*more)[2]);
/* Opens a handle without the server's address and the member's index. */
void librig_open_anywhere(struct librig *r, const char *const (*more)[2]);
void librig_close(struct librig *r);
/* Begins that step, and pushes its gradient. */
void librig_step(struct librig *r, int64_t step);
/* Checks that each value is its number plus `added`. */
void librig_assert_values(struct librig *r, float added);
/* Polls for the next event. */
struct weir_event librig_next_event(struct librig *r);

#endif
