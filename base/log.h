/* base/log.h - one line per event on stderr: level, time, role and task, exact cause:
 *     W 14:02:11.532 worker:2 push to ps:1 (10.0.0.7:2221): deadline 500 ms passed, retrying
 * After log_start, lines are copied into a ring of bounded size, and the log's own thread writes
 * them. So a thread that logs never waits for stderr, whatever locks it holds. If no program reads
 * stderr and the ring is full, lines are dropped, and a later line reports their number. Without
 * log_start (tools, tests, a child after fork) the thread that logs writes the line.
 * Threads: any; a line is written by one write(2), so lines never mix, and they keep their order.
 * Errors:  none; a line that cannot be written is lost. */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include "base/log_limit.h"
#include <stddef.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum { LOG_TEXT_BYTES = 900, LOG_RING_BYTES = 256 << 10, LOG_END_MS = 2000 };

/* Sets the name of this program in its log lines. role: "ps" or "worker", which must never be
 * freed; task: its number; below 0: no number is shown. Call before other threads start. */
void log_init(const char *role, int task, enum log_level level);
/* Sets the number of a program that began without one (--join), once a job has given it one. A
 * later call has no effect. Any thread may call it. */
void log_number(int task);
enum log_level log_level_get(void);

/* Starts the log's thread, once. If that fails, logs a warning, and the threads that log continue
 * to write their own lines. At exit log_stop(LOG_END_MS) is called. Call before other threads
 * start. */
void log_start(void);
/* Waits until all lines that were logged before this call are written, but at most `ms`. Returns 1
 * if all are written, otherwise 0. */
int log_flush(int64_t ms);
/* Writes the lines in the ring and ends the thread. Returns 0 if that lasts longer than `ms`,
 * because no program reads stderr; no line is written after that. */
int log_stop(int64_t ms);

/* Drops the log lines of the calling thread until it calls log_mute(0). A caller that may cause
 * many errors of one kind mutes them after the first few lines, and counts them. */
void log_mute(int is_muted);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The log lines of one kind, which one statement logs and whose rate is limited (log_limit.h). A
 * summary reports the last withheld line and the number of other withheld lines. It is part of the
 * kind's next line. If log_start was called, it is a separate line as soon as the limit allows. The
 * memory of a kind must stay valid until the process exits. */
struct log_kind {
    struct log_limit limit;
    /* next kind in the list; NULL: this is the last one, or is in no list yet */
    struct log_kind *next;
    int listed;
    enum log_level level;
    char last[LOG_TEXT_BYTES]; /* text of the last withheld line; not set if no line was withheld */
};
void log_write_few(struct log_kind *kind, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets a hook (a progress bar), which runs around each line: before=1 clears, before=0 redraws. It
 * runs with a lock of the log held and must not log. NULL removes the hook, after all earlier lines
 * are written or LOG_END_MS have passed. */
void log_set_hook(void (*hook)(void *ctx, int before), void *ctx);
/* Makes the log's thread run the hook with before=0, without a line, so that the caller does not
 * wait for stderr. Without that thread the caller runs the hook. */
void log_redraw(void);

/* Sends lines to the sink instead of stderr, without time and role: for a program that reports
 * errors in its own way. The sink runs with the log's lock held and must not log; text is valid
 * until the sink returns. NULL removes the sink. */
void log_divert(void (*sink)(void *ctx, enum log_level level, const char *text), void *ctx);

/* Copies the text of the last line of level ERROR, cut to fit; empty: there was none. A program
 * that ends with an error sends this text to its peers as the cause. */
void log_last_error(char *to, size_t bytes);

#define LOG_AT(level, ...)                                                                         \
    do {                                                                                           \
        if ((level) >= log_level_get())                                                            \
            log_write((level), __VA_ARGS__);                                                       \
    } while (0)
#define LOG_D(...) LOG_AT(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define LOG_I(...) LOG_AT(LOG_LEVEL_INFO, __VA_ARGS__)
#define LOG_W(...) LOG_AT(LOG_LEVEL_WARN, __VA_ARGS__)
#define LOG_E(...) LOG_AT(LOG_LEVEL_ERROR, __VA_ARGS__)

/* Logs a warning at a limited rate, for events that a peer can cause at any rate. */
#define LOG_FEW(...)                                                                               \
    do {                                                                                           \
        static struct log_kind kind_;                                                              \
        log_write_few(&kind_, LOG_LEVEL_WARN, __VA_ARGS__);                                        \
    } while (0)

#endif
