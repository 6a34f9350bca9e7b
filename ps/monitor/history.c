/* ps/monitor/history.c - see history.h. */
#include "ps/monitor/history.h"

static void join(struct history_point *to, const struct history_point *next)
{
    to->unix_s = next->unix_s;
    to->step = next->step;
    to->seconds += next->seconds;
    to->loss_sum += next->loss_sum;
    to->n_losses += next->n_losses;
    to->samples += next->samples;
}

void history_add(struct history *h, const struct history_point *p)
{
    if (h->n_each == 0)
        h->n_each = 1;
    if (h->n > 0 && h->n_last < h->n_each) {
        join(&h->point[h->n - 1], p);
        h->n_last++;
        return;
    }
    if (h->n == HISTORY_POINTS) {
        for (int i = 0; i < HISTORY_POINTS / 2; i++) {
            h->point[i] = h->point[2 * i];
            join(&h->point[i], &h->point[2 * i + 1]);
        }
        h->n = HISTORY_POINTS / 2;
        h->n_each *= 2;
    }
    h->point[h->n++] = *p;
    h->n_last = 1;
}
