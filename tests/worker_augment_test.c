/* tests/worker_augment_test.c - compares augmented samples with a plain implementation, pixel by
 * pixel. The random changes depend only on seed, pass and item, so any number of towers and workers
 * reads the same samples. */
#include "base/rng.h"
#include "tests/check.h"
#include "tests/trainer_rig.h"
#include "worker/data/augment.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 12, MOST = 3 * MOST_SIDE * MOST_SIDE };

static const struct job_augment kinds[] = {
    {.flip = 1},  {.shift = 2},           {.crop = 3},
    {.crop = 4},  {.cutout = 1},          {.cutout = 4},
    {.shift = 4}, {.flip = 1, .crop = 4}, {.flip = 1, .shift = 4, .crop = 4, .cutout = 3},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* A picture of one channel, with numbers in double; pixels outside of it are zeros. */
struct picture {
    int height, width;
    double at[3 * MOST_SIDE][3 * MOST_SIDE];
};

static double pixel_of(const struct picture *p, int64_t y, int64_t x)
{
    return y >= 0 && y < p->height && x >= 0 && x < p->width ? p->at[y][x] : 0;
}

static struct picture moved(const struct picture *p, int64_t dy, int64_t dx)
{
    struct picture out = {p->height, p->width, {{0}}};
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++)
            out.at[y][x] = pixel_of(p, y + dy, x + dx);
    return out;
}

/* Crops as the documentation defines it: pads by n on each side, then cuts a window. */
static struct picture cropped(const struct picture *p, int n, int64_t dy, int64_t dx)
{
    struct picture padded = {p->height + 2 * n, p->width + 2 * n, {{0}}}, out = *p;
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++)
            padded.at[y + n][x + n] = p->at[y][x];
    assert_in_range(dy + n, 0, 2 * n);
    assert_in_range(dx + n, 0, 2 * n);
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++)
            out.at[y][x] = pixel_of(&padded, y + dy + n, x + dx + n);
    return out;
}

static struct picture reference(const struct picture *p, const struct job_augment *a,
                                const struct augment_draw *d)
{
    struct picture out = moved(p, d->shift[0], d->shift[1]);
    out = cropped(&out, a->crop, d->crop[0], d->crop[1]);
    for (int y = 0; d->flip && y < out.height; y++)
        for (int x = 0; x < out.width / 2; x++) {
            double swap = out.at[y][x];
            out.at[y][x] = out.at[y][out.width - 1 - x];
            out.at[y][out.width - 1 - x] = swap;
        }
    for (int64_t y = d->cut[0][0]; y < d->cut[0][1]; y++)
        for (int64_t x = d->cut[1][0]; x < d->cut[1][1]; x++)
            out.at[y][x] = 0;
    return out;
}

static void check_item(const struct shape *s, const struct job_augment *a, int64_t item)
{
    uint8_t bytes[MOST], bytes_out[MOST + 1];
    float floats[MOST], floats_out[MOST + 1];
    int height = (int)s->dim[1], width = (int)s->dim[2], elems = (int)shape_elems(s);
    const struct augment_draw d = augment_draw(a, s, 5, 2, item);
    for (int k = 0; k < elems; k++) {
        bytes[k] = (uint8_t)(1 + rng_below(rng_key(1, RNG_TEST, (uint64_t)item), (uint64_t)k, 255));
        floats[k] = (float)bytes[k] - 128.5f;
    }
    bytes_out[elems] = 77;
    floats_out[elems] = 77;
    augment_apply(&d, s, 1, bytes, bytes_out);
    augment_apply(&d, s, 4, floats, floats_out);
    for (int c = 0; c < s->dim[0]; c++) {
        struct picture p = {height, width, {{0}}}, q = p;
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++) {
                p.at[y][x] = bytes[(c * height + y) * width + x];
                q.at[y][x] = (double)floats[(c * height + y) * width + x];
            }
        p = reference(&p, a, &d);
        q = reference(&q, a, &d);
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++) {
                int k = (c * height + y) * width + x;
                assert_true((double)bytes_out[k] == p.at[y][x]);
                assert_true((double)floats_out[k] == q.at[y][x]);
            }
    }
    assert_true(bytes_out[elems] == 77 && floats_out[elems] == 77);
}

static void augmented_pictures_match_plain_ones(void **state)
{
    static const struct shape shapes[] = {{3, {1, 12, 12}}, {3, {3, 5, 8}}, {3, {2, 9, 5}}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int k = 0; k < N_KINDS; k++)
            for (int64_t item = 0; item < 40; item++)
                check_item(&shapes[s], &kinds[k], item);
}

/* Each allowed value is drawn, and no other value. The centre of a cutout may lie one pixel outside
 * the picture. */
static void draws_cover_allowed_values_evenly(void **state)
{
    enum { DRAWS = 6000, SIDE_Y = 7, SIDE_X = 9 };
    static const struct shape s = {3, {1, SIDE_Y, SIDE_X}};
    const struct job_augment a = {1, 2, 3, 4};
    int flips = 0, shifts[2][5] = {{0}}, crops[2][7] = {{0}}, areas[SIDE_Y + 1][SIDE_X + 1] = {{0}};
    for (int64_t item = 0; item < DRAWS; item++) {
        const struct augment_draw d = augment_draw(&a, &s, 1, 0, item);
        flips += d.flip;
        for (int i = 0; i < 2; i++) {
            assert_in_range(d.shift[i] + 2, 0, 4);
            assert_in_range(d.crop[i] + 3, 0, 6);
            assert_in_range(d.cut[i][0], 0, s.dim[1 + i] - 1);
            assert_in_range(d.cut[i][1], d.cut[i][0] + 1, s.dim[1 + i]);
            shifts[i][d.shift[i] + 2]++;
            crops[i][d.crop[i] + 3]++;
        }
        areas[d.cut[0][1] - d.cut[0][0]][d.cut[1][1] - d.cut[1][0]]++;
    }
    assert_in_range(flips, DRAWS * 4 / 10, DRAWS * 6 / 10);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 5; k++)
            assert_in_range(shifts[i][k], DRAWS * 8 / 50, DRAWS * 12 / 50);
        for (int k = 0; k < 7; k++)
            assert_in_range(crops[i][k], DRAWS * 8 / 70, DRAWS * 12 / 70);
    }
    assert_true(areas[4][4] > 0 && areas[2][4] > 0 && areas[4][3] > 0 && areas[2][2] > 0);
    assert_int_equal(areas[1][4], 0); /* half of the cutout is always inside */
}

static int same(const struct augment_draw *a, const struct augment_draw *b)
{
    return a->flip == b->flip && memcmp(a->shift, b->shift, sizeof a->shift) == 0 &&
           memcmp(a->crop, b->crop, sizeof a->crop) == 0 &&
           memcmp(a->cut, b->cut, sizeof a->cut) == 0;
}

/* The order of the calls does not matter. Another item, pass or seed leads to other values. */
static void draws_depend_on_seed_pass_item_only(void **state)
{
    enum { ITEMS = 300 };
    static const struct shape s = {3, {1, 28, 28}};
    const struct job_augment a = {1, 4, 4, 8};
    struct augment_draw first[ITEMS];
    int items = 0, passes = 0, seeds = 0;
    for (int64_t i = 0; i < ITEMS; i++)
        first[i] = augment_draw(&a, &s, 9, 3, i);
    for (int64_t i = ITEMS - 1; i >= 0; i--) {
        struct augment_draw d = augment_draw(&a, &s, 9, 3, i);
        assert_true(same(&d, &first[i]));
        items += i > 0 && same(&d, &first[i - 1]);
        d = augment_draw(&a, &s, 9, 4, i);
        passes += same(&d, &first[i]);
        d = augment_draw(&a, &s, 10, 3, i);
        seeds += same(&d, &first[i]);
    }
    assert_true(items < 3 && passes < 3 && seeds < 3);
    const struct job_augment flips = {
        .flip = 1}; /* another kind of change does not alter the draws of this one */
    for (int64_t i = 0; i < ITEMS; i++)
        assert_int_equal(augment_draw(&flips, &s, 9, 3, i).flip, first[i].flip);
}

/* Samples that a backend received, by their positions. */
enum { STEPS = 30, BATCH = 12, POSITIONS = STEPS * BATCH };
static struct {
    pthread_mutex_t lock; /* guards the fields below */
    uint8_t image[POSITIONS][SIDE * SIDE];
    int n[POSITIONS];
} given = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum status take_input(struct plan *p, const uint8_t *const *images, const uint8_t *labels,
                              const uint64_t *position, int n)
{
    p->mean = 1;
    p->n = n;
    pthread_mutex_lock(&given.lock);
    for (int i = 0; i < n && !p->cfg.inference_only; i++) {
        assert_true(position[i] < POSITIONS);
        memcpy(given.image[position[i]], images[i], SIDE * SIDE);
        given.n[position[i]]++;
    }
    pthread_mutex_unlock(&given.lock);
    return ST_OK;
}

/* Runs the job's steps from step `first`, with so many workers of so many towers each. Records the
 * samples that the backend receives in `given`. */
static void train(int n_workers, int n_towers, int first)
{
    struct backend taking = fake_backend;
    taking.set_input = take_input;
    memset(given.n, 0, sizeof given.n);
    for (int task = 0; task < n_workers; task++) {
        struct rig r;
        struct trainer_result result;
        rig_make(&r, task, n_workers, n_towers, BATCH / n_workers);
        trainer_destroy(r.trainer);
        for (int i = 0; i < n_towers; i++)
            r.towers[i].own.backend = &taking;
        for (int i = 0; i < N_ITEMS * SIDE * SIDE; i++)
            r.images[i] = (uint8_t)(1 + i);
        r.cfg.augment = (struct job_augment){.flip = 1, .shift = 1};
        r.cfg.train_steps = STEPS;
        r.start.step = first;
        r.start.place.first_step = 0;
        assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        rig_free(&r);
    }
    for (int at = 0; at < POSITIONS; at++)
        assert_int_equal(given.n[at], at >= first * BATCH);
}

/* Runs 6 passes over 60 items with 1 or 3 workers, with several numbers of towers, and from the
 * first step or a later step. */
static void any_workers_and_towers_read_same_samples(void **state)
{
    static const struct {
        int n_workers, n_towers, first;
    } ways[] = {{1, 1, 0}, {1, 4, 0}, {3, 1, 0}, {3, 2, 0}, {1, 1, 17}, {3, 2, 11}};
    static uint8_t want[POSITIONS][SIDE * SIDE];
    int changed = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        train(ways[w].n_workers, ways[w].n_towers, ways[w].first);
        if (w == 0)
            memcpy(want, given.image, sizeof want);
        assert_memory_equal(given.image[ways[w].first * BATCH], want[ways[w].first * BATCH],
                            sizeof want - (size_t)ways[w].first * BATCH * sizeof *want);
    }
    for (int at = 0; at < POSITIONS; at++) /* an unchanged image has consecutive numbers */
        changed += want[at][1] != (uint8_t)(want[at][0] + 1);
    assert_true(changed > POSITIONS / 2);
}

static void augment_text_round_trips(void **state)
{
    static const char *const bad[] = {"",
                                      ",",
                                      "flip,",
                                      ",flip",
                                      "flip,flip",
                                      "flip:1",
                                      "shift",
                                      "shift:",
                                      "shift:0",
                                      "crop:x",
                                      "crop:2x",
                                      "crop:-1",
                                      "shift:65536",
                                      "cutout:99999999999",
                                      "Flip",
                                      "flop",
                                      "shift:1,shift:2",
                                      "shift:2 "};
    static const struct {
        const char *text, *again;
    } good[] = {{"flip", "flip"},
                {"crop:4,flip", "flip,crop:4"},
                {"cutout:65535,crop:3,shift:02,flip", "flip,shift:2,crop:3,cutout:65535"},
                {"cutout:8", "cutout:8"}};
    struct job_augment a = {1, 2, 3, 4};
    char text[JOB_AUGMENT_BYTES];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (job_input_augment_parse(bad[i], &a))
            fail_msg("taken: '%s'", bad[i]);
    assert_true(a.flip == 1 && a.cutout == 4); /* unchanged */
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(job_input_augment_parse(good[i].text, &a));
        assert_string_equal(job_input_augment_text(&a, text), good[i].again);
        assert_true(job_input_augments(&a));
    }
    a = (struct job_augment){1, JOB_MAX_AUGMENT, JOB_MAX_AUGMENT, JOB_MAX_AUGMENT};
    assert_true(job_input_augment_parse(job_input_augment_text(&a, text), &a));
    a = (struct job_augment){0};
    assert_string_equal(job_input_augment_text(&a, text), "");
    assert_false(job_input_augments(&a));
}

int main(void)
{
    return RUN_TESTS(augmented_pictures_match_plain_ones, draws_cover_allowed_values_evenly,
                     draws_depend_on_seed_pass_item_only, any_workers_and_towers_read_same_samples,
                     augment_text_round_trips);
}
