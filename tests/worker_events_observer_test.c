/* tests/worker_events_observer_test.c - the events that the observer of --logdir writes. */
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "worker/events/event_samples.h"
#include "worker/events/events.h"
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct events *ev;
static const struct trainer_observer *o;

/* Begins as a worker alone, or as one of several in lockstep, at a step. */
static void begin(int64_t step, int rank)
{
    static const struct model model;
    static const struct tower_plan towers;
    const struct events_config cfg = {.folder = folder_rig,
                                      .summary_steps = 5,
                                      .histogram_steps = 1,
                                      .graph = {.model = &model, .towers = &towers}};
    struct net_start start = {.step = step, .place = {.member = rank, .rank = rank}};
    assert_int_equal(events_create(&cfg, &ev), ST_OK);
    o = events_observer(ev);
    o->start(o->ctx, &start);
}

static void take_step(int64_t number, int is_last)
{
    const struct trainer_figures f = {.number = number,
                                      .global_step = number,
                                      .local_steps = number,
                                      .images = number,
                                      .is_last = is_last,
                                      .accuracy = NAN};
    o->wants_values(o->ctx, number - 1, 0);
    o->step(o->ctx, &f);
}

/* Counts the occurrences of a text in all written events. *step: step of the last such event, which
 * must be below 128. */
static int n_of(const char *text, int *step)
{
    static uint8_t all[100000];
    glob_t found;
    char pattern[100];
    int n_found = 0;
    size_t n = 0;
    snprintf(pattern, sizeof pattern, "%s/worker_*/events*", folder_rig);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *f = fopen(found.gl_pathv[i], "r");
        n += fread(all + n, 1, sizeof all - n, f);
        fclose(f);
    }
    globfree(&found);
    for (size_t at = 0; at < n;) {
        size_t length = all[at] | (size_t)all[at + 1] << 8;
        if (memmem(all + at, length + 16, text, strlen(text))) {
            n_found++;
            *step = all[at + 22];
        }
        at += length + 16;
    }
    return n_found;
}

static void last_step_written_when_training_ends_early(void **state)
{
    int step = 0;
    begin(0, 0);
    for (int i = 1; i <= 7; i++)
        take_step(i, 0);
    assert_int_equal(o->wants_values(o->ctx, 7, 1), 1);
    events_destroy(ev, 0);
    assert_int_equal(n_of("loss", &step), 2);
    assert_int_equal(step, 7);
    begin(7, 0);
    take_step(8, 0);
    events_destroy(ev, 1); /* the run failed */
    assert_int_equal(n_of("loss", &step), 3);
    assert_int_equal(step, 8);
    begin(8, 0);
    take_step(9, 1);
    take_step(9, 1); /* the other workers have their own pace */
    events_destroy(ev, 0);
    assert_int_equal(n_of("loss", &step), 4);
}

static void one_of_many_writes_parameters(void **state)
{
    const struct net_param param = {.name = "some/weights", .n_elems = 3};
    const struct crew crew = {0};
    const float value[3] = {1, 2, 3};
    struct trainer_values v = {.global_step = 3, .param = &param, .f = value, .crew = &crew};
    int step;
    for (int rank = 0; rank < 2; rank++) {
        begin(0, rank);
        v.is_gradient = false;
        o->values(o->ctx, &v);
        v.is_gradient = true;
        o->values(o->ctx, &v);
        events_destroy(ev, 0);
    }
    assert_int_equal(n_of("some/weights", &step), 3);
    assert_int_equal(n_of("some/weights/gradient", &step), 2);
}

static void samples_of_a_broken_evaluation_are_dropped(void **state)
{
    const struct dataset set = {.n = 900}, other = {.n = 10}; /* none of its samples are used */
    static const struct model model;
    struct trainer_config cfg = {.test = &set, .model = &model};
    struct tower tower = {.cfg = &cfg};
    struct event_samples s = {0};
    event_samples_clear(&s);
    for (int is_other = 0; is_other < 2; is_other++) {
        event_samples_collect(&s, &tower, 0, 250);
        event_samples_collect(&s, &tower, 250, 250);
        s.set = &set;
        s.sample[3].item = 300;
        event_samples_collect(&s, &tower, 500, 250);
        assert_int_equal(s.sample[3].item, 300);
        cfg.test = is_other ? &other : &set;
        event_samples_collect(&s, &tower, is_other ? 750 : 0, 250);
        assert_null(s.set);
        assert_int_equal(s.sample[3].item, -1);
    }
}

int main(void)
{
    return RUN_GROUP(folder_rig_make, folder_rig_remove, last_step_written_when_training_ends_early,
                     one_of_many_writes_parameters, samples_of_a_broken_evaluation_are_dropped);
}
