/* worker/shutdown.c - handles SIGINT and SIGTERM in a thread of its own. A worker with servers
 * leaves the job in order; a worker without servers stops between two steps. Each phase has a
 * limit, after which the process exits. See worker.h. Locks: the worker's. */
#include "base/clock.h"
#include "base/threads.h"
#include "worker/worker.h"
#include <stdatomic.h>

enum {
    STEP_MS = 30000, /* worker without servers: time limit for the current step */
    /* time limit for the other workers to reach the step at which this worker leaves */
    LEAVE_MS = 20000,
    MESSAGE_MS = 3000, /* time limit for a message to ps 0, which may already have ended */
};

sigset_t shutdown_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(how, &set, NULL);
    return set;
}

static const char *name_of(int sig)
{
    return sig == SIGTERM ? "SIGTERM" : "Ctrl-C";
}

/* Waits until training has ended. Returns false if the deadline passed first. */
static bool wait_for_end(struct worker *w, int64_t deadline)
{
    pthread_mutex_lock(&w->lock);
    while (!w->stepped && !w->done && clock_cond_wait(&w->signalled, &w->lock, deadline) == 0)
        ;
    bool ended = w->stepped || w->done;
    pthread_mutex_unlock(&w->lock);
    return ended;
}

/* Stops a worker without servers between two steps, so that its checkpoint or export can be
 * written. If the step does not end, for example because a GPU hangs, stops inside the step. */
static void stop_alone(struct worker *w)
{
    int64_t deadline = clock_deadline_ns(STEP_MS);
    if (w->saver) {
        alone_writer_stop_soon(w->saver);
        return;
    }
    trainer_stop_soon(w->trainer);
    if (wait_for_end(w, deadline))
        return;
    LOG_W("the step has not ended within %d s; stopping inside the step", STEP_MS / 1000);
    atomic_store(&w->is_torn, true);
    trainer_stop(w->trainer);
}

static void stop_now(struct worker *w)
{
    if (w->opt.ps_hosts.n == 0) {
        stop_alone(w);
        return;
    }
    trainer_stop(w->trainer);
    w->updates.ops->cancel(w->updates.ctx);
}

/* Lets training contribute until the next generation begins, which excludes this worker. */
static void leave_in_order(struct worker *w, int sig)
{
    int64_t deadline = clock_deadline_ns(LEAVE_MS);
    enum status st = w->updates.ops->leave_soon(w->updates.ctx, MESSAGE_MS);
    pthread_mutex_lock(&w->lock);
    while (!w->trained && !w->done && st == ST_OK &&
           clock_cond_wait(&w->signalled, &w->lock, deadline) == 0)
        ;
    bool late = !w->trained && !w->done;
    if (late)
        w->ended_by = sig;
    pthread_mutex_unlock(&w->lock);
    if (!late)
        return;
    LOG_W("%s: %s within %d s; stopping", name_of(sig),
          st == ST_OK ? "the servers did not start a generation without this worker"
                      : "ps:0 did not answer",
          (st == ST_OK ? LEAVE_MS : MESSAGE_MS) / 1000);
    stop_now(w);
}

/* Runs the only thread that receives SIGINT and SIGTERM; all others block these signals. It starts
 * before the devices are set up. A driver, or NCCL, may never return from the set-up: then a second
 * signal ends the process at once, by the signal's default action. */
static void *signal_main(void *arg)
{
    struct worker *w = arg;
    sigset_t set = shutdown_signals(SIG_BLOCK);
    int sig = 0;
    sigwait(&set, &sig);
    pthread_mutex_lock(&w->lock);
    bool done = w->done, ready = w->ready;
    bool last = !done && w->trained;
    bool leave = !done && w->training && !last;
    w->signal = done ? 0 : sig;
    w->ended_by = leave || last ? 0 : w->signal;
    pthread_cond_broadcast(&w->signalled);
    pthread_mutex_unlock(&w->lock);
    if (done)
        return NULL;
    if (leave)
        LOG_W(
            "%s: leaving the job when the other workers are ready; a second signal ends this worker at once",
            name_of(sig));
    else if (last)
        LOG_W(
            "%s: training has ended; ending after the final figures; a second signal ends this worker at once",
            name_of(sig));
    else
        LOG_W("%s: stopping%s; a second signal ends this worker at once",
              sig == SIGTERM ? "SIGTERM" : "interrupted",
              !ready                   ? " after this part of the set-up"
              : w->saver               ? " after a last checkpoint"
              : w->opt.ps_hosts.n == 0 ? " after this step"
                                       : "");
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    shutdown_signals(SIG_UNBLOCK);
    if (leave)
        leave_in_order(w, sig);
    else if (ready && !last)
        stop_now(w);
    /* the thread waits with the signals unblocked, because no other thread could receive a second
     * signal */
    pthread_mutex_lock(&w->lock);
    while (!w->done)
        pthread_cond_wait(&w->signalled, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum status shutdown_start(struct worker *w)
{
    int err = pthread_create(&w->signal_thread, NULL, signal_main, w);
    if (err) {
        LOG_E("the thread for signals cannot be started: %s", threads_error(err));
        return ST_NOMEM;
    }
    w->signal_thread_runs = true;
    return ST_OK;
}

int shutdown_received(struct worker *w, bool done)
{
    pthread_mutex_lock(&w->lock);
    w->done |= done;
    pthread_cond_broadcast(&w->signalled);
    int sig = w->signal;
    pthread_mutex_unlock(&w->lock);
    return sig;
}

void shutdown_end(struct worker *w)
{
    if (!w->signal_thread_runs)
        return;
    int sig = shutdown_received(w, true);
    if (!sig)
        /* The thread waits in sigwait, which this signal ends. */
        pthread_kill(w->signal_thread, SIGTERM); // NOLINT(bugprone-bad-signal-to-kill-thread)
    pthread_join(w->signal_thread, NULL);
    if (sig)
        shutdown_signals(SIG_UNBLOCK);
}

int shutdown_pause(void *arg, int ms)
{
    struct worker *w = arg;
    int64_t deadline = clock_deadline_ns(ms);
    pthread_mutex_lock(&w->lock);
    while (!w->signal && clock_cond_wait(&w->signalled, &w->lock, deadline) == 0)
        ;
    int sig = w->signal;
    pthread_mutex_unlock(&w->lock);
    return sig != 0;
}
