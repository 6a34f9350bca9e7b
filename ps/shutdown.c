/* ps/shutdown.c - waits for the events that end the server (shutdown.h). */
#include "ps/shutdown.h"
#include "base/log.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

int ps_shutdown_open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

bool ps_shutdown_signal_pending(void *ctx, int ms)
{
    const struct app *app = ctx;
    struct pollfd fd = {.fd = app->signal_fd, .events = POLLIN};
    return poll(&fd, 1, ms) > 0;
}

int ps_shutdown_take_signal(struct app *app)
{
    struct signalfd_siginfo info;
    return read(app->signal_fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : SIGTERM;
}

static void wake(struct app *app)
{
    const uint64_t one = 1;
    if (write(app->event_fd, &one, sizeof one) < 0)
        LOG_E("cannot wake the main thread: %s", strerror(errno));
}

static void set(struct app *app, _Atomic int *what)
{
    atomic_store(what, 1);
    wake(app);
}

void ps_shutdown_on_refused(void *ctx)
{
    set(ctx, &((struct app *)ctx)->refused);
}

void ps_shutdown_on_done(void *ctx)
{
    set(ctx, &((struct app *)ctx)->job_done);
}

void ps_shutdown_on_replaced(void *ctx)
{
    struct app *app = ctx;
    atomic_store(&app->replaced, 1);
    ps_shutdown_on_refused(ctx);
}

void ps_shutdown_on_unsure(void *ctx)
{
    atomic_store(&((struct app *)ctx)->unsure, 1);
    ps_shutdown_on_replaced(ctx);
}

void ps_shutdown_on_over(void *ctx)
{
    set(ctx, &((struct app *)ctx)->over);
}

void ps_shutdown_on_failed(void *ctx)
{
    set(ctx, &((struct app *)ctx)->failed);
}

void ps_shutdown_on_parent_lost(void *ctx, int complete, const char *why)
{
    struct app *app = ctx;
    atomic_store(&app->parent_lost, 1);
    if (complete)
        return;
    snprintf(app->why, sizeof app->why, "the region has ended: %s", why);
    atomic_store(&app->cut_off, 1);
    wake(app);
}

/* Returns true if the signal ends the wait. */
static bool takes_signal(struct app *app, int signo)
{
    static int draining;
    bool is_first = !app->opt->join && app->opt->task_index == 0;
    if (signo == SIGUSR1) {
        LOG_I("SIGUSR1: %s", app->opt->checkpoint_dir ? "a checkpoint now"
                                                      : "no checkpoint without --checkpoint_dir");
        if (app->opt->checkpoint_dir)
            node_request(app->node);
        return false;
    }
    if (signo == SIGTERM && app->opt->drain && is_first)
        LOG_W("--drain: ps:0 coordinates the job and cannot leave it");
    if (signo != SIGTERM || !app->opt->drain || is_first || draining)
        return true;
    draining = 1;
    LOG_I(
        "SIGTERM: this server moves its chunks to the other servers, then exits; a second SIGTERM ends it at once");
    node_leave(app->node);
    return false;
}

int ps_shutdown_wait(struct app *app)
{
    struct pollfd fds[2] = {{.fd = app->signal_fd, .events = POLLIN},
                            {.fd = app->event_fd, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return SIGTERM;
        struct signalfd_siginfo info;
        if (fds[0].revents && read(app->signal_fd, &info, sizeof info) == sizeof info) {
            if (takes_signal(app, (int)info.ssi_signo))
                return (int)info.ssi_signo;
        }
        uint64_t n_events;
        if (!fds[1].revents || read(app->event_fd, &n_events, sizeof n_events) != sizeof n_events)
            continue;
        if (atomic_load(&app->refused) || atomic_load(&app->over) || atomic_load(&app->failed) ||
            atomic_load(&app->cut_off))
            return 0;
        if (atomic_load(&app->job_done) && !app->opt->serve)
            return 0;
        LOG_I("the job is done; this server waits for the next one (--serve)");
    }
}

void ps_shutdown_finish_node(struct app *app)
{
    sigset_t set;
    if (atomic_load(&app->refused))
        return;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    ps_region_await_end(app->region); /* other servers stay until the node ends */
    app->lacks_last = !node_finish(app->node);
    app->ended = 1;
}
