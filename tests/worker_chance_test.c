/* tests/worker_chance_test.c - detects a network that only guesses. The loss of a guess among K
 * classes is known for softmax with cross-entropy only: ln K. */
#include "base/status.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/train/chance.h"
#include <math.h>
#include <string.h>

static const struct chance_figures guess = {.loss_kind = LAYER_SOFTMAX_XENT,
                                            .accuracy = 0.1,
                                            .loss = 2.3026,
                                            .classes = 10,
                                            .n = 1000,
                                            .steps = 200,
                                            .passes = 2};

static void loss_of_a_guess_is_judged_by_ln_k(void **state)
{
    struct chance_figures f = guess;
    assert_int_equal(chance_judge(&f), CHANCE_GUESS);
    assert_int_equal((CAPTURE((chance_warn(&f), ST_OK))), ST_OK);
    assert_non_null(strstr(capture_text, "a loss of 2.303, where a guess has 2.303"));
    f.loss = 513;
    assert_int_equal(chance_judge(&f), CHANCE_DIVERGED);
    f.loss = 1.9;
    assert_int_equal(chance_judge(&f), CHANCE_BETTER);
    f.loss = 2.3026;
    f.passes = 0.5;
    assert_int_equal(chance_judge(&f), CHANCE_BETTER);
}

/* The binary losses of ten outputs, each at one half, sum to 10 ln 2; a squared error has no
 * relation to ln K. */
static void other_losses_never_warned_of(void **state)
{
    static const struct {
        enum layer_kind kind;
        double loss;
    } others[] = {{LAYER_SIGMOID_XENT, 6.93},
                  {LAYER_SIGMOID_XENT, 30},
                  {LAYER_SQUARED, 2.31},
                  {LAYER_SQUARED, 500}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct chance_figures f = guess;
        f.loss_kind = others[i].kind;
        f.loss = others[i].loss;
        assert_int_equal(chance_judge(&f), CHANCE_BETTER);
        assert_int_equal((CAPTURE((chance_warn(&f), ST_OK))), ST_OK);
        assert_string_equal(capture_text, "");
    }
}

int main(void)
{
    return RUN_TESTS(loss_of_a_guess_is_judged_by_ln_k, other_losses_never_warned_of);
}
