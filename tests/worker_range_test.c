/* tests/worker_range_test.c - detects two sets of different scales, however few or dark the samples
 * are. */
#include "tests/check.h"
#include "worker/data/dataset_range.h"

enum { WHOLE = 0, FLOATS = 1, FEW = 0, ENOUGH = 1 };

static void different_scales_detected(void **state)
{
    static const struct {
        struct dataset_range a, b;
        int fits;
    } pairs[] = {
        {{ENOUGH, WHOLE, 0, 1}, {ENOUGH, FLOATS, 0, 255}, 0},
        {{FEW, WHOLE, 0, 0.5f}, {ENOUGH, FLOATS, 0, 255}, 0}, /* bytes are at most 1 */
        {{ENOUGH, WHOLE, 0, 1}, {FEW, FLOATS, -200, 3}, 0},
        {{ENOUGH, WHOLE, 0, 0.0625f}, {ENOUGH, FLOATS, 0, 1}, 0}, /* 0 to 16 as bytes */
        {{FEW, WHOLE, 0, 0.0625f}, {ENOUGH, FLOATS, 0, 1}, 1},    /* a dark picture */
        {{ENOUGH, WHOLE, 0, 1}, {FEW, FLOATS, 0, 0.01f}, 1},
        {{ENOUGH, WHOLE, 0, 1}, {ENOUGH, FLOATS, 0, 1}, 1},
        {{ENOUGH, WHOLE, 0, 1}, {ENOUGH, FLOATS, -2.2f, 2.8f}, 1}, /* normalised beforehand */
        {{ENOUGH, WHOLE, 0, 1}, {ENOUGH, FLOATS, 0, 0}, 1},
        {{ENOUGH, FLOATS, 0, 1}, {ENOUGH, FLOATS, 0, 255}, 0},
        {{ENOUGH, FLOATS, 0, 1}, {FEW, FLOATS, -255, 0}, 0},
        {{FEW, FLOATS, 0, 1}, {ENOUGH, FLOATS, 0, 255}, 1},   /* dark pictures */
        {{ENOUGH, FLOATS, 0, 1}, {ENOUGH, FLOATS, 0, 90}, 1}, /* features may have such columns */
        {{ENOUGH, WHOLE, 0, 1}, {ENOUGH, WHOLE, 0, 257}, 0},  /* 16 bits and 8 */
        {{ENOUGH, WHOLE, 0, 1}, {ENOUGH, WHOLE, 0, 90}, 1},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (dataset_range_fits(&pairs[i].a, &pairs[i].b) != pairs[i].fits ||
            dataset_range_fits(&pairs[i].b, &pairs[i].a) != pairs[i].fits)
            fail_msg("pair %zu", i);
    }
}

static void numbers_are_as_typed(void **state)
{
    char text[DATASET_RANGE_TEXT_BYTES];
    assert_string_equal(dataset_range_text(&(struct dataset_range){1, 1, -0.5f, 120}, text),
                        "floats, from -0.5 to 120");
    assert_string_equal(dataset_range_text(&(struct dataset_range){1, 0, 0, 1}, text),
                        "whole numbers divided by 255, from 0 to 1");
}

int main(void)
{
    return RUN_TESTS(different_scales_detected, numbers_are_as_typed);
}
