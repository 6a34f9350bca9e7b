/* base/bar.h - a progress bar in the last line of stderr, for an operator at a terminal. Log lines
 * appear above the bar.
 * Owns:    the log's hook between begin and end; so only one bar can exist at a time.
 * Threads: one thread at a time calls begin, draw and end; any thread may log.
 * Errors:  none; nothing is written to a terminal that is gone. */
#ifndef BASE_BAR_H
#define BASE_BAR_H
#include <pthread.h>
#include <stdint.h>

enum progress_style { PROGRESS_AUTO, PROGRESS_BAR, PROGRESS_LINES };
enum { BAR_TEXT_BYTES = 128 };

/* Returns true if a bar must be drawn. If style is AUTO, it must if stderr is a terminal. */
int bar_is_wanted(enum progress_style style);

struct bar {
    int64_t drawn_ns;
    pthread_mutex_t lock; /* guards text */
    char text[200];       /* text of the last drawing; empty: none yet */
};

void bar_begin(struct bar *b);
/* Draws the bar, at most ten times a second unless `now`. share: progress, 0 to 1; text: shown
 * after the bar. Does not wait for the terminal if the log has a thread (log_start). */
void bar_draw(struct bar *b, double share, const char *text, int now);
void bar_end(struct bar *b); /* the bar stays visible, and a line break follows it */

#endif
