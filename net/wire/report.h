/* net/wire/report.h - what a worker tells ps 0 of itself while it trains (report.proto), as plain
 * values. Threads: values. Errors: as message.h. */
#ifndef NET_WIRE_REPORT_H
#define NET_WIRE_REPORT_H
#include "net/wire/message.h"

enum { REPORT_MAX_LOSSES = 1 << 30, REPORT_MAX_NEXT_MS = 60000 };

struct net_report {
    int member;    /* index */
    uint64_t life; /* another one whenever the totals begin anew */
    int64_t step;
    int64_t steps, images, ms; /* totals since the start of its sender */
    int64_t n_losses;          /* finite ones, since a report was answered; to REPORT_MAX_LOSSES */
    double loss_sum;           /* of these; as large as that many floats may be */
    int64_t nonfinite_since;   /* step from which on no loss was finite; 0: the last one was */
    int64_t memory_bytes;
};

struct net_report_reply {
    int next_ms; /* until the next report is wanted, at most REPORT_MAX_NEXT_MS; 0: none is */
};

MESSAGE(report, struct net_report)
MESSAGE(report_reply, struct net_report_reply)

#endif
