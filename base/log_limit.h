/* base/log_limit.h - how often lines of one kind may be written, where a peer decides how often
 * they are due: LOG_LIMIT_BURST at once (or as many as the user says), then one each LOG_LIMIT_MS;
 * the others are counted. A value; `now_ns` is the caller's clock, and must not fall. Threads:
 * none; under its user's lock. Errors: none. */
#ifndef BASE_LOG_LIMIT_H
#define BASE_LOG_LIMIT_H
#include <stdint.h>

enum { LOG_LIMIT_BURST = 10, LOG_LIMIT_MS = 10000 };

struct log_limit {     /* zeros: all may be written */
    int burst;         /* so many at once; 0: LOG_LIMIT_BURST */
    int used;          /* of those */
    int64_t since_ns;  /* used > 0: from when on the next comes back */
    uint64_t withheld; /* lines; its user tells them, and sets it to 0 */
};

/* A line is due. 1: it is to be written; 0: it is counted in `withheld`. */
int log_limit_take(struct log_limit *l, int64_t now_ns);
/* When the next may be written. */
int64_t log_limit_next_ns(const struct log_limit *l);

#endif
