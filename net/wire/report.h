/* net/wire/report.h - a worker's reports to ps 0 during training (report.proto), as plain
 * values.
 * Threads: plain values without a lock.
 * Errors:  those of message.h. */
#ifndef NET_WIRE_REPORT_H
#define NET_WIRE_REPORT_H
#include "net/wire/message.h"

enum { REPORT_MAX_LOSSES = 1 << 30, REPORT_MAX_NEXT_MS = 60000 };

struct net_report {
    int member;    /* index */
    uint64_t life; /* number that changes whenever the totals restart at zero */
    int64_t step;
    int64_t steps, images, ms; /* totals since the start of the worker */
    int64_t n_losses;          /* number of finite losses since the last answered report; at most
                                  REPORT_MAX_LOSSES */
    double loss_sum;           /* sum of these losses */
    /* first step of those at the end that had no finite loss; 0: the last loss was finite */
    int64_t nonfinite_since;
    int64_t memory_bytes;
};

struct net_report_reply {
    int next_ms; /* time until the next report, at most REPORT_MAX_NEXT_MS; 0: no more reports */
};

MESSAGE(report, struct net_report)
MESSAGE(report_reply, struct net_report_reply)

#endif
