/* base/bar.h - how far something is, for a person at a terminal: a bar in the last line of stderr,
 * which lines of the log pass around.
 * Owns:    the log's hook, between begin and end: one bar at a time.
 * Threads: one at a time for begin, draw and end; log lines of any.
 * Errors:  none; a terminal that is gone gets nothing. */
#ifndef BASE_BAR_H
#define BASE_BAR_H
#include <pthread.h>
#include <stdint.h>

enum progress_style { PROGRESS_AUTO, PROGRESS_BAR, PROGRESS_LINES };
enum { BAR_TEXT_BYTES = 128 };

/* AUTO: stderr is a terminal. */
int bar_is_wanted(enum progress_style style);

struct bar {
    int64_t drawn_ns;
    pthread_mutex_t lock; /* guards text */
    char text[200];       /* as last drawn; empty: not yet */
};

void bar_begin(struct bar *b);
/* Draws the bar, at most ten times a second unless `now`. share: 0 to 1; text: behind the cells.
 * Does not wait for the terminal where the log has a thread (log_start). */
void bar_draw(struct bar *b, double share, const char *text, int now);
void bar_end(struct bar *b); /* the bar stays, with a new line behind it */

#endif
