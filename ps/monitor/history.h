/* ps/monitor/history.h - the progress of a job in a bounded number of points: when the list is
 * full, neighbouring points are merged in pairs, and each then covers twice the time.
 * Owns:    nothing.
 * Threads: none; these are values.
 * Errors:  none. */
#ifndef PS_MONITOR_HISTORY_H
#define PS_MONITOR_HISTORY_H
#include <stdint.h>

enum { HISTORY_POINTS = 512 }; /* even */

struct history_point {
    double unix_s;  /* time at which the point ends */
    double seconds; /* duration that the point covers */
    int64_t step;   /* step at that time; -1: none yet */
    double loss_sum;
    int64_t n_losses;
    int64_t samples;
};

struct history {
    int n;
    /* number of additions that a full point covers; number that the last point covers, 0: none
     * yet */
    int n_each, n_last;
    struct history_point point[HISTORY_POINTS];
};

void history_add(struct history *h, const struct history_point *p);

#endif
