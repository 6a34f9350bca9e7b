/* ps/service/pulse.c - see pulse.h. */
#include "ps/service/pulse.h"
#include <string.h>

static const int64_t ms_ns = 1000000;

static void add_point(struct pulse *p, int64_t step, int64_t now_ns)
{
    struct pulse_point point = {now_ns, step};
    if (p->n >= 2 && now_ns - p->point[1].ns < PULSE_GAP_MS * ms_ns) {
        p->point[0] = point;
        return;
    }
    memmove(p->point + 1, p->point, sizeof p->point - sizeof *p->point);
    p->point[0] = point;
    p->n += p->n < PULSE_POINTS;
}

void pulse_note(struct pulse *p, uint64_t generation, int64_t step, int64_t now_ns)
{
    bool is_first = p->moved_ns == 0;
    if (is_first || p->generation != generation) {
        p->generation = generation;
        p->n = 0;
    }
    if (is_first)
        p->highest = -1;
    /* false after a rollback, which lowers the step */
    bool is_made = p->n > 0 && step > p->point[0].step;
    if (is_first || is_made || step > p->highest)
        p->moved_ns = now_ns;
    if (step > p->highest)
        p->highest = step;
    if (step >= 0 && (p->n == 0 || step > p->point[0].step))
        add_point(p, step, now_ns);
}

int64_t pulse_stood_ms(const struct pulse *p, int64_t now_ns)
{
    return p->moved_ns ? (now_ns - p->moved_ns) / ms_ns : 0;
}

/* Returns the mean duration of a step, in seconds, between the points; 0: there is only one
 * point. */
static double step_s(const struct pulse *p)
{
    if (p->n < 2)
        return 0;
    const struct pulse_point *a = &p->point[p->n - 1], *b = &p->point[0];
    return (double)(b->ns - a->ns) * 1e-9 / (double)(b->step - a->step);
}

bool pulse_stands(const struct pulse *p, int64_t now_ns)
{
    int64_t stood_ms = pulse_stood_ms(p, now_ns);
    return stood_ms >= PULSE_STANDS_MS && (double)stood_ms * 1e-3 > 3 * step_s(p);
}

double pulse_rate(const struct pulse *p, int64_t now_ns)
{
    double s = step_s(p);
    return s > 0 && !pulse_stands(p, now_ns) ? 1 / s : 0;
}
