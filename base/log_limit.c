/* base/log_limit.c - a token bucket: `used` tokens are used, and one of them becomes free again
 * each LOG_LIMIT_MS. */
#include "base/log_limit.h"

static const int64_t each_ns = LOG_LIMIT_MS * 1000000LL;

static int burst_of(const struct log_limit *l)
{
    return l->burst > 0 ? l->burst : LOG_LIMIT_BURST;
}

int log_limit_take(struct log_limit *l, int64_t now_ns)
{
    int64_t back = l->used > 0 ? (now_ns - l->since_ns) / each_ns : 0;
    if (back > 0) {
        l->used = back < l->used ? l->used - (int)back : 0;
        l->since_ns += back * each_ns;
    }
    if (l->used >= burst_of(l)) {
        l->withheld++;
        return 0;
    }
    if (l->used++ == 0)
        l->since_ns = now_ns;
    return 1;
}

int64_t log_limit_next_ns(const struct log_limit *l)
{
    return l->used < burst_of(l) ? l->since_ns : l->since_ns + each_ns;
}
