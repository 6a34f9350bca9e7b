/* base/bar.c - see bar.h. A hook of the log clears the bar before a log line and draws the bar
 * again after the line. bar_draw only stores the text, and the log's thread writes it: training
 * must not wait for a terminal. */
#include "base/bar.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { REDRAW_NS = 100000000, BAR_CELLS = 16 };

static void put(const char *s)
{
    if (write(STDERR_FILENO, s, strlen(s)) < 0) {
        /* the terminal is gone; the program continues without a bar */
    }
}

static void hook(void *ctx, int before)
{
    struct bar *b = ctx;
    char text[sizeof b->text];
    pthread_mutex_lock(&b->lock);
    memcpy(text, b->text, sizeof text);
    pthread_mutex_unlock(&b->lock);
    if (text[0])
        put(before ? "\r\033[K" : text);
}

int bar_is_wanted(enum progress_style style)
{
    return style == PROGRESS_BAR || (style == PROGRESS_AUTO && isatty(STDERR_FILENO));
}

void bar_begin(struct bar *b)
{
    b->drawn_ns = 0;
    b->text[0] = 0;
    pthread_mutex_init(&b->lock, NULL);
    log_set_hook(hook, b);
}

void bar_draw(struct bar *b, double share, const char *text, int now)
{
    int64_t at = clock_now_ns();
    if (at - b->drawn_ns < REDRAW_NS && !now)
        return;
    b->drawn_ns = at;
    char cells[BAR_CELLS + 1];
    for (int i = 0; i < BAR_CELLS; i++)
        cells[i] = i < (int)(share * BAR_CELLS) ? '#' : '.';
    cells[BAR_CELLS] = 0;
    char whole[BAR_CELLS + BAR_TEXT_BYTES + 8], line[sizeof whole];
    snprintf(whole, sizeof whole, "[%s] %s", cells, text);
    struct winsize ws = {0};
    bool is_narrow = ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > sizeof "..." &&
                     ws.ws_col < sizeof line;
    utf8_copy_words(line, is_narrow ? ws.ws_col : sizeof line, whole);
    pthread_mutex_lock(&b->lock);
    snprintf(b->text, sizeof b->text, "\r\033[K%s", line);
    pthread_mutex_unlock(&b->lock);
    log_redraw();
}

void bar_end(struct bar *b)
{
    log_set_hook(NULL, NULL);
    if (b->text[0])
        put("\n");
    pthread_mutex_destroy(&b->lock);
}
