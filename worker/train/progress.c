/* worker/train/progress.c - see progress.h. The bar is redrawn at most ten times a second, by the
 * thread that takes a step; the log's hook clears it before a line and draws it again after. */
#include "worker/train/progress.h"
#include "base/clock.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { REDRAW_NS = 100000000, BAR_CELLS = 24 };

struct progress {
    struct progress_config cfg;
    int bar;
    int64_t start_ns, drawn_ns;
    int said_last;        /* the line of the job's last step; what is under way besides gets none */
    pthread_mutex_t lock; /* guards text */
    char text[200];       /* the bar as last drawn; empty: none */
};

static void bar_write(const char *s)
{
    if (write(STDERR_FILENO, s, strlen(s)) < 0) {
        /* the terminal is gone; training goes on */
    }
}

static void bar_hook(void *ctx, int before)
{
    struct progress *p = ctx;
    pthread_mutex_lock(&p->lock);
    if (p->text[0])
        bar_write(before ? "\r\033[K" : p->text);
    pthread_mutex_unlock(&p->lock);
}

static double seconds_since(int64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) / 1e9;
}

static void bar_draw(struct progress *p, const struct progress_point *at)
{
    int64_t now = clock_now_ns();
    int last = at->global_step >= p->cfg.train_steps;
    if (now - p->drawn_ns < REDRAW_NS && !last)
        return;
    p->drawn_ns = now;
    double elapsed = seconds_since(p->start_ns);
    double done = (double)(at->global_step - p->cfg.first_step);
    double all = (double)(p->cfg.train_steps - p->cfg.first_step);
    double share = all > 0 && done < all ? done / all : 1;
    int64_t left = done > 0 ? (int64_t)(elapsed * (1 / share - 1)) : 0;
    char cells[BAR_CELLS + 1];
    for (int i = 0; i < BAR_CELLS; i++)
        cells[i] = i < (int)(share * BAR_CELLS) ? '#' : '.';
    cells[BAR_CELLS] = 0;
    char line[180];
    snprintf(line, sizeof line,
             "[%s] step %" PRId64 "/%" PRId64 "  loss %.4f  %.0f images/s  %" PRId64 ":%02d left",
             cells, at->global_step, p->cfg.train_steps, (double)at->loss,
             elapsed > 0 ? (double)at->images / elapsed : 0, left / 60, (int)(left % 60));
    struct winsize ws = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 1 && strlen(line) >= ws.ws_col)
        line[ws.ws_col - 1] = 0;
    pthread_mutex_lock(&p->lock);
    snprintf(p->text, sizeof p->text, "\r\033[K%s", line);
    bar_write(p->text);
    pthread_mutex_unlock(&p->lock);
}

enum status progress_create(const struct progress_config *cfg, struct progress **out)
{
    struct progress *p = calloc(1, sizeof *p);
    if (!p) {
        LOG_E("out of memory for lines of progress");
        return ST_NOMEM;
    }
    p->cfg = *cfg;
    p->bar = cfg->style == PROGRESS_BAR || (cfg->style == PROGRESS_AUTO && isatty(STDERR_FILENO));
    p->start_ns = clock_now_ns();
    pthread_mutex_init(&p->lock, NULL);
    if (p->bar)
        log_set_hook(bar_hook, p);
    *out = p;
    return ST_OK;
}

void progress_update(struct progress *p, const struct progress_point *at)
{
    if (p->bar) {
        bar_draw(p, at);
        return;
    }
    int last = at->global_step >= p->cfg.train_steps;
    if (last ? p->said_last : at->local_step % p->cfg.log_every != 0)
        return;
    p->said_last = last;
    double elapsed = seconds_since(p->start_ns);
    LOG_I("Worker %d: training step %" PRId64 " done (global step: %" PRId64
          "), loss %.4f, %.0f images/s",
          p->cfg.task_index, at->local_step, at->global_step, (double)at->loss,
          elapsed > 0 ? (double)at->images / elapsed : 0);
}

void progress_destroy(struct progress *p)
{
    if (!p)
        return;
    if (p->bar) {
        log_set_hook(NULL, NULL);
        if (p->text[0])
            bar_write("\n");
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}
