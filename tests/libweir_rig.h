/* tests/libweir_rig.h - a handle of libweir and one server (tests/net_tiny.h) in the same process,
 * with the same model. Owns: the handle and the server. Threads: the test's. */
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

/* Opens a job of one member, 10 steps of 3 samples by sgd; more: further settings, which end with
 * NULL; or NULL. */
void librig_open(struct librig *r, const char *const (*more)[2]);
/* Opens the same job, but sets neither the server's address nor the number of workers. */
void librig_open_anywhere(struct librig *r, const char *const (*more)[2]);
void librig_close(struct librig *r);
/* Begins that step, and pushes its gradient. */
void librig_step(struct librig *r, int64_t step);
/* Checks that each value is its index plus `added`. */
void librig_assert_values(struct librig *r, float added);
/* Polls for the next event. */
struct weir_event librig_next_event(struct librig *r);

#endif
