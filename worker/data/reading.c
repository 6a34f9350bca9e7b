/* worker/data/reading.c - shows a bar or log lines when a read has lasted long enough. */
#include "worker/data/reading.h"
#include "base/clock.h"
#include "base/log.h"
#include <stdio.h>

void reading_begin(struct reading *r, enum progress_style style, const char *path, const char *what,
                   const char *unit)
{
    r->path = path;
    r->what = what;
    r->unit = unit;
    r->is_bar = bar_is_wanted(style);
    r->is_drawn = false;
    r->begin_ns = r->said_ns = clock_now_ns();
}

static void text_of(const struct reading *r, double done, double all, char *to, size_t bytes)
{
    double seconds = (double)(clock_now_ns() - r->begin_ns) / 1e9, speed = done / seconds;
    if (all > 0)
        snprintf(to, bytes, "%.1f of %.1f %s, %.2f %s/s, %.0f s left", done, all, r->unit, speed,
                 r->unit, speed > 0 ? (all - done) / speed : 0);
    else
        snprintf(to, bytes, "%.0f %s, %.0f %s/s", done, r->unit, speed, r->unit);
}

void reading_at(struct reading *r, double done, double all)
{
    char text[BAR_TEXT_BYTES], line[2 * BAR_TEXT_BYTES];
    int64_t now = clock_now_ns(), pause_ms = r->is_bar ? READING_BAR_MS : READING_LINE_MS;
    if (!r->is_drawn && now - r->said_ns < pause_ms * 1000000)
        return;
    text_of(r, done, all, text, sizeof text);
    r->said_ns = now;
    if (!r->is_bar) {
        LOG_I("reading %s (%s): %s", r->path, r->what, text);
        return;
    }
    if (!r->is_drawn)
        bar_begin(&r->bar);
    r->is_drawn = true;
    snprintf(line, sizeof line, "%s  %s", r->what, text);
    bar_draw(&r->bar, all > 0 ? done / all : 0, line, 0);
}

void reading_end(struct reading *r)
{
    if (r->is_drawn)
        bar_end(&r->bar);
}
