/* tests/ps_consistency_test.c - the table of verdicts on pushes: each mode in each situation, and
 * properties that every verdict has for any numbers (I3, train_steps). */
#include "ps/store/consistency.h"
#include "tests/check.h"
#include <stdio.h>
#include <string.h>

static const char *const mode_names[] = {"sync", "backup", "async", "ssp"};
static const char letters[] = {[VERDICT_COUNT] = 'C',
                               [VERDICT_DUPLICATE] = 'D',
                               [VERDICT_STALE] = 'S',
                               [VERDICT_WAIT] = 'W',
                               [VERDICT_REFUSE] = 'R'};

enum { VERSION = 7, MEMBER = 2, N_COUNTED = 1 };

/* Pushes to a chunk at version 7. expect: the letter of the verdict in each mode: sync, backup,
 * async, ssp. */
static const struct row {
    const char *what;
    int64_t step, last_step;
    int same_process, awaits_answer;
    const char *expect;
} rows[] = {
    {"ahead, never counted", 8, -1, 0, 0, "RRRR"},
    {"ahead, counted", 8, 8, 1, 0, "RRRR"},
    {"ahead, waiting", 8, 8, 1, 1, "RRRR"},
    {"far ahead", INT64_MAX, 6, 1, 0, "RRRR"},

    {"present, never counted", 7, -1, 0, 0, "CCCC"},
    {"present, counted for the step before", 7, 6, 1, 0, "CCCC"},
    {"present, an earlier process counted for the step before", 7, 6, 0, 0, "CCCC"},
    {"present, counted, waits", 7, 7, 1, 1, "WWWW"},
    {"present, counted, waits no more", 7, 7, 1, 0, "WWDD"},
    {"present, an earlier process counted", 7, 7, 0, 0, "WWCC"},
    {"present, not counted, waits (for the next store)", 7, 6, 1, 1, "WWWW"},
    {"present, counted for a later step (cannot be)", 7, 8, 1, 0, "SSSS"},

    {"previous, never counted", 6, -1, 0, 0, "DSCC"},
    {"previous, counted for the step before", 6, 5, 1, 0, "DSCC"},
    {"previous, counted, waits", 6, 6, 1, 1, "DDWW"},
    {"previous, counted, was answered", 6, 6, 1, 0, "DDDD"},
    {"previous, an earlier process counted", 6, 6, 0, 0, "DDCC"},
    {"previous, counted for the present one since", 6, 7, 1, 0, "DSSS"},
    {"previous, an earlier process counted for the present one", 6, 7, 0, 0, "DSCC"},

    {"older, never counted", 3, -1, 0, 0, "SSCC"},
    {"older, counted for a step before", 3, 2, 1, 0, "SSCC"},
    {"older, counted, waits", 3, 3, 1, 1, "SDWW"},
    {"older, counted, was answered", 3, 3, 1, 0, "SDDD"},
    {"older, an earlier process counted", 3, 3, 0, 0, "SDCC"},
    {"older, counted for a later step since", 3, 5, 1, 0, "SSSS"},
    {"older, an earlier process counted for a later step", 3, 5, 0, 0, "SSCC"},
};

/* The same pushes when no further version is made: another verdict replaces COUNT, and all other
 * verdicts stay. */
static const struct limits {
    const char *what;
    int64_t last;
    char instead; /* verdict in place of COUNT */
} limits[] = {
    {"open", 100, 'C'},
    {"the next version is the last", VERSION + 1, 'C'},
    {"the job's last version is there", VERSION, 'S'},
};

static void each_cell_has_its_verdict(void **state)
{
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (int mode = 0; mode < CONSISTENCY_N_MODES; mode++) {
                const struct row *r = &rows[i];
                const struct consistency_push p = {.step = r->step,
                                                   .member = MEMBER,
                                                   .version = VERSION,
                                                   .last = limits[l].last,
                                                   .n_counted = N_COUNTED,
                                                   .last_step = r->last_step,
                                                   .same_process = r->same_process,
                                                   .awaits_answer = r->awaits_answer};
                struct verdict v = consistency_verdict((enum consistency_mode)mode, &p);
                char want = r->expect[mode] == 'C' ? limits[l].instead : r->expect[mode];
                if (letters[v.kind] != want)
                    fail_msg("%s, %s, %s: %c, not %c", mode_names[mode], limits[l].what, r->what,
                             letters[v.kind], want);
                static const int slots[] = {MEMBER, N_COUNTED, 0, 0};
                assert_int_equal(v.slot, v.kind == VERDICT_COUNT ? slots[mode] : 0);
            }
}

/* Checks the properties that hold for any numbers. */
static void check_rules(enum consistency_mode mode, const struct consistency_push *p)
{
    struct verdict v = consistency_verdict(mode, p);
    int paced = mode == CONSISTENCY_SYNC || mode == CONSISTENCY_BACKUP;
    assert_int_equal(v.kind == VERDICT_REFUSE, p->step > p->version);
    if (v.kind != VERDICT_COUNT)
        return;
    assert_true(p->version < p->last);
    assert_false(p->awaits_answer);
    if (paced)
        assert_true(p->step == p->version && p->last_step != p->step);
    else
        assert_false(p->same_process && p->step <= p->last_step);
}

static void verdicts_keep_the_invariants(void **state)
{
    long n = 0;
    for (int64_t i = 0; i < 4 * 6 * 7 * 7 * 7 * 4; i++) {
        int64_t k = i;
        struct consistency_push p = {.member = 1, .n_counted = 1};
        enum consistency_mode mode = (enum consistency_mode)(k % 4);
        k /= 4;
        p.step = k % 6, k /= 6;
        p.version = k % 7 - 1, k /= 7;
        p.last = k % 7, k /= 7;
        p.last_step = k % 7 - 1, k /= 7;
        p.same_process = k % 2 && p.last_step >= 0;
        p.awaits_answer = k / 2 % 2;
        check_rules(mode, &p);
        n++;
    }
    print_message("%ld pushes\n", n);
}

static void ssp_limit_follows_the_lowest_clock(void **state)
{
    assert_int_equal(consistency_limit(3, 2, 0), 5);
    assert_int_equal(consistency_limit(3, 0, 4), 7);
    assert_int_equal(consistency_limit(INT64_MAX, 2, 4), INT64_MAX);
}

static void job_modes_map_to_consistency_modes(void **state)
{
    static const struct net_job jobs[] = {
        {.n_workers = 3, .sync_mode = JOB_SYNC},
        {.n_workers = 3, .sync_mode = JOB_SYNC, .aggregate = 2},
        {.n_workers = 3, .sync_mode = JOB_ASYNC},
        {.n_workers = 3, .sync_mode = JOB_SSP},
    };
    for (int i = 0; i < CONSISTENCY_N_MODES; i++)
        assert_int_equal(consistency_mode_of(&jobs[i]), i);
    const struct net_job all = {.n_workers = 3, .sync_mode = JOB_SYNC, .aggregate = 3};
    assert_int_equal(consistency_mode_of(&all), CONSISTENCY_SYNC);
}

int main(void)
{
    return RUN_TESTS(each_cell_has_its_verdict, verdicts_keep_the_invariants,
                     ssp_limit_follows_the_lowest_clock, job_modes_map_to_consistency_modes);
}
