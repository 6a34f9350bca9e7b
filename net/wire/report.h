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

enum status message_report_pack(const struct net_report *report, uint8_t **data, size_t *bytes);
enum status message_report_unpack(const uint8_t *data, size_t bytes, struct net_report *report,
                                  char why[MESSAGE_WHY_BYTES]);
/* next_ms: 0 to REPORT_MAX_NEXT_MS. */
enum status message_report_reply_pack(int next_ms, uint8_t **data, size_t *bytes);
enum status message_report_reply_unpack(const uint8_t *data, size_t bytes, int *next_ms,
                                        char why[MESSAGE_WHY_BYTES]);

#endif
