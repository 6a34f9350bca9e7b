/* tests/member_waiting_test.c - when a wait gets a line. */
#include "member/waiting.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

static void lines_of_one_wait_become_rare(void **state)
{
    static const int64_t seconds[] = {3, 30, 60, 120, 240, 480};
    struct waiting_lines l = {.line_ms = 0};
    size_t n = 0;
    (void)state;
    for (int64_t s = 3; s < 600; s++)
        if (waiting_line_is_due(&l,
                                s % 2 ? "worker 1 (no connection for 9 s)"
                                      : "worker 1 (no connection for 10 s)",
                                s * 1000)) {
            assert_true(n < sizeof seconds / sizeof *seconds);
            assert_int_equal(s, seconds[n++]);
        }
    assert_int_equal(n, sizeof seconds / sizeof *seconds);
}

static void another_reason_gets_a_line_at_once(void **state)
{
    struct waiting_lines l = {.line_ms = 0};
    (void)state;
    assert_true(waiting_line_is_due(&l, "worker 1 (never joined)", 3000));
    assert_false(waiting_line_is_due(&l, "worker 1 (never joined)", 3500));
    assert_true(waiting_line_is_due(&l, "worker 1 (refused 0 s ago: another job)", 4000));
    assert_false(waiting_line_is_due(&l, "worker 1 (refused 12 s ago: another job)", 16000));
    assert_true(waiting_line_is_due(&l, "worker 1 (never joined)", 17000));
    assert_true(waiting_line_is_due(&l, "worker 1 (never joined)", 30000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_one_wait_become_rare),
        cmocka_unit_test(another_reason_gets_a_line_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
