/* base/log_limit.h - limits the rate of log lines of one kind that a peer can cause. It allows
 * LOG_LIMIT_BURST (or `burst`) lines at once, then one line each LOG_LIMIT_MS; further lines are
 * only counted. `now_ns` is the caller's clock and must not decrease. Threads: the caller holds a
 * lock.
 * Errors: none. */
#ifndef BASE_LOG_LIMIT_H
#define BASE_LOG_LIMIT_H
#include <stdint.h>

enum { LOG_LIMIT_BURST = 10, LOG_LIMIT_MS = 10000 };

struct log_limit {     /* all zeros: no line was written or withheld yet */
    int burst;         /* lines that may be written at once; 0: LOG_LIMIT_BURST */
    int used;          /* tokens of the burst that are used */
    int64_t since_ns;  /* if used > 0: the next token becomes free LOG_LIMIT_MS after this time */
    uint64_t withheld; /* lines that were not written; the caller reports them and sets it to 0 */
};

/* Returns 1 if a line may be written now; otherwise returns 0 and counts the line in `withheld`. */
int log_limit_take(struct log_limit *l, int64_t now_ns);
/* Returns when the next line may be written. */
int64_t log_limit_next_ns(const struct log_limit *l);

#endif
