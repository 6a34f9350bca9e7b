/* worker/train/chance.c - compares figures with those of a guess, see chance.h.
 *
 * A guess among K classes has an accuracy of 1 / K, within the spread of n samples, and a softmax
 * cross-entropy of at least ln K; other losses have no such bound. A network that has just begun to
 * train has these figures, too, so they prove nothing before one pass over the data is complete. A
 * loss of several times ln K proves divergence even earlier, because only large and wrong outputs
 * cause it. */
#include "worker/train/chance.h"
#include "base/log.h"
#include <inttypes.h>
#include <math.h>

static const int64_t FEW_STEPS = 20, MANY_STEPS = 100;
static const double FAR = 2, VERY_FAR = 10; /* multiples of the loss of a guess */

enum chance chance_judge(const struct chance_figures *f)
{
    double guess = 1 / (double)f->classes, uniform = log((double)f->classes);
    if (f->loss_kind != LAYER_SOFTMAX_XENT || isnan(f->accuracy) || f->classes < 2 || f->n < 1 ||
        f->steps < FEW_STEPS)
        return CHANCE_BETTER;
    double spread = sqrt(guess * (1 - guess) / (double)f->n);
    int is_guess = f->accuracy <= guess + 2 * spread;
    int is_near = f->accuracy < guess + 0.1 * (1 - guess);
    int is_poor = f->accuracy < (1 + guess) / 2;
    if ((is_near && f->loss > FAR * uniform) || (is_poor && f->loss > VERY_FAR * uniform))
        return CHANCE_DIVERGED;
    int is_stuck = is_guess && f->loss > 0.99 * uniform && f->passes >= 1;
    int is_worse = is_near && f->loss > 1.1 * uniform && f->steps >= MANY_STEPS;
    return is_stuck || is_worse ? CHANCE_GUESS : CHANCE_BETTER;
}

void chance_warn(const struct chance_figures *f)
{
    double guess = 1 / (double)f->classes, uniform = log((double)f->classes);
    switch (chance_judge(f)) {
    case CHANCE_BETTER:
        return;
    case CHANCE_DIVERGED:
        LOG_W(
            "the loss, %.4g, is far above %.4g, the loss of a guess among the %d classes, at an accuracy of %.4f: training has diverged, and the result is useless; set a lower --learning_rate, and check that --mean and --std bring samples near 0",
            f->loss, uniform, f->classes, f->accuracy);
        return;
    case CHANCE_GUESS:
        LOG_W(
            "the result is at chance level: an accuracy of %.4f with %d classes, where a guess has %.4f, and a loss of %.4g, where a guess has %.4g, after %" PRId64
            " steps; try another --learning_rate, and check that labels belong to their samples",
            f->accuracy, f->classes, guess, f->loss, uniform, f->steps);
    }
}
