/* tests/worker_progress_test.c - the reported speed of training. */
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fake_time.h"
#include "worker/train/progress.h"
#include <math.h>
#include <string.h>

enum { BATCH = 100 };

static struct progress *begun_with(int64_t warm_up_images, int64_t log_every)
{
    struct progress_config cfg = {.style = PROGRESS_LINES,
                                  .train_steps = 1000,
                                  .log_every = log_every,
                                  .warm_up_images = warm_up_images,
                                  .unit = "images"};
    struct progress *p;
    assert_int_equal(progress_create(&cfg, &p), ST_OK);
    return p;
}

static struct progress *begun(int64_t warm_up_images)
{
    return begun_with(warm_up_images, 1);
}

/* Returns the line of a step that ends `ms` later. */
static const char *step(struct progress *p, int64_t ms, int64_t number)
{
    struct progress_point at = {number, number, 1.0f, number * BATCH, 0};
    fake_time_move(ms);
    capture_begin();
    progress_update(p, &at);
    capture_end();
    return capture_text;
}

static void check_end(struct progress *p, int64_t steps, double speed, int64_t without)
{
    int64_t left_out;
    assert_float_equal(progress_images_per_second(p, steps * BATCH, &left_out), speed, 1e-6);
    assert_int_equal(left_out, without);
    progress_destroy(p);
}

static void first_steps_are_left_out(void **state)
{
    struct progress *p = begun(2 * BATCH);
    assert_non_null(strstr(step(p, 9000, 1), " 11 images/s"));
    assert_non_null(strstr(step(p, 1000, 2), " 100 images/s"));
    assert_non_null(strstr(step(p, 500, 3), " 200 images/s"));
    assert_non_null(strstr(step(p, 500, 4), " 200 images/s"));
    fake_time_move(1000); /* the copy of the parameters to the host */
    check_end(p, 4, 100, 2 * BATCH);
}

static void several_steps_at_once(void **state)
{
    struct progress *p = begun(50 * BATCH);
    step(p, 60000, 32);
    step(p, 3200, 64);
    step(p, 3200, 96);
    check_end(p, 96, 1000, 64 * BATCH);
}

/* Totals that other programs read continue when training begins again. */
static void figures_continue_after_restart(void **state)
{
    struct figures f;
    struct figures_view v;
    figures_init(&f);
    figures_begin(&f, 3, BATCH, 500, 1000);
    fake_time_move(2000);
    figures_note(&f, 501, 2.0f, BATCH);
    fake_time_move(80);
    figures_note(&f, 505, NAN, 5 * BATCH); /* four steps, 20 ms each */
    figures_begin(&f, 3, BATCH, 503, 1000);
    fake_time_move(20000);
    figures_note(&f, 504, 1.0f, BATCH);
    figures_read(&f, &v);
    assert_int_equal(v.member, 3);
    assert_int_equal(v.global_step, 504);
    assert_int_equal(v.steps, 6);
    assert_int_equal(v.images, 6 * BATCH);
    assert_int_equal(v.n_nonfinite, 1);
    assert_int_equal(v.nonfinite_since, 0);
    assert_float_equal(v.seconds, 22.08, 1e-9);
    for (int i = 0; i <= FIGURES_BOUNDS; i++) /* durations 20 ms, 2 s, 20 s */
        assert_int_equal(v.taken[i], i == 4 ? 4 : i == 10 || i == 13 ? 1 : 0);
    struct figures_losses losses = {.n = 0};
    figures_move_losses(&f, &losses);
    assert_true(losses.n == 2 && losses.sum == 3.0);
}

/* Losses that are not finite are counted, and the first step of a series of them is recorded. A
 * huge loss is not part of a later sum. The time of the last step does not depend on when it is
 * read. */
static void nonfinite_losses_counted_apart(void **state)
{
    static const float loss[] = {NAN, INFINITY, 3e38f, NAN};
    struct figures f;
    struct figures_view v, later;
    struct figures_losses losses = {.n = 0};
    figures_init(&f);
    figures_begin(&f, 3, BATCH, 500, 1000);
    for (int i = 0; i < 2; i++)
        figures_note(&f, 501 + i, loss[i], (i + 1) * BATCH);
    figures_read(&f, &v);
    assert_true(v.n_nonfinite == 2 && v.nonfinite_since == 501);
    figures_note(&f, 503, loss[2], 3 * BATCH);
    figures_read(&f, &v);
    assert_true(v.n_nonfinite == 2 && v.nonfinite_since == 0);
    figures_move_losses(&f, &losses);
    assert_true(losses.n == 1 && losses.sum > 2e38);
    losses = (struct figures_losses){.n = 0};
    figures_note(&f, 504, 0.5f, 4 * BATCH);
    figures_note(&f, 505, loss[3], 5 * BATCH);
    figures_move_losses(&f, &losses);
    assert_true(losses.n == 1 && losses.sum == 0.5);
    figures_read(&f, &v);
    assert_true(v.n_nonfinite == 3 && v.nonfinite_since == 505);
    assert_true(v.moved_unix_s > 1e9);
    fake_time_move(5000);
    figures_read(&f, &later);
    assert_true(later.moved_unix_s == v.moved_unix_s);
}

static void short_run_counts_as_a_whole(void **state)
{
    struct progress *p = begun(50 * BATCH);
    step(p, 4000, 32);
    check_end(p, 32, 800, 0);
    p = begun(32 * BATCH);
    step(p, 4000, 32);
    check_end(p, 32, 800, 0);
}

static void nothing_is_left_out_on_a_cpu(void **state)
{
    struct progress *p = begun(0);
    assert_non_null(strstr(step(p, 9000, 1), " 11 images/s"));
    check_end(p, 1, 100 / 9.0, 0);
}

/* A slow-down shows in the next line, and does not change the later ones. */
static void line_has_speed_since_last_line(void **state)
{
    struct progress *p = begun_with(0, 2);
    step(p, 100, 1);
    assert_non_null(strstr(step(p, 100, 2), " 1000 images/s"));
    step(p, 1000, 3);
    assert_non_null(strstr(step(p, 1000, 4), " 100 images/s"));
    step(p, 100, 5);
    assert_non_null(strstr(step(p, 100, 6), " 1000 images/s"));
    check_end(p, 6, 250, 0);
}

/* The speed in the line excludes the first steps, which ended after the line before it. */
static void line_excludes_first_steps(void **state)
{
    struct progress *p = begun_with(2 * BATCH, 4);
    step(p, 2000, 1);
    step(p, 2000, 2);
    step(p, 500, 3);
    assert_non_null(strstr(step(p, 500, 4), " 200 images/s"));
    check_end(p, 4, 200, 2 * BATCH);
}

static struct progress *create_bar(void)
{
    struct progress_config cfg = {
        .style = PROGRESS_BAR, .train_steps = 3000, .log_every = 1, .unit = "samples"};
    struct progress *p;
    assert_int_equal(progress_create(&cfg, &p), ST_OK);
    return p;
}

/* The bar shows the epoch, and during a wait the awaited program instead of the time left. */
static void bar_shows_wait(void **state)
{
    struct progress_point at = {1, 1, 2.25f, BATCH, 2};
    capture_begin();
    struct progress *p = create_bar();
    fake_time_move(1000);
    progress_update(p, &at);
    capture_end();
    assert_non_null(
        strstr(capture_text, "] step 1/3000  epoch 2  loss 2.2500  100 samples/s  49:59 left"));
    fake_time_move(12000);
    capture_begin();
    progress_wait(p, "worker 1 (never joined)", 12345);
    capture_end();
    assert_non_null(
        strstr(capture_text, "] step 1/3000  waiting for worker 1 (never joined), 12 s so far"));
    assert_null(strstr(capture_text, "left"));
    char whom[STATUS_WAITING_BYTES];
    memset(whom, 'x', sizeof whom - 1);
    whom[sizeof whom - 1] = 0;
    capture_begin();
    progress_wait(p, whom, 13000);
    capture_end();
    assert_non_null(strstr(capture_text, "x..., 13 s"));
    fake_time_move(1000);
    capture_begin();
    progress_wait(p, NULL, 0);
    capture_end();
    assert_non_null(strstr(capture_text, " left"));
    progress_destroy(p);
}

/* Before the first step there is no loss; the first step after a wait is drawn at once. */
static void first_step_replaces_wait_in_bar(void **state)
{
    struct progress_point at = {1, 1, 2.25f, BATCH, 2};
    capture_begin();
    struct progress *p = create_bar();
    progress_wait(p, "ps:1 (a:2, no connection)", 4000);
    progress_wait(p, NULL, 0);
    capture_end();
    const char *last = strrchr(capture_text, '[');
    assert_non_null(last);
    assert_string_equal(strchr(last, ']'), "] step 0/3000");
    capture_begin();
    progress_wait(p, "ps:1 (a:2, no connection)", 5000);
    progress_update(p, &at);
    capture_end();
    assert_non_null(strstr(strrchr(capture_text, '['), "step 1/3000  epoch 2  loss"));
    progress_destroy(p);
}

static void speed_excludes_waits(void **state)
{
    struct progress_config cfg = {
        .style = PROGRESS_LINES, .train_steps = 3000, .log_every = 1, .unit = "samples"};
    struct progress_point at = {1, 1, 2.25f, 100, 0};
    struct progress *p;
    int64_t left_out;
    assert_int_equal(progress_create(&cfg, &p), ST_OK);
    fake_time_move(1000);
    capture_begin();
    progress_update(p, &at);
    capture_end();
    fake_time_move(60000);
    progress_wait(p, "worker 1 (never joined)", 59500);
    fake_time_move(40000);
    progress_wait(p, "worker 1 (never joined)", 99500);
    progress_wait(p, NULL, 0);
    fake_time_move(500); /* the second step lasted 0.5 s before the wait, and 0.5 s after it */
    at = (struct progress_point){2, 2, 2.25f, 200, 0};
    capture_begin();
    progress_update(p, &at);
    capture_end();
    assert_non_null(strstr(capture_text, "100 samples/s"));
    fake_time_move(10000);
    progress_wait(p, "worker 1 (never joined)",
                  30000); /* this wait began before the last step ended */
    fake_time_move(1000);
    at = (struct progress_point){3, 3, 2.25f, 300, 0};
    capture_begin();
    progress_update(p, &at);
    capture_end();
    assert_true(progress_images_per_second(p, 300, &left_out) == 150);
    assert_float_equal(progress_waited_seconds(p), 99.5 + 11, 1e-6);
    progress_destroy(p);
}

/* Slow steps have a line every 5 s, whatever log_every is, even without a bar. */
static void slow_steps_have_lines(void **state)
{
    struct progress_config cfg = {
        .style = PROGRESS_LINES, .train_steps = 3000, .log_every = 100, .unit = "samples"};
    struct progress *p;
    struct progress_lines lines;
    assert_int_equal(progress_create(&cfg, &p), ST_OK);
    capture_begin();
    for (int i = 1; i <= 13; i++) {
        fake_time_move(1000);
        progress_update(p, &(struct progress_point){i, i, 2.25f, 100 * i, 0});
    }
    progress_lines_begin(&lines);
    for (int i = 0; i <= 10; i++) {
        progress_lines_note(&lines, "samples evaluated", 250 * i, 2500);
        fake_time_move(2000);
    }
    capture_end();
    assert_int_equal(capture_lines(), 5);
    assert_non_null(strstr(capture_text, "training step 5 done"));
    assert_non_null(strstr(capture_text, "training step 10 done"));
    assert_non_null(strstr(capture_text, "750 of 2500 samples evaluated"));
    assert_non_null(strstr(capture_text, "2250 of 2500 samples evaluated"));
    progress_destroy(p);
}

/* The first step after a wait has a line, which shows that training continues. */
static void first_step_after_wait_has_line(void **state)
{
    struct progress *p = begun_with(0, 100);
    assert_string_equal(step(p, 100, 1), "");
    fake_time_move(6000);
    progress_wait(p, "worker 1 (no connection for 6 s)", 6000);
    progress_wait(p, NULL, 0);
    assert_non_null(strstr(step(p, 100, 2), "training step 2 done"));
    assert_string_equal(step(p, 100, 3), "");
    progress_destroy(p);
}

/* A worker with servers reports its part of a step: the step itself is done when the other workers'
 * parts have arrived, too. */
static void line_names_part_of_step(void **state)
{
    struct progress_config cfg = {.style = PROGRESS_LINES,
                                  .is_part = true,
                                  .train_steps = 1000,
                                  .log_every = 1,
                                  .unit = "images"};
    struct progress *p;
    assert_non_null(strstr(step(p = begun(0), 100, 1), "Worker 0: training step 1 done"));
    progress_destroy(p);
    assert_int_equal(progress_create(&cfg, &p), ST_OK);
    assert_non_null(strstr(step(p, 100, 1), "Worker 0: its part of training step 1 done"));
    progress_destroy(p);
}

/* A new generation began during the wait, and the step that waits is made again. It has no line
 * until the job has made it, which the next step shows. */
static void repeated_step_has_no_line(void **state)
{
    struct progress *p = begun_with(0, 100);
    assert_string_equal(step(p, 100, 1), "");
    fake_time_move(6000);
    progress_wait(p, "worker 1 (no connection for 6 s)", 6000);
    assert_string_equal(step(p, 25, 1), "");
    fake_time_move(54000);
    progress_wait(p, "worker 1 (no connection for 60 s)", 60025);
    assert_string_equal(step(p, 100, 1), "");
    assert_non_null(strstr(step(p, 100, 2), "training step 2 done"));
    progress_destroy(p);
}

static int clock_stop(void **state)
{
    fake_time_stop();
    return 0;
}

int main(void)
{
    return RUN_GROUP(
        clock_stop, NULL, first_steps_are_left_out, several_steps_at_once,
        figures_continue_after_restart, nonfinite_losses_counted_apart, short_run_counts_as_a_whole,
        nothing_is_left_out_on_a_cpu, line_has_speed_since_last_line, line_excludes_first_steps,
        bar_shows_wait, speed_excludes_waits, slow_steps_have_lines, first_step_after_wait_has_line,
        first_step_replaces_wait_in_bar, repeated_step_has_no_line, line_names_part_of_step);
}
