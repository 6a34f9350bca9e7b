/* libweir/events.c - see weir.h: what a program that polls is told. The descriptor is an eventfd
 * that the exchange adds to as well; whoever asks for an event empties it first and, having found
 * one, fills it again, since there may be more. */
#include "libweir/weir_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { FIRST_FD = 3 };

void weir_signal(struct weir *w)
{
    const uint64_t one = 1;
    if (w->event_fd > 0)
        (void)!write(w->event_fd, &one, sizeof one);
}

int weir_fd(struct weir *w)
{
    if (w->event_fd > 0)
        return w->event_fd;
    if (w->state != HANDLE_NEW)
        return weir_fail(w, WEIR_E_INVALID, "weir_fd is for before the first weir_next");
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd >= 0 && fd < FIRST_FD) { /* the program has closed its own */
        int above = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
        close(fd);
        fd = above;
    }
    if (fd < 0)
        return weir_fail(w, WEIR_E_NOMEM, "no descriptor: %s", strerror(errno));
    w->event_fd = fd;
    return fd;
}

/* What is told once. Under the lock. */
static int told_once(struct weir *w, struct weir_event *out)
{
    *out = (struct weir_event){
        .step = w->step, .generation = (int64_t)w->start.generation, .param = -1};
    if (w->tell_began) {
        w->tell_began = 0;
        out->kind = WEIR_EVENT_BEGAN;
    } else if (w->tell_rebased) {
        w->tell_rebased = 0;
        out->kind = WEIR_EVENT_REBASED;
    } else if (w->tell_stopped) {
        w->tell_stopped = 0;
        out->kind = WEIR_EVENT_STOPPED;
        out->code = w->code;
    }
    return out->kind != 0;
}

/* The next parameter whose answer is awaited, behind the one that was looked at last; -1: none. */
static int next_awaited(struct weir *w, int *look_at)
{
    int found = -1;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < w->n_params && found < 0 && !w->ended; i++) {
        int param = (*look_at + i) % w->n_params;
        if (w->params[param].awaited)
            found = param;
    }
    pthread_mutex_unlock(&w->lock);
    return found;
}

/* Within a step. */
static int find_ready(struct weir *w, struct weir_event *out)
{
    pthread_mutex_lock(&w->lock);
    int at = w->look_at, first = -1;
    pthread_mutex_unlock(&w->lock);
    for (int param; (param = next_awaited(w, &at)) >= 0 && param != first;) {
        first = first < 0 ? param : first;
        at = (param + 1) % w->n_params;
        pthread_mutex_lock(&w->lock);
        int64_t step = w->params[param].pushed;
        pthread_mutex_unlock(&w->lock);
        if (!weir_param_ready(w, param, step, 0))
            continue;
        pthread_mutex_lock(&w->lock);
        int mine = w->params[param].awaited;
        w->params[param].awaited = 0;
        w->look_at = at;
        pthread_mutex_unlock(&w->lock);
        *out = (struct weir_event){.kind = WEIR_EVENT_READY,
                                   .step = step,
                                   .generation = (int64_t)w->start.generation,
                                   .param = param};
        if (mine)
            return 1;
    }
    return 0;
}

int weir_next_event(struct weir *w, struct weir_event *out)
{
    struct within in;
    uint64_t n;
    if (!out)
        return weir_fail(w, WEIR_E_INVALID, "weir_next_event is given no room for the event");
    if (w->event_fd > 0)
        (void)!read(w->event_fd, &n, sizeof n);
    pthread_mutex_lock(&w->lock);
    int found = told_once(w, out);
    pthread_mutex_unlock(&w->lock);
    if (!found && weir_enter(w, &in)) {
        found = find_ready(w, out);
        weir_exit(w);
    }
    if (!found)
        return WEIR_AGAIN;
    weir_signal(w);
    return WEIR_OK;
}
