/* libweir/weir.c - opens and closes handles, and leaves the job; see weir.h and weir_impl.h. */
#include "base/clock.h"
#include "base/log.h"
#include "libweir/arrays.h"
#include "libweir/tables.h"
#include "net/exchange/status_client.h"
#include <stdlib.h>
#include <unistd.h>

enum { LEAVE_SOON_MOST_MS = 1000000000 };

/* Programs were compiled with these sizes. */
_Static_assert(sizeof(struct weir_step) == 128 && sizeof(struct weir_event) == 64, "the ABI");

int weir_open(struct weir **out)
{
    if (!out || weir_errors_refuses(NULL))
        return WEIR_E_INVALID;
    weir_errors_divert();
    struct weir *w = calloc(1, sizeof *w);
    if (!w)
        return WEIR_E_NOMEM;
    settings_init(&w->set);
    w->event_fd = -1;
    w->pid = getpid();
    pthread_mutex_init(&w->lock, NULL);
    clock_cond_init(&w->changed);
    *out = w;
    return WEIR_OK;
}

int weir_set(struct weir *w, const char *name, const char *value)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    weir_errors_listen();
    if (w->state != HANDLE_NEW)
        return weir_errors_fail(w, WEIR_E_INVALID, "call weir_set before the first weir_next");
    if (!name || !value)
        return weir_errors_fail(w, WEIR_E_INVALID, "a setting needs a name and a value");
    enum status st = settings_set(&w->set, name, value);
    return st == ST_OK ? WEIR_OK : weir_errors_fail_st(w, st);
}

/* Finds the seed of the order of samples. Returns 0, with the error set, if it is the seed of a
 * running job that this member has not joined yet. */
static int find_seed(struct weir *w, uint64_t *seed)
{
    pthread_mutex_lock(&w->lock);
    int known = w->known;
    *seed = known ? w->job.seed : (uint64_t)w->set.seed;
    pthread_mutex_unlock(&w->lock);
    if (known || !w->set.join)
        return 1;
    weir_errors_fail(
        w, WEIR_E_INVALID,
        "the running job, which the first weir_next joins, decides on the order of samples: call this function after weir_next has returned a step");
    return 0;
}

/* Logs the default of the batch, which decides on the positions of a member's samples. */
static void log_default_batch(struct weir *w)
{
    pthread_mutex_lock(&w->lock);
    int is_used = w->begun && !w->set.join;
    pthread_mutex_unlock(&w->lock);
    if (is_used && !w->set.batch_size)
        LOG_W("batch_size is not set: a step has %d samples of each member", SETTINGS_BATCH);
}

int64_t weir_sample(struct weir *w, int64_t n, int64_t position)
{
    uint64_t seed;
    if (weir_errors_refuses(w))
        return -1;
    weir_errors_listen();
    if (position < 0) {
        weir_errors_fail(w, WEIR_E_INVALID, "position %lld is below 0", (long long)position);
        return -1;
    }
    if (!find_seed(w, &seed))
        return -1;
    if (!w->order || w->n_order != n || w->order_seed != seed) {
        struct dataset_order *order = NULL;
        enum status st = dataset_order_create(n, seed, &order);
        if (st != ST_OK) {
            weir_errors_fail_st(w, st);
            return -1;
        }
        if (!w->order)
            log_default_batch(w);
        dataset_order_destroy(w->order);
        w->order = order;
        w->n_order = n;
        w->order_seed = seed;
    }
    return dataset_order_item(w->order, (uint64_t)position);
}

static int nothing_to_leave(struct weir *w)
{
    return weir_errors_fail(
        w, WEIR_E_INVALID,
        "there is nothing to leave: weir_next has joined no servers, or the job is over");
}

/* Waits until there is an exchange, and requests to leave. AGAIN: the deadline passed, and the
 * starter will send the request; or the start failed, which weir_next will return. LEFT: the start
 * ended because this member leaves. */
static int ask_to_leave(struct weir *w, int64_t deadline_ns)
{
    int code = WEIR_OK;
    pthread_mutex_lock(&w->lock);
    w->leaves |= w->state == HANDLE_STARTING || w->state == HANDLE_RUNNING;
    while (w->state == HANDLE_STARTING && !w->made && !w->start_over &&
           clock_now_ns() < deadline_ns)
        clock_cond_wait(&w->changed, &w->lock, deadline_ns);
    if (!w->leaves || w->state == HANDLE_STOPPED)
        code = WEIR_E_INVALID;
    else if (w->state == HANDLE_STARTING && w->start_over && w->start_code == WEIR_LEFT)
        code = WEIR_LEFT;
    else if (!w->made || (w->state == HANDLE_STARTING && w->start_over && w->start_code != WEIR_OK))
        code = WEIR_AGAIN;
    pthread_mutex_unlock(&w->lock);
    return code;
}

/* Starts a public call. Returns a negative code if it is refused, or the handle has failed. */
static int begin_call(struct weir *w)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    weir_errors_listen();
    return weir_errors_stopped(w);
}

int weir_leave_soon(struct weir *w, int timeout_ms)
{
    int64_t deadline_ns = clock_deadline_ns(timeout_ms < 0 ? LEAVE_SOON_MOST_MS : timeout_ms);
    int code = begin_call(w);
    if (code < 0)
        return code;
    code = ask_to_leave(w, deadline_ns);
    if (code == WEIR_AGAIN || code == WEIR_LEFT)
        return code == WEIR_LEFT ? WEIR_OK : code;
    if (code != WEIR_OK || !w->updates.ops->leave_soon)
        return nothing_to_leave(w);
    int64_t ms = (deadline_ns - clock_now_ns()) / 1000000;
    enum status st = w->updates.ops->leave_soon(w->updates.ctx, ms > 0 ? ms : 0);
    return st == ST_DEADLINE ? WEIR_AGAIN : st == ST_OK ? WEIR_OK : weir_errors_fail_st(w, st);
}

/* Requests that ps 0 end the job. */
static int ask_to_stop_job(struct weir *w, int timeout_ms)
{
    const struct net_command command = {.kind = COMMAND_STOP_JOB};
    struct net_command_reply reply;
    char why[CONTROL_TEXT_BYTES];
    int64_t ms = timeout_ms < 0 ? LEAVE_SOON_MOST_MS : timeout_ms;
    enum status st = status_client_send_command(w->cluster.ps.addr[0], &command, ms, &reply, why);
    if (st == ST_OK && reply.answer != COMMAND_REFUSED)
        return WEIR_OK;
    int code = st == ST_OK                                 ? WEIR_E_REFUSED
               : st == ST_UNAVAILABLE || st == ST_DEADLINE ? WEIR_AGAIN
                                                           : weir_errors_code_of(st);
    return weir_errors_fail(w, code, "ps:0 (%.100s) does not stop the job: %.400s",
                            w->cluster.ps.addr[0], st == ST_OK ? reply.text : why);
}

int weir_stop_job(struct weir *w, int timeout_ms)
{
    int code = begin_call(w);
    if (code < 0)
        return code;
    pthread_mutex_lock(&w->lock);
    int made = w->made, is_alone = made && w->cluster.ps.n == 0;
    if (is_alone && w->state == HANDLE_RUNNING)
        w->train_steps = w->step + w->in_step;
    pthread_mutex_unlock(&w->lock);
    if (!made)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "there is no job to stop: weir_next has joined none, or this member has left by weir_goodbye");
    return is_alone ? WEIR_OK : ask_to_stop_job(w, timeout_ms);
}

/* Also works for a handle that has stopped: the servers may have refused it, and would otherwise
 * wait for this member. */
int weir_leave_failed(struct weir *w, const char *error)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    int code = weir_errors_stopped(w);
    if (!error || !*error)
        return weir_errors_fail(w, WEIR_E_INVALID, "the error must be a line of text");
    if (w->starter_runs)
        weir_cancel(w);
    weir_begin_end_starter(w);
    if (!w->updates.ops || w->goodbye)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "weir_next has joined no servers, or this member has left already");
    w->updates.ops->leave(w->updates.ctx, code == WEIR_DONE, error);
    w->goodbye = 1;
    if (code < 0)
        return WEIR_OK;
    weir_errors_fail(w, WEIR_E_CANCELLED, "this member has left with its error: %.400s", error);
    if (code == 0)
        weir_errors_stop(w, WEIR_E_CANCELLED);
    return WEIR_OK;
}

void weir_cancel(struct weir *w)
{
    if (weir_errors_refuses(w))
        return;
    pthread_mutex_lock(&w->lock);
    w->cancelled = 1;
    pthread_cond_broadcast(&w->changed);
    int made = w->made;
    pthread_mutex_unlock(&w->lock);
    if (made)
        w->updates.ops->cancel(w->updates.ctx);
}

/* Ends the exchange with the servers. Values and gradients remain valid, since the exchange does
 * not own them. */
static void end_membership(struct weir *w)
{
    int code = weir_errors_stopped(w);
    if (w->starter_runs)
        weir_cancel(w);
    weir_begin_end_starter(w);
    waiting_destroy(w->waiting);
    w->waiting = NULL;
    if (w->updates.ops && (code == WEIR_DONE || code == WEIR_LEFT) && !w->goodbye)
        w->updates.ops->leave(w->updates.ctx, code == WEIR_DONE, "");
    w->goodbye = 1;
    pthread_mutex_lock(&w->lock);
    w->made = 0;
    pthread_mutex_unlock(&w->lock);
    updates_destroy(&w->updates);
}

int weir_goodbye(struct weir *w)
{
    if (!w || w->pid != getpid()) /* a forked process has no threads to send the message */
        return WEIR_OK;
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    int code = weir_errors_stopped(w);
    end_membership(w);
    if (code == 0)
        weir_errors_stop(
            w, weir_errors_fail(w, WEIR_E_CANCELLED, "this member has left by weir_goodbye"));
    return WEIR_OK;
}

void weir_close(struct weir *w)
{
    if (!w || weir_errors_refuses(w))
        return;
    end_membership(w);
    weir_arrays_free(w);
    weir_tables_free(w);
    weir_params_free(w);
    settings_free(&w->set);
    cluster_free(&w->cluster);
    net_status_free(&w->joined);
    dataset_order_destroy(w->order);
    if (w->event_fd > 0)
        close(w->event_fd);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
