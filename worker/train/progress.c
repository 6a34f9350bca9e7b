/* worker/train/progress.c - draws the bar or logs lines, and measures the speed, for which waits
 * and the first steps (warm-up) do not count. */
#include "worker/train/progress.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "net/wire/status.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { WHOM_BYTES = 76 }; /* length of a program's name in the bar */

/* Point in time from which a speed is computed. */
struct mark {
    int64_t ns, images; /* the time, and the images that were read before it */
    int64_t waited_ns;  /* part of progress.waited_ns before it */
};

struct progress {
    struct progress_config cfg;
    bool is_bar;
    struct mark start;         /* start of training */
    struct mark line;          /* the last log line, or the start */
    _Atomic int64_t waited_ns; /* total time of waits for other programs that have ended */
    /* the log line of the job's last step is written; steps that are still in flight get no line */
    int said_last;
    int64_t newest; /* number of the last step */

    pthread_mutex_t lock; /* guards the fields below; only progress_update changes `warm` */
    struct mark warm; /* end of the steps that the speed excludes; images = 0: not reached yet */
    int64_t step_ns;  /* time at which the last step ended, or training began */
    int64_t wait_ns;  /* start of the current wait; 0: none */
    struct progress_point at; /* values of the last update; at first: the first step, no images */
    int shows_wait;           /* true: the bar shows a wait */
    struct bar bar;
};

void progress_lines_begin(struct progress_lines *l)
{
    l->line_ns = clock_now_ns();
}

/* Returns true if a log line is due after a line at line_ns. */
static bool is_due(int64_t line_ns)
{
    return clock_now_ns() - line_ns >= PROGRESS_LINE_MS * (int64_t)1000000;
}

void progress_lines_note(struct progress_lines *l, const char *what, int64_t done, int64_t all)
{
    if (done >= all || !is_due(l->line_ns))
        return;
    progress_lines_begin(l);
    LOG_I("%" PRId64 " of %" PRId64 " %s", done, all, what);
}

static double seconds_since(int64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) / 1e9;
}

static struct mark mark_now(const struct progress *p, int64_t images)
{
    return (struct mark){clock_now_ns(), images, atomic_load(&p->waited_ns)};
}

static double speed_since(const struct progress *p, const struct mark *from, int64_t images)
{
    double elapsed = seconds_since(from->ns + atomic_load(&p->waited_ns) - from->waited_ns);
    return elapsed > 0 ? (double)(images - from->images) / elapsed : 0;
}

double progress_images_per_second(const struct progress *p, int64_t images, int64_t *left_out)
{
    const struct mark *from = images > p->warm.images ? &p->warm : &p->start;
    *left_out = from->images;
    return speed_since(p, from, images);
}

double progress_waited_seconds(const struct progress *p)
{
    return (double)atomic_load(&p->waited_ns) / 1e9;
}

/* Returns the fraction of the steps that are done. */
static double share_done(const struct progress *p)
{
    double done = (double)(p->at.global_step - p->cfg.first_step);
    double all = (double)(p->cfg.train_steps - p->cfg.first_step);
    return all > 0 && done < all ? done / all : 1;
}

/* The caller holds p->lock. */
static void draw_bar(struct progress *p, int now)
{
    const struct progress_point *at = &p->at;
    double share = share_done(p);
    int64_t left_out,
        left = share > 0 ? (int64_t)(seconds_since(p->start.ns + atomic_load(&p->waited_ns)) *
                                     (1 / share - 1))
                         : 0;
    char text[BAR_TEXT_BYTES], epoch[32] = "";
    if (at->epoch > 0)
        snprintf(epoch, sizeof epoch, "  epoch %" PRId64, at->epoch);
    snprintf(text, sizeof text,
             "step %" PRId64 "/%" PRId64 "%s  loss %.4f  %.0f %s/s  %" PRId64 ":%02d left",
             at->global_step, p->cfg.train_steps, epoch, (double)at->loss,
             progress_images_per_second(p, at->images, &left_out), p->cfg.unit, left / 60,
             (int)(left % 60));
    bar_draw(&p->bar, share, text, now || at->global_step >= p->cfg.train_steps);
}

/* The caller holds p->lock. */
static void draw_wait(struct progress *p, const char *whom, int64_t ms)
{
    char text[BAR_TEXT_BYTES], short_whom[WHOM_BYTES], sentence[STATUS_SENTENCE_BYTES];
    if (whom) {
        utf8_copy_words(short_whom, sizeof short_whom, whom);
        net_status_waiting_text(short_whom, ms, sentence);
        snprintf(text, sizeof text, "step %" PRId64 "/%" PRId64 "  %.100s", p->at.global_step,
                 p->cfg.train_steps, sentence);
        bar_draw(&p->bar, share_done(p), text, 1);
    } else if (p->shows_wait && p->at.images > 0) {
        draw_bar(p, 1);
    } else if (p->shows_wait) { /* no step has ended yet, so there is no loss and no speed */
        snprintf(text, sizeof text, "step %" PRId64 "/%" PRId64, p->at.global_step,
                 p->cfg.train_steps);
        bar_draw(&p->bar, share_done(p), text, 1);
    }
    p->shows_wait = whom != NULL;
}

/* Adds the current wait, if there is one, to the time waited. The caller holds p->lock. */
static void end_wait(struct progress *p)
{
    if (p->wait_ns)
        atomic_fetch_add(&p->waited_ns, clock_now_ns() - p->wait_ns);
    p->wait_ns = 0;
}

/* Records that a wait began `ms` ago, but not before the last step. The caller holds p->lock. */
static void note_wait(struct progress *p, int64_t ms)
{
    int64_t since_ns = clock_now_ns() - ms * 1000000;
    if (!p->wait_ns)
        p->wait_ns = since_ns > p->step_ns ? since_ns : p->step_ns;
}

void progress_wait(struct progress *p, const char *whom, int64_t ms)
{
    pthread_mutex_lock(&p->lock);
    if (whom)
        note_wait(p, ms);
    else
        end_wait(p);
    if (p->is_bar)
        draw_wait(p, whom, ms);
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
    p->is_bar = bar_is_wanted(cfg->style);
    p->start = p->warm = p->line = mark_now(p, 0);
    p->step_ns = p->start.ns;
    p->at.global_step = cfg->first_step;
    pthread_mutex_init(&p->lock, NULL);
    if (p->is_bar)
        bar_begin(&p->bar);
    if (cfg->figures)
        figures_begin(cfg->figures, cfg->task_index, cfg->batch, cfg->first_step, cfg->train_steps);
    *out = p;
    return ST_OK;
}

/* Logs a line with the speed since the last line, without the steps that the speed excludes. */
static void log_line(struct progress *p, const struct progress_point *at)
{
    bool warmed = p->warm.images > p->line.images && p->warm.images < at->images;
    double speed = speed_since(p, warmed ? &p->warm : &p->line, at->images);
    p->line = mark_now(p, at->images);
    LOG_I("Worker %d: %straining step %" PRId64 " done (global step: %" PRId64
          "), loss %.4f, %.0f %s/s",
          p->cfg.task_index, p->cfg.is_part ? "its part of " : "", at->local_step, at->global_step,
          (double)at->loss, speed, p->cfg.unit);
}

void progress_update(struct progress *p, const struct progress_point *at)
{
    if (p->cfg.figures)
        figures_note(p->cfg.figures, at->global_step, at->loss, at->images);
    pthread_mutex_lock(&p->lock);
    end_wait(p);
    p->step_ns = clock_now_ns();
    if (p->warm.images == 0 && p->cfg.warm_up_images > 0 && at->images >= p->cfg.warm_up_images)
        p->warm = mark_now(p, at->images);
    pthread_mutex_unlock(&p->lock);
    if (p->is_bar) {
        pthread_mutex_lock(&p->lock);
        p->at = *at;
        draw_bar(p, p->shows_wait);
        p->shows_wait = 0;
        pthread_mutex_unlock(&p->lock);
        return;
    }
    int last = at->global_step >= p->cfg.train_steps;
    /* A step that is made again after a change of generation waits for the same workers as before:
     * a line would look as if training continued. */
    bool is_due_now = at->local_step != p->newest && is_due(p->line.ns);
    p->newest = at->local_step;
    if (last ? p->said_last : at->local_step % p->cfg.log_every != 0 && !is_due_now)
        return;
    p->said_last = last;
    log_line(p, at);
}

void progress_destroy(struct progress *p)
{
    if (!p)
        return;
    if (p->is_bar)
        bar_end(&p->bar);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
