/* tests/libweir_events_test.c - the events that a polling program receives from libweir, with small
 * servers in the same process. */
#include "tests/libweir_rig.h"
#include <stdlib.h>

static void *events_main(void *arg)
{
    struct librig *r = arg;
    struct weir_event e;
    int *n = calloc(8, sizeof *n);
    do {
        e = librig_next_event(r);
        n[e.kind]++;
    } while (e.kind != WEIR_EVENT_STOPPED);
    return n;
}

/* A polling program receives a generation's end, and an error, before any call waits for them. */
static void test_events_of_ends(void **state)
{
    struct librig r;
    struct weir_event e;
    struct tiny *t = &r.tiny;
    librig_open(&r, NULL);
    librig_step(&r, 0);
    assert_int_equal(librig_next_event(&r).kind, WEIR_EVENT_BEGAN);
    assert_int_equal(librig_next_event(&r).kind, WEIR_EVENT_READY);
    tiny_go_back(t, 1);
    librig_step(&r, 1);
    e = librig_next_event(&r);
    assert_int_equal(e.kind, WEIR_EVENT_REBASED);
    assert_int_equal(e.generation, 1);
    assert_int_equal(weir_next_event(r.w, &e), WEIR_AGAIN);
    tiny_set(t, &t->kind, PIECE_REFUSED);
    librig_step(&r, 1);
    e = librig_next_event(&r);
    assert_int_equal(e.kind, WEIR_EVENT_BEGAN);
    assert_int_equal(e.generation, 2);
    e = librig_next_event(&r);
    assert_int_equal(e.kind, WEIR_EVENT_STOPPED);
    assert_int_equal(e.code, WEIR_E_REFUSED);
    assert_error(r.w, weir_wait(r.w, 0, -1), WEIR_E_REFUSED, "tiny does not like it");
    librig_close(&r);
}

/* A thread reads all events while another trains, through two generations. */
static void test_events_beside(void **state)
{
    struct librig r;
    struct weir_step s;
    pthread_t thread;
    int *n;
    librig_open(&r, NULL);
    assert_int_equal(pthread_create(&thread, NULL, events_main, &r), 0);
    for (int i = 0; i < 6; i++)
        librig_step(&r, i);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    tiny_go_back(&r.tiny, 3);
    while (weir_next_early(r.w, -1, &s) == WEIR_OK) {
        int code = weir_wait(r.w, 0, -1);
        assert_true(code == WEIR_OK || code == WEIR_REBASED);
        assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    }
    pthread_join(thread, (void **)&n);
    assert_in_range(n[WEIR_EVENT_BEGAN], 1, 2); /* a late thread receives a single event */
    assert_int_equal(n[WEIR_EVENT_REBASED], 1);
    assert_true(n[WEIR_EVENT_READY] > 0);
    free(n);
    librig_assert_values(&r, 10);
    librig_close(&r);
}

int main(void)
{
    return RUN_TESTS(test_events_of_ends, test_events_beside);
}
