/* ps/monitor/history.h - a job's course in a bounded number of points: where there are too many,
 * two neighbours become one, which from then on stands for twice the time.
 * Owns: nothing. Threads: values. Errors: none. */
#ifndef PS_MONITOR_HISTORY_H
#define PS_MONITOR_HISTORY_H
#include <stdint.h>

enum { HISTORY_POINTS = 512 }; /* even */

struct history_point {
    double unix_s;  /* its end */
    double seconds; /* that it stands for */
    int64_t step;   /* then; -1: none yet */
    double loss_sum;
    int64_t n_losses;
    int64_t samples;
};

struct history {
    int n;
    int n_each, n_last; /* additions behind a point; behind the last one; zeros: none yet */
    struct history_point point[HISTORY_POINTS];
};

void history_add(struct history *h, const struct history_point *p);

#endif
