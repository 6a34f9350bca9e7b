/* tests/worker_reading_test.c - the log lines and the bar of a slow read. */
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fake_time.h"
#include "worker/data/reading.h"

/* Returns the output `ms` later. */
static const char *at(struct reading *r, int64_t ms, double done, double all)
{
    fake_time_move(ms);
    capture_begin();
    reading_at(r, done, all);
    capture_end();
    return capture_text;
}

static void log_gets_line_every_few_seconds(void **state)
{
    struct reading r;
    reading_begin(&r, PROGRESS_LINES, "x.npy", "checksum", "GB");
    assert_string_equal(at(&r, 4999, 1, 100), "");
    assert_non_null(strstr(at(&r, 1, 10, 100),
                           "reading x.npy (checksum): 10.0 of 100.0 GB, 2.00 GB/s, 45 s left\n"));
    assert_int_equal(capture_lines(), 1);
    assert_string_equal(at(&r, 4999, 11, 100), "");
    assert_non_null(strstr(at(&r, 1, 50, 100), ": 50.0 of 100.0 GB, 5.00 GB/s, 10 s left\n"));
    reading_end(&r);
    reading_begin(&r, PROGRESS_LINES, "pictures/train", "decoding", "pictures");
    assert_non_null(strstr(at(&r, 5000, 1500, 0),
                           "reading pictures/train (decoding): 1500 pictures, 300 pictures/s\n"));
    reading_end(&r);
}

static void terminal_gets_bar(void **state)
{
    struct reading r;
    reading_begin(&r, PROGRESS_BAR, "x.npy", "checksum", "GB");
    assert_string_equal(at(&r, 999, 1, 4), "");
    assert_string_equal(at(&r, 1, 1, 4), "\r\033[K[####............] checksum  1.0 of 4.0 "
                                         "GB, 1.00 GB/s, 3 s left");
    assert_string_equal(at(&r, 99, 2, 4), ""); /* a bar is drawn ten times a second */
    assert_non_null(strstr(at(&r, 1, 2, 4), "[########........] checksum  2.0 of 4.0 GB"));
    capture_begin();
    reading_end(&r);
    capture_end();
    assert_string_equal(capture_text, "\n");
}

/* No part of a bar is left, not even an empty line. */
static void short_read_prints_nothing(void **state)
{
    static const enum progress_style styles[] = {PROGRESS_BAR, PROGRESS_LINES};
    struct reading r;
    for (int i = 0; i < 2; i++) {
        reading_begin(&r, styles[i], "x.npy", "checksum", "GB");
        assert_string_equal(at(&r, 900, 4, 4), "");
        capture_begin();
        reading_end(&r);
        capture_end();
        assert_string_equal(capture_text, "");
    }
}

static int stop_clock(void **state)
{
    fake_time_stop();
    return 0;
}

static int release_clock(void **state)
{
    fake_time_release();
    return 0;
}

int main(void)
{
    return RUN_GROUP(stop_clock, release_clock, log_gets_line_every_few_seconds, terminal_gets_bar,
                     short_read_prints_nothing);
}
