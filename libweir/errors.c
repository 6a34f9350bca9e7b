/* libweir/errors.c - codes and their error texts, and the library's log; see weir.h and
 * weir_impl.h. The libraries that libweir calls log the cause of an error. libweir keeps each
 * thread's last such log line, and weir_error returns it. */
#include "base/guarded.h"
#include "base/log.h"
#include "libweir/arrays.h"
#include "libweir/warnings.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t line_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below */
static void (*line_to)(void *ctx, int level, const char *text);
static void *line_ctx;
static bool was_asked; /* weir_log was called: the library no longer prints warnings */
/* The last error that this thread logged since weir_errors_listen, and the text that weir_error
 * returned to it. */
static _Thread_local char heard[LOG_TEXT_BYTES];
static _Thread_local char shown[WEIR_ERROR_BYTES];
static _Thread_local int
    in_line; /* this thread is in line_to, and may hold any lock of the library */
static _Thread_local bool in_first; /* this thread runs a program's function for initial values */

static void on_line(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    if (level == LOG_LEVEL_ERROR)
        snprintf(heard, sizeof heard, "%s", text);
    pthread_mutex_lock(&line_lock);
    in_line = 1;
    if (line_to)
        line_to(line_ctx, (int)level, text);
    else if (!was_asked && level == LOG_LEVEL_WARN)
        warnings_print(text);
    in_line = 0;
    pthread_mutex_unlock(&line_lock);
}

static void divert_log(void)
{
    log_init("weir", -1, LOG_LEVEL_INFO);
    log_divert(on_line, NULL);
}

void weir_errors_divert(void)
{
    pthread_once(&once, divert_log);
}

/* Sets the caller's function. clang cannot follow a lock that is acquired under a condition. */
void weir_log(void (*line)(void *ctx, int level, const char *text), void *ctx) UNCHECKED_LOCKS
{
    weir_errors_divert();
    if (!in_line) /* a thread within line_to already holds the lock */
        pthread_mutex_lock(&line_lock);
    line_to = line;
    line_ctx = ctx;
    was_asked = true;
    if (!in_line)
        pthread_mutex_unlock(&line_lock);
}

/* Returns 1 in a forked process, which has a copy of the handle, but no thread of the library, and
 * in which locks may be held for ever. */
static int is_forked(const struct weir *w)
{
    return w->pid != getpid();
}

void weir_errors_enter_first(bool enters)
{
    in_first = enters;
}

int weir_errors_refuses(struct weir *w)
{
    if (w && is_forked(w))
        return 1; /* weir_error returns the reason */
    if (in_line && w)
        weir_errors_fail(
            w, WEIR_E_INVALID,
            "a function that was passed to weir_log must not call this function: store the line, return, and call it later or from another thread");
    else if (in_first && w)
        weir_errors_fail(w, WEIR_E_INVALID,
                         "a function that writes first values must not call this function");
    return in_line || in_first;
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}

const char *weir_code_text(int code)
{
    switch (code) {
    case WEIR_OK:
        return "ok";
    case WEIR_DONE:
        return "the job is done";
    case WEIR_LEFT:
        return "this member has left";
    case WEIR_AGAIN:
        return "not yet";
    case WEIR_REBASED:
        return "the step no longer counts";
    case WEIR_OVER:
        return "the job is over";
    case WEIR_E_INVALID:
        return "an argument, a setting or a call is wrong";
    case WEIR_E_REFUSED:
        return "refused by the servers";
    case WEIR_E_UNAVAILABLE:
        return "a server cannot be reached, or has lost the parameters";
    case WEIR_E_CANCELLED:
        return "cancelled";
    case WEIR_E_NOMEM:
        return "out of memory, threads or descriptors";
    case WEIR_E_UNSUPPORTED:
        return "not supported";
    case WEIR_E_PROTOCOL:
        return "protocol violated by a server";
    case WEIR_E_IO:
        return "a file cannot be read";
    case WEIR_E_INTERNAL:
        return "internal error";
    default:
        return "unknown code";
    }
}

int weir_errors_code_of(enum status st)
{
    switch (st) {
    case ST_OK:
        return WEIR_OK;
    case ST_REFUSED:
    case ST_MISMATCH:
        return WEIR_E_REFUSED;
    case ST_UNAVAILABLE:
    case ST_DEADLINE:
        return WEIR_E_UNAVAILABLE;
    case ST_CANCELLED:
        return WEIR_E_CANCELLED;
    case ST_NOMEM:
        return WEIR_E_NOMEM;
    case ST_UNSUPPORTED:
        return WEIR_E_UNSUPPORTED;
    case ST_PROTOCOL:
        return WEIR_E_PROTOCOL;
    case ST_IO:
    case ST_FULL:
        return WEIR_E_IO;
    case ST_INVALID:
    case ST_RANGE:
    case ST_NOT_FOUND:
    case ST_CORRUPT:
        return WEIR_E_INVALID;
    default:
        return WEIR_E_INTERNAL;
    }
}

void weir_errors_listen(void)
{
    heard[0] = 0;
}

int weir_errors_fail(struct weir *w, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&w->lock);
    vsnprintf(w->error, sizeof w->error, fmt, ap);
    pthread_mutex_unlock(&w->lock);
    va_end(ap);
    return code;
}

/* Fails with a status that another library returned. If this thread logged no error, a network
 * thread has detected the error, and the error text is the text of the status. */
int weir_errors_fail_st(struct weir *w, enum status st)
{
    char text[LOG_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", heard);
    if (!text[0] && st != ST_CANCELLED)
        log_last_error(text, sizeof text);
    return weir_errors_fail(w, weir_errors_code_of(st), "%s", text[0] ? text : status_text(st));
}

int weir_errors_stop(struct weir *w, int code)
{
    pthread_mutex_lock(&w->lock);
    if (w->state != HANDLE_STOPPED) {
        w->state = HANDLE_STOPPED;
        w->code = code;
        w->tell_stopped = 1;
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    weir_events_signal(w);
    return code;
}

int weir_errors_stopped(struct weir *w)
{
    pthread_mutex_lock(&w->lock);
    int code = w->state == HANDLE_STOPPED ? w->code : 0;
    pthread_mutex_unlock(&w->lock);
    return code;
}

const char *weir_error(struct weir *w)
{
    if (is_forked(w))
        return "this process was forked from the one that opened this member, and cannot use it; start it by exec";
    pthread_mutex_lock(&w->lock);
    memcpy(shown, w->error, sizeof shown);
    pthread_mutex_unlock(&w->lock);
    return shown;
}
