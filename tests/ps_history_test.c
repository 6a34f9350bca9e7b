/* tests/ps_history_test.c - the history of a job, stored in a limited number of points, and the
 * reports of workers for it. */
#include "net/wire/report.h"
#include "ps/monitor/history.h"
#include "tests/check.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In a history of any length the sums of all points are exact, and all points but the last cover
 * equal times. */
static void merged_points_keep_the_sums(void **state)
{
    static struct history h;
    const int n = 5 * HISTORY_POINTS + 3;
    for (int i = 0; i < n; i++) {
        const struct history_point p = {i + 1.0, 1, i, 0.5, 1, 10};
        history_add(&h, &p);
        assert_in_range(h.n, 1, HISTORY_POINTS);
    }
    double seconds = 0, loss = 0;
    int64_t samples = 0, n_losses = 0;
    for (int i = 0; i < h.n; i++) {
        const struct history_point *p = &h.point[i];
        seconds += p->seconds;
        loss += p->loss_sum;
        samples += p->samples;
        n_losses += p->n_losses;
        assert_int_equal(p->step + 1, (int64_t)p->unix_s);
        if (i + 1 < h.n)
            assert_int_equal((int)p->seconds, h.n_each);
    }
    assert_int_equal(h.n_each, 8);
    assert_true(seconds == n && loss == 0.5 * n && samples == 10 * n && n_losses == n);
    assert_int_equal(h.point[h.n - 1].step, n - 1);
}

static const struct net_report good = {3, 77, 1000, 900, 90000, 60000, 45, 1234.5, 998, 1 << 20};

static enum status again(const struct net_report *r, struct net_report *out)
{
    uint8_t *data = NULL;
    size_t bytes = 0;
    char why[MESSAGE_WHY_BYTES];
    assert_int_equal(message_report_pack(r, &data, &bytes), ST_OK);
    enum status st = message_report_unpack(data, bytes, out, why);
    free(data);
    return st;
}

static void report_is_read_back(void **state)
{
    struct net_report got, bad[6] = {good, good, good, good, good, good};
    assert_int_equal(again(&good, &got), ST_OK);
    assert_true(got.member == good.member && got.life == good.life && got.step == good.step);
    assert_true(got.steps == good.steps && got.images == good.images && got.ms == good.ms);
    assert_true(got.n_losses == good.n_losses && got.loss_sum == good.loss_sum);
    assert_int_equal(got.memory_bytes, good.memory_bytes);
    assert_int_equal(got.nonfinite_since, good.nonfinite_since);
    bad[0].member = JOB_MAX_WORKERS;
    bad[1].loss_sum = (double)INFINITY;
    bad[2].images = -1;
    bad[3].life = 0;
    bad[4].n_losses = REPORT_MAX_LOSSES + 1; /* their sums would overflow */
    bad[5].loss_sum = 46 * (double)FLT_MAX;
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(again(&bad[i], &got), ST_INVALID);
}

int main(void)
{
    return RUN_TESTS(merged_points_keep_the_sums, report_is_read_back);
}
