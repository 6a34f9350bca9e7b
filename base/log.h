/* base/log.h - one line per event on stderr: level, time, role and task, exact cause.
 *     W 14:02:11.532 worker:2 push to ps:1 (10.0.0.7:2221): deadline 500 ms passed, retrying
 * After log_start a line goes into a ring of bounded size, from which a thread of the log's own
 * writes: who logs never waits for stderr, whatever locks it holds. Where nobody reads stderr and
 * the ring is full, lines are dropped, and their number is told by a line in their place. Without
 * log_start (tools, tests, a child after fork) whoever logs writes.
 * Threads: any; a line is written by one write(2), so lines never mix, and they keep their order.
 * Errors:  none; what cannot be logged is lost. */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include "base/log_limit.h"
#include <stddef.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum { LOG_TEXT_BYTES = 900, LOG_RING_BYTES = 256 << 10, LOG_END_MS = 2000 };

/* role: "ps" or "worker", borrowed for ever; task < 0: no number is shown. Call before threads. */
void log_init(const char *role, int task, enum log_level level);
enum log_level log_level_get(void);

/* The thread, once; without one, said by a line, all stays as it was. At exit log_stop is called
 * with LOG_END_MS. Call before other threads. */
void log_start(void);
/* Waits until all that was logged before is written, for at most `ms`. 1: it is. */
int log_flush(int64_t ms);
/* Writes what is left and ends the thread. After `ms` (nobody reads stderr) it gives up: 0, and no
 * line is written any more. */
int log_stop(int64_t ms);

/* Drops lines of log_write that the calling thread logs until it calls log_mute(0): for a caller
 * that counts errors of a kind, of which it has shown enough. */
void log_mute(int is_muted);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A place in the code whose lines are rationed (log_limit.h). What was withheld is told by the next
 * line, or, after log_start, when one more may be written: the last of them, and how many more. Its
 * memory stays for ever. */
struct log_kind {
    struct log_limit limit;
    struct log_kind *next; /* NULL: it is on no list yet, or the last */
    int listed;
    enum log_level level;
    char last[LOG_TEXT_BYTES]; /* withheld > 0: the last that was */
};
void log_write_few(struct log_kind *kind, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* While a hook is set (a progress bar), it runs around each line: before=1 clears, before=0
 * redraws. It runs with a lock of the log's held and must not log. NULL takes it away; lines logged
 * before are written first, if they can be within LOG_END_MS. */
void log_set_hook(void (*hook)(void *ctx, int before), void *ctx);
/* Has the log's thread run the hook with before=0, without a line, so that the caller does not wait
 * for stderr. Without that thread the caller runs it. */
void log_redraw(void);

/* While a sink is set, lines go to it instead of to stderr, without time and role: for a program
 * that reports an error in its own way. It runs with the log's lock held and must not log; text is
 * borrowed for the call. NULL takes it away. */
void log_divert(void (*sink)(void *ctx, enum log_level level, const char *text), void *ctx);

/* The text of the last line of level ERROR, cut to fit; empty: there was none. It is what a program
 * that ends with an error can tell others of the cause. */
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

/* A warning that a peer brings about, as often as it likes. */
#define LOG_FEW(...)                                                                               \
    do {                                                                                           \
        static struct log_kind kind_;                                                              \
        log_write_few(&kind_, LOG_LEVEL_WARN, __VA_ARGS__);                                        \
    } while (0)

#endif
