/* tests/libweir_codes_test.c - codes of weir.h that no other test of libweir covers: exhausted
 * resources, unreadable files, and servers that lose their state or violate the protocol. */
#include "libweir/weir_impl.h"
#include "tests/libweir_rig.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* Under sanitizers a failed allocation must return NULL, as it does without them. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void test_memory(void **state)
{
    const int64_t most[2] = {1 << 20, 1 << 20}, one = 1; /* 4 TB */
    struct weir *w;
    assert_int_equal(weir_open(NULL), WEIR_E_INVALID);
    assert_int_equal(weir_open(&w), WEIR_OK);
    assert_error(w, weir_param(w, "huge", WEIR_FLOAT32, 2, most, NULL), WEIR_E_NOMEM,
                 "out of memory for parameter 'huge'");
    assert_int_equal(weir_param(w, "small", WEIR_FLOAT32, 1, &one, NULL), 0);
    weir_close(w);
}

static void test_descriptors(void **state)
{
    struct rlimit before, none;
    struct weir *w;
    assert_int_equal(weir_open(&w), WEIR_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int code = weir_fd(w);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_error(w, code, WEIR_E_NOMEM, "no descriptor: ");
    assert_true(weir_fd(w) > 2);
    weir_close(w);
}

/* More parameters than a model may have, and invalid names, are refused. */
static void test_names(void **state)
{
    enum { MOST = 65536 };
    const int64_t one = 1;
    struct weir *w;
    char name[300];
    assert_int_equal(weir_open(&w), WEIR_OK);
    for (int i = 0; i < MOST; i++) {
        snprintf(name, sizeof name, "p%d", i);
        assert_int_equal(weir_param(w, name, WEIR_FLOAT32, 1, &one, NULL), i);
    }
    assert_error(w, weir_param(w, "last", WEIR_FLOAT32, 1, &one, NULL), WEIR_E_INVALID,
                 "exceeds the maximum of 65536 parameters");
    weir_close(w);
    for (int i = 0; i < 3; i++) {
        memset(name, 'n', sizeof name);
        name[i == 2 ? 256 : 3] = 0;
        name[1] = i == 0 ? ' ' : i == 1 ? '\n' : 'n';
        assert_int_equal(weir_open(&w), WEIR_OK);
        assert_error(w, weir_param(w, name, WEIR_FLOAT32, 1, &one, NULL), WEIR_E_INVALID,
                     i == 0   ? "parameter 'n n': a name has 1 to 255 printable"
                     : i == 1 ? "parameter 'n?n': a name has 1 to 255 printable"
                              : "nnn': a name has 1 to 255 printable");
        weir_close(w);
    }
}

/* Statuses that a test cannot cause, such as that of a failing disk, have their own codes, too. */
static void test_each_status(void **state)
{
    static const struct {
        enum status st;
        int code;
    } codes[] = {
        {ST_OK, WEIR_OK},
        {ST_REFUSED, WEIR_E_REFUSED},
        {ST_MISMATCH, WEIR_E_REFUSED},
        {ST_UNAVAILABLE, WEIR_E_UNAVAILABLE},
        {ST_DEADLINE, WEIR_E_UNAVAILABLE},
        {ST_CANCELLED, WEIR_E_CANCELLED},
        {ST_NOMEM, WEIR_E_NOMEM},
        {ST_UNSUPPORTED, WEIR_E_UNSUPPORTED},
        {ST_PROTOCOL, WEIR_E_PROTOCOL},
        {ST_IO, WEIR_E_IO},
        {ST_FULL, WEIR_E_IO},
        {ST_INVALID, WEIR_E_INVALID},
        {ST_RANGE, WEIR_E_INVALID},
        {ST_NOT_FOUND, WEIR_E_INVALID},
        {ST_CORRUPT, WEIR_E_INVALID},
        {(enum status)1000, WEIR_E_INTERNAL},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        assert_int_equal(weir_errors_code_of(codes[i].st), codes[i].code);
}

/* A server sends an invalid reply to a request for a chunk. */
static void test_protocol(void **state)
{
    struct librig r;
    struct weir_step s;
    librig_open(&r, NULL);
    librig_step(&r, 0);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    tiny_set(&r.tiny, &r.tiny.kind, PIECE_WRONG_SHARD);
    librig_step(&r, 1);
    assert_error(r.w, weir_wait(r.w, 0, -1), WEIR_E_PROTOCOL, "does not own chunk");
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_PROTOCOL, "does not own chunk");
    assert_int_equal(weir_pull(r.w, 0), WEIR_E_PROTOCOL);
    librig_close(&r);
}

/* A server restarts in the same generation without its parameters. */
static void test_lost(void **state)
{
    struct librig r;
    librig_open(&r, NULL);
    struct tiny *t = &r.tiny;
    librig_step(&r, 0);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    tiny_stop(t);
    for (int c = 0; c < MODEL_CHUNKS; c++)
        t->version[c] = -1;
    tiny_start(t);
    int code;
    do /* the client notices some time later that the connection is closed */
        code = weir_wait(r.w, 0, 10);
    while (code == WEIR_OK || code == WEIR_AGAIN);
    assert_error(r.w, code, WEIR_E_UNAVAILABLE, "lost");
    librig_close(&r);
}

/* After a rollback weir_pull() requests no chunks of the old step. ps 0 does not answer
 * weir_leave_soon() in time, but receives the request later. */
static void test_late(void **state)
{
    struct librig r;
    struct weir_step s;
    librig_open(&r, NULL);
    struct tiny *t = &r.tiny;
    librig_step(&r, 0);
    assert_int_equal(weir_next_early(r.w, -1, &s), WEIR_OK);
    tiny_set(t, &t->hold, 1);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    tiny_go_back(t, 0);
    int code;
    do
        code = weir_pull(r.w, 0);
    while (code == WEIR_OK && weir_wait(r.w, 0, 10) != WEIR_REBASED);
    assert_int_equal(weir_pull(r.w, 0), WEIR_REBASED);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_REBASED);
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    tiny_set(t, &t->hold, 0);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, 0);
    tiny_stop(t);
    assert_int_equal(weir_leave_soon(r.w, 1), WEIR_AGAIN);
    tiny_start(t);
    tiny_await(t, &t->n_soon, 1);
    librig_close(&r);
}

int main(void)
{
    return RUN_TESTS(test_memory, test_descriptors, test_names, test_each_status, test_protocol,
                     test_lost, test_late);
}
