/* tests/ps_rival_test.c - a second process asks for a member's place. It waits while the first
 * process has a stream, is refused when the first process proves to be alive, and gets the place of
 * a dead process. */
#include "net/exchange/session.h"
#include "ps/service/rival.h"
#include "tests/check.h"
#include <string.h>

#define MS INT64_C(1000000)
enum { FIRST = 11, SECOND = 12, STREAM = 5 };

static struct member running(void)
{
    return (struct member){.incarnation = FIRST, .spoke = 1, .stream = STREAM};
}

/* There is no rival if the same process asks again, no process has joined yet, or the first
 * process's stream has closed. */
static void place_is_free_without_a_rival(void **state)
{
    struct member m = running();
    assert_int_equal(rival_judge(&m, FIRST, 0, 1000 * MS), RIVAL_NONE);
    m.stream = 0;
    assert_int_equal(rival_judge(&m, SECOND, 999 * MS, 1000 * MS), RIVAL_NONE);
    m.incarnation = 0;
    assert_int_equal(rival_judge(&m, SECOND, 0, 1000 * MS), RIVAL_NONE);
}

/* A piece that was sent before the second process asked, or shortly after, proves nothing: the
 * first process may have died since. */
static void later_piece_proves_that_the_first_process_lives(void **state)
{
    struct member m = running();
    const int64_t came = 1000 * MS;
    assert_int_equal(rival_judge(&m, SECOND, came - MS, came), RIVAL_WAITS);
    for (int64_t ms = 500; ms < RIVAL_SPOKE_MS; ms += 500)
        assert_int_equal(rival_judge(&m, SECOND, came + ms * MS, came + ms * MS), RIVAL_WAITS);
    int64_t spoke = came + RIVAL_SPOKE_MS * MS;
    assert_int_equal(rival_judge(&m, SECOND, spoke, spoke + MS), RIVAL_LATE);
    assert_int_equal(rival_judge(&m, SECOND + 1, spoke, spoke + 2 * MS),
                     RIVAL_WAITS); /* a new rival */
    m.stream = 0;                  /* the first process has died */
    assert_int_equal(rival_judge(&m, SECOND, spoke, spoke + 2 * MS), RIVAL_NONE);
}

/* A process that computes a step for minutes sends nothing during it. */
static void open_stream_proves_that_the_first_process_lives(void **state)
{
    struct member m = running();
    const int64_t came = 1000 * MS;
    for (int64_t ms = 0; ms < RIVAL_OPEN_MS; ms += 2000)
        assert_int_equal(rival_judge(&m, SECOND, came - MS, came + ms * MS), RIVAL_WAITS);
    assert_int_equal(rival_judge(&m, SECOND, came - MS, came + RIVAL_OPEN_MS * MS), RIVAL_LATE);
}

/* Another process asks much later, when the first one may have died in between. */
static void later_rival_waits_again(void **state)
{
    struct member m = running();
    assert_int_equal(rival_judge(&m, SECOND, 0, 1000 * MS), RIVAL_WAITS);
    int64_t later = (1001 + RIVAL_PAUSE_MS + RIVAL_OPEN_MS) * MS;
    assert_int_equal(rival_judge(&m, SECOND + 1, later - MS, later), RIVAL_WAITS);
}

static void left_process_frees_its_place(void **state)
{
    struct member m = running();
    m.leaving = 1;
    assert_int_equal(rival_judge(&m, SECOND, 0, 1000 * MS), RIVAL_WAITS);
    for (int64_t ms = 1000; ms < 2 * RIVAL_OPEN_MS; ms += 1000)
        assert_int_equal(rival_judge(&m, SECOND, (1000 + ms) * MS, (1000 + ms) * MS), RIVAL_WAITS);
}

/* At the beginning of a generation no member has a stream: the process of the previous generation
 * has precedence. */
static void previous_process_has_precedence_between_generations(void **state)
{
    const int64_t gone = 1000 * MS, late = gone + RIVAL_KNOWN_MS * MS;
    struct member m = {.expected = FIRST, .joined = 1, .missing_ns = gone};
    assert_int_equal(rival_judge(&m, SECOND, 0, gone + MS), RIVAL_WAITS);
    assert_int_equal(rival_judge(&m, FIRST, 0, gone + MS), RIVAL_NONE);
    assert_int_equal(rival_judge(&m, SECOND, 0, late), RIVAL_NONE);
    m.leaving = 1; /* the member's place is free */
    assert_int_equal(rival_judge(&m, SECOND, 0, gone + MS), RIVAL_NONE);
    m = running();
    m.missing_ns = gone; /* stopped: its stream is closed */
    m.stream = 0;
    assert_int_equal(rival_is_known(&m, SECOND, gone + MS), 1);
    assert_int_equal(rival_is_known(&m, FIRST, gone + MS), 0);
    assert_int_equal(rival_is_known(&m, SECOND, late), 0);
}

/* During a long change the previous process asks repeatedly. It keeps its precedence all the time,
 * even over a slow link. */
static void repeated_requests_keep_the_precedence(void **state)
{
    const int64_t asked = 1000 * MS, round_trip_ms = 1000;
    struct member m = {.expected = FIRST, .missing_ns = asked};
    int64_t again = asked + (SESSION_MAX_BACKOFF_MS + round_trip_ms) * MS;
    assert_int_equal(rival_is_known(&m, SECOND, again), 1);
    assert_int_equal(rival_judge(&m, SECOND, 0, again), RIVAL_WAITS);
}

static void refusal_names_both_processes(void **state)
{
    struct member m = running();
    const struct net_join req = {.address = "gpu8"};
    char why[512], tight[40];
    strcpy(m.peer, "ipv4:10.0.0.7:5000");
    strcpy(m.address, "gpu7");
    rival_name(&m, 3, &req, "ipv4:10.0.0.8:5001", why, sizeof why);
    assert_string_equal(
        why, "another process is already worker 3: it runs at ipv4:10.0.0.7:5000 (gpu7), "
             "and this process at ipv4:10.0.0.8:5001 (gpu8); to train with both, "
             "start each with its own --task_index; if the other process hangs, kill it, or run "
             "weirctl remove-worker 3");
    m.address[0] = 0;
    rival_name(&m, 3, &(const struct net_join){0}, "ipv4:10.0.0.8:5001", tight, sizeof tight);
    assert_int_equal(strlen(tight), sizeof tight - 1);
}

int main(void)
{
    return RUN_TESTS(place_is_free_without_a_rival, later_piece_proves_that_the_first_process_lives,
                     open_stream_proves_that_the_first_process_lives, later_rival_waits_again,
                     left_process_frees_its_place,
                     previous_process_has_precedence_between_generations,
                     repeated_requests_keep_the_precedence, refusal_names_both_processes);
}
