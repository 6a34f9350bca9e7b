/* worker/train/progress.c - see progress.h. */
#include "worker/train/progress.h"
#include "base/clock.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct progress {
    struct progress_config cfg;
    int is_bar;
    int64_t start_ns, warm_ns; /* warm_ns: when warm_images were read */
    int64_t warm_images;       /* 0: all count so far */
    int said_last; /* the line of the job's last step; what is under way besides gets none */
    struct bar bar;
};

static double seconds_since(int64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) / 1e9;
}

double progress_images_per_second(const struct progress *p, int64_t images, int64_t *left_out)
{
    int is_warm = images > p->warm_images;
    *left_out = is_warm ? p->warm_images : 0;
    double elapsed = seconds_since(is_warm ? p->warm_ns : p->start_ns);
    return elapsed > 0 ? (double)(images - *left_out) / elapsed : 0;
}

static void draw(struct progress *p, const struct progress_point *at)
{
    double elapsed = seconds_since(p->start_ns);
    double done = (double)(at->global_step - p->cfg.first_step);
    double all = (double)(p->cfg.train_steps - p->cfg.first_step);
    double share = all > 0 && done < all ? done / all : 1;
    int64_t left = done > 0 ? (int64_t)(elapsed * (1 / share - 1)) : 0;
    int64_t left_out;
    char text[BAR_TEXT_BYTES];
    snprintf(text, sizeof text,
             "step %" PRId64 "/%" PRId64 "  loss %.4f  %.0f images/s  %" PRId64 ":%02d left",
             at->global_step, p->cfg.train_steps, (double)at->loss,
             progress_images_per_second(p, at->images, &left_out), left / 60, (int)(left % 60));
    bar_draw(&p->bar, share, text, at->global_step >= p->cfg.train_steps);
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
    p->start_ns = p->warm_ns = clock_now_ns();
    if (p->is_bar)
        bar_begin(&p->bar);
    if (cfg->figures)
        figures_begin(cfg->figures, cfg->task_index, cfg->batch, cfg->first_step, cfg->train_steps);
    *out = p;
    return ST_OK;
}

void progress_update(struct progress *p, const struct progress_point *at)
{
    int64_t left_out;
    if (p->cfg.figures)
        figures_note(p->cfg.figures, at->global_step, at->loss, at->images);
    if (p->warm_images == 0 && p->cfg.warm_up_images > 0 && at->images >= p->cfg.warm_up_images) {
        p->warm_images = at->images;
        p->warm_ns = clock_now_ns();
    }
    if (p->is_bar) {
        draw(p, at);
        return;
    }
    int last = at->global_step >= p->cfg.train_steps;
    if (last ? p->said_last : at->local_step % p->cfg.log_every != 0)
        return;
    p->said_last = last;
    LOG_I("Worker %d: training step %" PRId64 " done (global step: %" PRId64
          "), loss %.4f, %.0f images/s",
          p->cfg.task_index, at->local_step, at->global_step, (double)at->loss,
          progress_images_per_second(p, at->images, &left_out));
}

void progress_destroy(struct progress *p)
{
    if (!p)
        return;
    if (p->is_bar)
        bar_end(&p->bar);
    free(p);
}
