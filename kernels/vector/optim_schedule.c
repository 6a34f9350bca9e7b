/* kernels/vector/optim_schedule.c - the learning rate, which depends only on the step and the
 * settings. All servers must compute the same bits on every machine, but the results of libm's
 * functions may differ between machines. So sine, logarithm and exponential are computed here in
 * double with the four basic operations. */
#include "kernels/vector/optim.h"

const char *optim_schedule_name(enum optim_schedule schedule)
{
    static const char *const names[SCHEDULE_N_KINDS] = {
        "constant", "linear", "cosine", "step", "exponential", "one_cycle", "one_cycle_linear"};
    return (unsigned)schedule < SCHEDULE_N_KINDS ? names[schedule] : "?";
}

static const double pi = 3.14159265358979323846;
static const double ln2 = 0.69314718055994530942;

/* Returns sin(x), 0 <= x <= pi / 4, by Taylor's series. The last two bits may be inexact. */
static double sine(double x)
{
    double sum = 0, square = x * x;
    for (int k = 19; k >= 3; k -= 2)
        sum = (1 - sum) * square / (k * (k - 1));
    return x * (1 - sum);
}

static double cosine(double x)
{
    double sum = 0, square = x * x;
    for (int k = 18; k >= 2; k -= 2)
        sum = (1 - sum) * square / (k * (k - 1));
    return 1 - sum;
}

/* Returns cos(pi t), t between 0 and 1. */
static double cosine_of_turn(double t)
{
    if (t > 0.5)
        return -cosine_of_turn(1 - t);
    return t > 0.25 ? sine(pi * (0.5 - t)) : cosine(pi * t);
}

/* Returns ln(x), 0 < x <= 1. */
static double logarithm(double x)
{
    double halvings = 0, sum = 0;
    for (; x < 0.75; x *= 2)
        halvings++;
    double s = (x - 1) / (x + 1), square = s * s;
    for (int k = 27; k >= 1; k -= 2)
        sum = sum * square + 1.0 / k;
    return 2 * s * sum - halvings * ln2;
}

/* Returns e^x, x <= 0. */
static double exponential(double x)
{
    double sum = 1;
    if (x < -700)
        return 0;
    int halvings = (int)(-x / ln2);
    x += halvings * ln2; /* a number between -ln2 and 0 */
    for (int k = 20; k >= 1; k--)
        sum = 1 + x / k * sum;
    for (; halvings > 0; halvings--)
        sum *= 0.5;
    return sum;
}

/* Returns the factor of a decaying schedule after `before` updates. */
static double decayed(const struct optim_config *cfg, uint64_t before)
{
    double left = 1;
    if (cfg->schedule == SCHEDULE_EXPONENTIAL && cfg->lr_decay_steps > 0)
        return exponential(logarithm((double)cfg->lr_decay) * (double)before /
                           (double)cfg->lr_decay_steps);
    for (int i = 0; cfg->schedule == SCHEDULE_STEP && i < cfg->n_boundaries; i++)
        left *= before >= cfg->boundary[i] ? (double)cfg->lr_decay : 1;
    return left;
}

/* Returns the factor of one_cycle after `before` updates, below total_steps. `part` runs from 0 to
 * 1 in each of the two phases. */
static double one_cycle(const struct optim_config *cfg, double before)
{
    const double low = 1.0 / 25, last = low / 1e4, end = (double)cfg->total_steps - 1;
    double top = (cfg->warmup_steps > 0 ? (double)cfg->warmup_steps : 0.3 * (end + 1)) - 1;
    int rises = before <= top && top > 0;
    double from = rises ? low : 1, to = rises ? 1 : last;
    double part = rises ? before / top : end > top ? (before - top) / (end - top) : 0;
    if (cfg->schedule == SCHEDULE_ONE_CYCLE_LINEAR)
        return (to - from) * part + from;
    return to + (from - to) / 2 * (cosine_of_turn(part) + 1);
}

float optim_rate(const struct optim_config *cfg, uint64_t step)
{
    uint64_t before = step > 0 ? step - 1 : 0, total = cfg->total_steps, warm = cfg->warmup_steps;
    double factor = decayed(cfg, total > 0 && before >= total ? total - 1 : before);
    if (cfg->schedule >= SCHEDULE_ONE_CYCLE && total > 0)
        return (float)((double)cfg->learning_rate *
                       one_cycle(cfg, (double)(before < total ? before : total - 1)));
    if (before < warm)
        return (float)((double)cfg->learning_rate * factor * ((double)before + 1) / (double)warm);
    if ((cfg->schedule == SCHEDULE_LINEAR || cfg->schedule == SCHEDULE_COSINE) && total > warm) {
        double at = (double)((before < total ? before : total - 1) - warm);
        double part = at / (double)(total - warm);
        factor = cfg->schedule == SCHEDULE_LINEAR ? 1.0 - part : 0.5 * (1.0 + cosine_of_turn(part));
    }
    return (float)((double)cfg->learning_rate * factor);
}
