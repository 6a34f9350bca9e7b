/* base/log.c - see log.h.
 *
 * There are two locks. log_lock guards the ring, and is held only while lines are copied. out_lock
 * is held while a line is written, which may last for ever. Only the writer holds it: the log's
 * thread or, without that thread, each caller. The thread waits for stderr with poll, so that
 * log_stop can cancel it. */
#include "base/log.h"
#include "base/clock.h"
#include "base/guarded.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, GIVE_UP_MS = 200 };

struct line {
    char bytes[LINE_BYTES];
    size_t n, text; /* length of the line, offset of its text */
};

static const char *log_role = "weir";
static _Atomic int log_task = -1;
static enum log_level log_threshold = LOG_LEVEL_INFO;

/* guards the hook, and keeps lines in order */
static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*log_hook)(void *ctx, int before);
static void *log_hook_ctx;

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all variables below */
static void (*log_sink)(void *ctx, enum log_level level, const char *text);
static void *log_sink_ctx;
static struct log_kind *kinds;
static char last_error[LOG_TEXT_BYTES];
static enum { DIRECT, RUNNING, MUTE } state;
static int prepared; /* nonzero after the handlers of exit and fork were registered */
static struct {
    pthread_t thread;
    /* wake: signalled to wake the log's thread; moved: signalled by that thread */
    pthread_cond_t wake, moved;
    int event_fd; /* readable when the thread must stop waiting for stderr */
    int stopping, ended, given_up;
    int redraw; /* the thread must run the hook without a line */
    /* n_in: lines and redraws requested so far; n_out: those of them that are done */
    uint64_t n_in, n_out;
    uint64_t dropped;      /* number of lines dropped after the last line that fitted */
    size_t begin, n_bytes; /* position and length of the bytes in the ring */
    char ring[LOG_RING_BYTES];
} out;

void log_init(const char *role, int task, enum log_level level)
{
    log_role = role;
    log_task = task;
    log_threshold = level;
}

void log_number(int task)
{
    int none = -1;
    atomic_compare_exchange_strong(&log_task, &none, task);
}

static _Thread_local int muted;

enum log_level log_level_get(void)
{
    return log_threshold;
}

void log_set_hook(void (*hook)(void *ctx, int before), void *ctx)
{
    log_flush(LOG_END_MS);
    pthread_mutex_lock(&out_lock);
    log_hook = hook;
    log_hook_ctx = ctx;
    pthread_mutex_unlock(&out_lock);
}

void log_divert(void (*sink)(void *ctx, enum log_level level, const char *text), void *ctx)
{
    pthread_mutex_lock(&log_lock);
    log_sink = sink;
    log_sink_ctx = ctx;
    pthread_mutex_unlock(&log_lock);
}

/* Replaces characters that are not printable, because names from peers and contents of files are
 * logged: a log line must stay one line, without escape sequences. */
static void make_printable(char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
}

static void make_line(struct line *l, enum log_level level, const char *fmt, va_list ap)
{
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    localtime_r(&ts.tv_sec, &tm);
    int n = snprintf(l->bytes, LINE_BYTES, "%c %02d:%02d:%02d.%03ld %s", "DIWE"[level], tm.tm_hour,
                     tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000000, log_role);
    int task = log_task;
    if (task >= 0)
        n += snprintf(l->bytes + n, LINE_BYTES - (size_t)n, ":%d", task);
    l->bytes[n++] = ' ';
    l->text = (size_t)n;
    int m = vsnprintf(l->bytes + n, LINE_BYTES - (size_t)n - 1, fmt, ap);
    l->n = (size_t)n + (size_t)(m < 0 ? 0 : m);
    if (l->n > LINE_BYTES - 2)
        l->n = LINE_BYTES - 2;
    make_printable(l->bytes, l->n);
    l->bytes[l->n++] = '\n';
}

__attribute__((format(printf, 3, 4))) static void print_line(struct line *l, enum log_level level,
                                                             const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    make_line(l, level, fmt, ap);
    va_end(ap);
}

/* Waits until stderr accepts bytes, or is broken. Returns false if log_stop cancelled the wait. */
static bool wait_for_room(void)
{
    struct pollfd fds[2] = {{.fd = STDERR_FILENO, .events = POLLOUT},
                            {.fd = out.event_fd, .events = POLLIN}};
    while (!fds[0].revents && !fds[1].revents)
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return 1;
    return fds[0].revents != 0;
}

/* Writes a line; if n is 0, only runs the hook. by_thread: the caller is the log's thread. A line
 * that cannot be written is lost, since there is no other place to report it. */
static void write_line(const char *bytes, size_t n, int by_thread)
{
    if (by_thread && !wait_for_room())
        return;
    pthread_mutex_lock(&out_lock);
    if (log_hook && n > 0)
        log_hook(log_hook_ctx, 1);
    for (size_t at = 0; at < n;) {
        if (by_thread && !wait_for_room())
            break;
        ssize_t k = write(STDERR_FILENO, bytes + at, n - at);
        if (k < 0 && errno != EINTR && !(by_thread && errno == EAGAIN))
            break;
        at += k > 0 ? (size_t)k : 0;
    }
    if (log_hook)
        log_hook(log_hook_ctx, 0);
    pthread_mutex_unlock(&out_lock);
}

/* ---- the ring; under log_lock ---- */

static void put_bytes(const char *bytes, size_t n)
{
    size_t at = (out.begin + out.n_bytes) % LOG_RING_BYTES;
    size_t first = n < LOG_RING_BYTES - at ? n : LOG_RING_BYTES - at;
    memcpy(out.ring + at, bytes, first);
    memcpy(out.ring, bytes + first, n - first);
    out.n_bytes += n;
    out.n_in++;
    pthread_cond_signal(&out.wake);
}

static void write_dropped(void)
{
    struct line l;
    print_line(&l, LOG_LEVEL_WARN,
               "%" PRIu64 " log lines were dropped at this point, because no program read stderr",
               out.dropped);
    out.dropped = 0;
    put_bytes(l.bytes, l.n);
}

/* Puts a line into the ring, or drops it. After it has dropped a line, drops further lines until
 * many lines fit. */
static void put_line(const struct line *l)
{
    size_t most = out.dropped ? LOG_RING_BYTES / 2 : LOG_RING_BYTES - LINE_BYTES;
    if (out.n_bytes + l->n > most) {
        out.dropped++;
        return;
    }
    if (out.dropped)
        write_dropped();
    put_bytes(l->bytes, l->n);
}

static size_t take_line(char *bytes)
{
    size_t n = 0;
    do {
        bytes[n] = out.ring[out.begin];
        out.begin = (out.begin + 1) % LOG_RING_BYTES;
    } while (bytes[n++] != '\n');
    out.n_bytes -= n;
    return n;
}

/* Writes a summary for each kind of lines that has withheld lines, if its limit allows this or the
 * log ends. Returns the time at which the next summary is due; INT64_MAX: none. */
static int64_t write_withheld(void)
{
    struct line l;
    int64_t next_ns = INT64_MAX, now_ns = clock_now_ns();
    for (struct log_kind *k = kinds; k; k = k->next) {
        uint64_t n = k->limit.withheld;
        if (n == 0)
            continue;
        if (!out.stopping && log_limit_next_ns(&k->limit) > now_ns) {
            if (log_limit_next_ns(&k->limit) < next_ns)
                next_ns = log_limit_next_ns(&k->limit);
            continue;
        }
        log_limit_take(&k->limit, now_ns);
        k->limit.withheld = 0;
        if (n > 1)
            print_line(&l, k->level, "%s (and %" PRIu64 " more like it)", k->last, n - 1);
        else
            print_line(&l, k->level, "%s", k->last);
        put_line(&l);
    }
    return next_ns;
}

/* Reports lost and withheld lines when the ring is empty, and waits for lines. Returns true if the
 * thread must end. */
static bool wait_for_lines(void) REQUIRES(log_lock)
{
    if (out.dropped)
        write_dropped();
    int64_t next_ns = write_withheld();
    if (out.n_bytes > 0)
        return 0;
    if (out.stopping)
        return 1;
    if (next_ns == INT64_MAX)
        pthread_cond_wait(&out.wake, &log_lock);
    else
        clock_cond_wait(&out.wake, &log_lock, next_ns);
    return 0;
}

static void *thread_main(void *arg)
{
    char bytes[LINE_BYTES];
    pthread_mutex_lock(&log_lock);
    while (!out.given_up) {
        if (out.n_bytes == 0 && !out.redraw) {
            if (wait_for_lines())
                break;
            continue;
        }
        size_t n = out.n_bytes > 0 ? take_line(bytes) : 0;
        /* the hook has also drawn the bar after the line */
        uint64_t n_done = (n > 0) + (out.redraw != 0);
        out.redraw = 0;
        pthread_mutex_unlock(&log_lock);
        write_line(bytes, n, 1);
        pthread_mutex_lock(&log_lock);
        out.n_out += n_done;
        pthread_cond_broadcast(&out.moved);
    }
    state = out.given_up ? MUTE : DIRECT;
    out.ended = 1;
    pthread_cond_broadcast(&out.moved);
    pthread_mutex_unlock(&log_lock);
    return NULL;
}

static void at_exit(void)
{
    log_stop(LOG_END_MS);
}

static void before_fork(void) ACQUIRES(log_lock)
{
    pthread_mutex_lock(&log_lock);
}

static void after_fork(void) RELEASES(log_lock)
{
    pthread_mutex_unlock(&log_lock);
}

/* Resets the log in a forked child: the thread and the lines in the ring belong to the parent, and
 * the parent's thread may have held out_lock. */
static void in_child(void) RELEASES(log_lock)
{
    pthread_mutex_init(&out_lock, NULL);
    if (state == RUNNING)
        state = DIRECT;
    out.n_bytes = 0;
    out.dropped = 0;
    out.redraw = 0;
    for (struct log_kind *k = kinds; k; k = k->next)
        k->limit.withheld = 0;
    pthread_mutex_unlock(&log_lock);
}

/* Starts the thread with all signals blocked: other threads handle them. */
static int start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&out.thread, NULL, thread_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

void log_start(void)
{
    pthread_mutex_lock(&log_lock);
    int err = 0, was = state;
    if (!prepared)
        err = atexit(at_exit) || pthread_atfork(before_fork, after_fork, in_child) ? ENOMEM : 0;
    prepared |= !err;
    if (!err && was != RUNNING) {
        out.stopping = out.ended = out.given_up = out.redraw = 0;
        out.n_in = out.n_out = out.dropped = out.n_bytes = 0;
        clock_cond_init(&out.wake);
        clock_cond_init(&out.moved);
        out.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        err = out.event_fd < 0 ? errno : start_thread();
        if (err && out.event_fd >= 0)
            close(out.event_fd);
        state = err ? DIRECT : RUNNING;
    }
    pthread_mutex_unlock(&log_lock);
    if (err)
        LOG_W(
            "the log's thread cannot be started: %s; if no program reads stderr, this program will block",
            strerror(err));
}

int log_flush(int64_t ms)
{
    int64_t deadline_ns = clock_deadline_ns(ms);
    pthread_mutex_lock(&log_lock);
    uint64_t until = out.n_in;
    while (state == RUNNING && out.n_out < until)
        if (clock_cond_wait(&out.moved, &log_lock, deadline_ns) != 0)
            break;
    int flushed = state == DIRECT || out.n_out >= until;
    pthread_mutex_unlock(&log_lock);
    return flushed;
}

void log_redraw(void)
{
    pthread_mutex_lock(&log_lock);
    int direct = state == DIRECT;
    if (state == RUNNING && !out.redraw) {
        out.redraw = 1;
        out.n_in++;
        pthread_cond_signal(&out.wake);
    }
    pthread_mutex_unlock(&log_lock);
    if (direct)
        write_line(NULL, 0, 0);
}

static void wait_for_end(int64_t ms) REQUIRES(log_lock)
{
    int64_t deadline_ns = clock_deadline_ns(ms);
    while (!out.ended && clock_cond_wait(&out.moved, &log_lock, deadline_ns) == 0)
        ;
}

int log_stop(int64_t ms)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&log_lock);
    int running = state == RUNNING, ended = 1;
    if (running) {
        out.stopping = 1;
        pthread_cond_signal(&out.wake);
        wait_for_end(ms);
        if (!out.ended) {
            out.given_up = 1;
            if (write(out.event_fd, &one, sizeof one) == sizeof one)
                wait_for_end(GIVE_UP_MS);
            state = MUTE;
        }
        ended = out.ended;
    }
    int flushed = state == DIRECT;
    pthread_mutex_unlock(&log_lock);
    /* otherwise the thread hangs in a write, and ends only with the process */
    if (running && ended) {
        pthread_join(out.thread, NULL);
        close(out.event_fd);
    }
    return flushed;
}

static void emit_line(enum log_level level, struct line *l)
{
    pthread_mutex_lock(&log_lock);
    int direct = 0;
    if (level == LOG_LEVEL_ERROR)
        snprintf(last_error, sizeof last_error, "%.*s", (int)(l->n - 1 - l->text),
                 l->bytes + l->text);
    if (log_sink) {
        l->bytes[l->n - 1] = '\0';
        log_sink(log_sink_ctx, level, l->bytes + l->text);
    } else if (state == RUNNING) {
        put_line(l);
    } else {
        direct = state == DIRECT;
    }
    pthread_mutex_unlock(&log_lock);
    if (direct)
        write_line(l->bytes, l->n, 0);
}

void log_last_error(char *to, size_t bytes)
{
    pthread_mutex_lock(&log_lock);
    snprintf(to, bytes, "%s", last_error);
    pthread_mutex_unlock(&log_lock);
}

void log_mute(int is_muted)
{
    muted = is_muted;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    struct line l;
    va_list ap;
    if (muted)
        return;
    va_start(ap, fmt);
    make_line(&l, level, fmt, ap);
    va_end(ap);
    emit_line(level, &l);
}

/* Returns 1 if the line may be written, otherwise 0. *more receives the number of lines of this
 * kind that were withheld before this line. The caller holds log_lock. */
static int may_write(struct log_kind *k, enum log_level level, const char *text, uint64_t *more)
{
    *more = k->limit.withheld;
    if (!k->listed) {
        k->listed = 1;
        k->next = kinds;
        kinds = k;
    }
    if (log_limit_take(&k->limit, clock_now_ns())) {
        k->limit.withheld = 0;
        return 1;
    }
    k->level = level;
    snprintf(k->last, sizeof k->last, "%s", text);
    if (k->limit.withheld == 1 && state == RUNNING)
        /* the thread must report withheld lines of this kind in time */
        pthread_cond_signal(&out.wake);
    return 0;
}

void log_write_few(struct log_kind *kind, enum log_level level, const char *fmt, ...)
{
    char text[LOG_TEXT_BYTES];
    uint64_t more = 0;
    va_list ap;
    if (level < log_threshold)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&log_lock);
    int may = may_write(kind, level, text, &more);
    pthread_mutex_unlock(&log_lock);
    if (may && more)
        log_write(level, "%s (and %" PRIu64 " more like it before)", text, more);
    else if (may)
        log_write(level, "%s", text);
}
