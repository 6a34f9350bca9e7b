/* base/log.h - one line per event on stderr: level, time, role and task, exact cause.
 *     W 14:02:11.532 worker:2 push to ps:1 (10.0.0.7:2221): deadline 500 ms passed, retrying
 * Threads: any; a line is written by one write(2), so lines never mix.
 * Errors:  none; what cannot be logged is lost. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* role: "ps" or "worker", borrowed for ever; task < 0: no number is shown. Call before threads. */
void log_init(const char *role, int task, enum log_level level);
enum log_level log_level_get(void);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* While a hook is set (a progress bar), it runs around each line: before=1 clears, before=0
 * redraws. It runs with the log's lock held and must not log. NULL takes it away. */
void log_set_hook(void (*hook)(void *ctx, int before), void *ctx);

/* While a sink is set, lines go to it instead of to stderr, without time and role: for a program
 * that reports an error in its own way. It runs with the log's lock held and must not log; text is
 * borrowed for the call. NULL takes it away. */
void log_divert(void (*sink)(void *ctx, enum log_level level, const char *text), void *ctx);

#define LOG_AT(level, ...)                                                                         \
    do {                                                                                           \
        if ((level) >= log_level_get())                                                            \
            log_write((level), __VA_ARGS__);                                                       \
    } while (0)
#define LOG_D(...) LOG_AT(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define LOG_I(...) LOG_AT(LOG_LEVEL_INFO, __VA_ARGS__)
#define LOG_W(...) LOG_AT(LOG_LEVEL_WARN, __VA_ARGS__)
#define LOG_E(...) LOG_AT(LOG_LEVEL_ERROR, __VA_ARGS__)

#endif
