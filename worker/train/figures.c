/* worker/train/figures.c - see figures.h. */
#include "worker/train/figures.h"
#include "base/clock.h"
#include <math.h>

const double figures_bounds[FIGURES_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                               0.25,  0.5,    1,     2.5,  5,     10,   60};

void figures_init(struct figures *f)
{
    *f = (struct figures){.batch = 1, .now = {.member = -1, .loss = NAN}};
    pthread_mutex_init(&f->lock, NULL);
}

void figures_begin(struct figures *f, int member, int batch, int64_t first_step,
                   int64_t train_steps)
{
    pthread_mutex_lock(&f->lock);
    f->batch = batch;
    f->now.member = member;
    f->now.global_step = first_step;
    f->now.train_steps = train_steps;
    f->now.moved_ns = clock_now_ns();
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
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&f->lock);
    struct figures_view *v = &f->now;
    int64_t n = (images - f->images_before) / f->batch;
    if (n > 0) {
        add_time(v, n, (double)(now - v->moved_ns) * 1e-9);
        v->steps += n;
        v->images += images - f->images_before;
        if (isfinite(loss)) {
            v->loss_sum += (double)loss;
            v->n_losses++;
        }
        v->loss = loss;
    }
    f->images_before = images;
    v->global_step = global_step;
    v->moved_ns = now;
    pthread_mutex_unlock(&f->lock);
}

void figures_look(struct figures *f, struct figures_view *out)
{
    pthread_mutex_lock(&f->lock);
    *out = f->now;
    pthread_mutex_unlock(&f->lock);
}
