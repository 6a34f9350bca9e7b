/* worker/train/figures.c - keeps the totals of a worker's steps under one lock; see figures.h. */
#include "worker/train/figures.h"
#include "base/clock.h"
#include <math.h>
#include <stdio.h>
#include <time.h>

const double figures_bounds[FIGURES_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                               0.25,  0.5,    1,     2.5,  5,     10,   60};

void figures_init(struct figures *f)
{
    *f = (struct figures){.batch = 1, .now = {.member = -1, .loss = NAN}};
    pthread_mutex_init(&f->lock, NULL);
}

/* The caller of this function and of the other static functions in this file holds the lock. */
static void note_time(struct figures_view *v)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    v->moved_ns = clock_now_ns();
    v->moved_unix_s = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void add_loss(struct figures *f, int64_t global_step, float loss)
{
    struct figures_view *v = &f->now;
    v->loss = loss;
    if (isfinite(loss)) {
        f->losses.sum += (double)loss;
        f->losses.n++;
        v->nonfinite_since = 0;
        return;
    }
    v->n_nonfinite++;
    if (v->nonfinite_since == 0)
        v->nonfinite_since = global_step;
}

void figures_begin(struct figures *f, int member, int batch, int64_t first_step,
                   int64_t train_steps)
{
    pthread_mutex_lock(&f->lock);
    f->batch = batch;
    f->now.member = member;
    f->now.global_step = first_step;
    f->now.train_steps = train_steps;
    note_time(&f->now);
    f->images_before = 0;
    pthread_mutex_unlock(&f->lock);
}

static void add_time(struct figures_view *v, int64_t n, double seconds)
{
    int i = 0;
    while (i < FIGURES_BOUNDS && seconds / (double)n > figures_bounds[i])
        i++;
    v->taken[i] += n;
    v->seconds += seconds;
}

void figures_note(struct figures *f, int64_t global_step, float loss, int64_t images)
{
    pthread_mutex_lock(&f->lock);
    struct figures_view *v = &f->now;
    int64_t n = (images - f->images_before) / f->batch;
    int64_t before_ns = v->moved_ns;
    note_time(v);
    if (n > 0) {
        add_time(v, n, (double)(v->moved_ns - before_ns) * 1e-9);
        v->steps += n;
        v->images += images - f->images_before;
        add_loss(f, global_step, loss);
    }
    f->images_before = images;
    v->global_step = global_step;
    pthread_mutex_unlock(&f->lock);
}

void figures_wait(struct figures *f, const char *whom, int64_t ms)
{
    pthread_mutex_lock(&f->lock);
    snprintf(f->now.waiting, sizeof f->now.waiting, "%s", whom ? whom : "");
    f->now.waiting_ms = ms;
    pthread_mutex_unlock(&f->lock);
}

void figures_read(struct figures *f, struct figures_view *out)
{
    pthread_mutex_lock(&f->lock);
    *out = f->now;
    pthread_mutex_unlock(&f->lock);
}

void figures_move_losses(struct figures *f, struct figures_losses *to)
{
    pthread_mutex_lock(&f->lock);
    to->n += f->losses.n;
    to->sum += f->losses.sum;
    f->losses = (struct figures_losses){.n = 0};
    pthread_mutex_unlock(&f->lock);
}
