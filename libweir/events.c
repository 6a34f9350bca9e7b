/* libweir/events.c - events for a program that polls; see weir.h. The descriptor is an eventfd; the
 * exchange signals it, too. weir_next_event first empties it, then looks for an event. If it finds
 * one, it fills the eventfd again, since there may be more. */
#include "libweir/steps.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { FIRST_FD = 3 };

void weir_events_signal(struct weir *w)
{
    const uint64_t one = 1;
    if (w->event_fd > 0)
        (void)!write(w->event_fd, &one, sizeof one);
}

int weir_fd(struct weir *w)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    if (w->event_fd > 0)
        return w->event_fd;
    if (w->state != HANDLE_NEW)
        return weir_errors_fail(w, WEIR_E_INVALID, "call weir_fd before the first weir_next");
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    /* the program has closed a standard stream, whose number must stay free */
    if (fd >= 0 && fd < FIRST_FD) {
        int above = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
        close(fd);
        fd = above;
    }
    if (fd < 0)
        return weir_errors_fail(w, WEIR_E_NOMEM, "no descriptor: %s", strerror(errno));
    w->event_fd = fd;
    return fd;
}

/* Fills in an event that is reported once, in this order: a generation has begun; it has ended; the
 * handle has stopped. The caller holds the lock. */
static int fill_once(struct weir *w, struct weir_event *out)
{
    *out = (struct weir_event){.step = w->step, .generation = w->generation, .param = -1};
    if (w->tell_rebased && !(w->tell_began && w->ended)) {
        w->tell_rebased = 0;
        out->kind = WEIR_EVENT_REBASED;
        out->generation = w->ended_generation;
    } else if (w->tell_began) {
        w->tell_began = 0;
        out->kind = WEIR_EVENT_BEGAN;
    } else if (w->tell_stopped) {
        w->tell_stopped = 0;
        out->kind = WEIR_EVENT_STOPPED;
        out->code = w->code;
    }
    return out->kind != 0;
}

/* Returns the step in which the parameter was pushed, if its answer is still awaited; otherwise
 * -1. */
static int64_t awaited_since(struct weir *w, int param)
{
    pthread_mutex_lock(&w->lock);
    int awaited = w->params[param].awaited && !w->ended;
    int64_t step = awaited ? w->params[param].pushed : -1;
    pthread_mutex_unlock(&w->lock);
    return step;
}

/* Fills in the event READY for the parameter. Returns 0 if another thread has reported it, or has
 * pushed the parameter again. */
static int take_ready(struct weir *w, int param, int64_t step, struct weir_event *out)
{
    pthread_mutex_lock(&w->lock);
    int mine = w->params[param].awaited && w->params[param].pushed == step;
    if (mine)
        w->params[param].awaited = 0;
    w->look_at = (param + 1) % w->n_params;
    *out = (struct weir_event){
        .kind = WEIR_EVENT_READY, .step = step, .generation = w->generation, .param = param};
    pthread_mutex_unlock(&w->lock);
    return mine;
}

/* Searches for a parameter whose values have arrived, beginning after the last reported one; called
 * within a step. The end of the generation, or an error, becomes an event. */
static int find_ready(struct weir *w, struct weir_event *out)
{
    pthread_mutex_lock(&w->lock);
    int first = w->look_at, ended = w->ended;
    pthread_mutex_unlock(&w->lock);
    if (ended || weir_steps_check(w) != WEIR_OK)
        return 0;
    for (int i = 0; i < w->n_params; i++) {
        int param = (first + i) % w->n_params;
        int64_t step = awaited_since(w, param);
        int code = step < 0 ? WEIR_AGAIN : weir_steps_param_ready(w, param, step);
        if (code != WEIR_OK && code != WEIR_AGAIN)
            return 0;
        if (code == WEIR_OK && take_ready(w, param, step, out))
            return 1;
    }
    return 0;
}

static int find_once(struct weir *w, struct weir_event *out)
{
    pthread_mutex_lock(&w->lock);
    int found = fill_once(w, out);
    pthread_mutex_unlock(&w->lock);
    return found;
}

int weir_next_event(struct weir *w, struct weir_event *out)
{
    struct within in;
    uint64_t n;
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    weir_errors_listen();
    if (!out)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "weir_next_event: the pointer to the event is NULL");
    if (w->event_fd > 0)
        (void)!read(w->event_fd, &n, sizeof n);
    int found = find_once(w, out);
    if (!found && weir_steps_enter(w, &in)) {
        found = find_ready(w, out) || find_once(w, out);
        weir_steps_exit(w);
    }
    if (!found)
        return WEIR_AGAIN;
    weir_events_signal(w);
    return WEIR_OK;
}
