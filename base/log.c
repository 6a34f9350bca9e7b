/* base/log.c - see log.h. */
#include "base/log.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *log_role = "weir";
static int log_task = -1;
static enum log_level log_threshold = LOG_LEVEL_INFO;

static pthread_mutex_t log_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the four below, orders lines */
static void (*log_hook)(void *ctx, int before);
static void *log_hook_ctx;
static void (*log_sink)(void *ctx, enum log_level level, const char *text);
static void *log_sink_ctx;

void log_init(const char *role, int task, enum log_level level)
{
    log_role = role;
    log_task = task;
    log_threshold = level;
}

enum log_level log_level_get(void)
{
    return log_threshold;
}

void log_set_hook(void (*hook)(void *ctx, int before), void *ctx)
{
    pthread_mutex_lock(&log_lock);
    log_hook = hook;
    log_hook_ctx = ctx;
    pthread_mutex_unlock(&log_lock);
}

void log_divert(void (*sink)(void *ctx, enum log_level level, const char *text), void *ctx)
{
    pthread_mutex_lock(&log_lock);
    log_sink = sink;
    log_sink_ctx = ctx;
    pthread_mutex_unlock(&log_lock);
}

/* Peers' names and files' contents reach the log: a line must stay one line, without escapes. */
static void make_printable(char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
}

void log_write(enum log_level level, const char *fmt, ...)
{
    char line[1024];
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    localtime_r(&ts.tv_sec, &tm);
    int n = snprintf(line, sizeof line, "%c %02d:%02d:%02d.%03ld %s", "DIWE"[level], tm.tm_hour,
                     tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000000, log_role);
    if (log_task >= 0)
        n += snprintf(line + n, sizeof line - (size_t)n, ":%d", log_task);
    line[n++] = ' ';
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    if (m < 0)
        m = 0;
    size_t len = (size_t)n + (size_t)m;
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    make_printable(line, len);
    line[len++] = '\n';
    pthread_mutex_lock(&log_lock);
    if (log_hook)
        log_hook(log_hook_ctx, 1);
    if (log_sink) {
        line[len - 1] = '\0';
        log_sink(log_sink_ctx, level, line + n);
    } else if (write(STDERR_FILENO, line, len) < 0) {
        /* nowhere left to say it */
    }
    if (log_hook)
        log_hook(log_hook_ctx, 0);
    pthread_mutex_unlock(&log_lock);
}
