/* net/exchange/report_client.h - sends ps 0 reports on a worker's training, all over one
 * channel.
 * Threads: one thread sends; any thread may cancel.
 * Errors:  ST_UNAVAILABLE, ST_DEADLINE, ST_PROTOCOL, ST_REFUSED, ST_CANCELLED, ST_NOMEM; not
 *          logged. */
#ifndef NET_EXCHANGE_REPORT_CLIENT_H
#define NET_EXCHANGE_REPORT_CLIENT_H
#include "net/wire/report.h"

struct report_client;
enum status report_client_create(const char *addr, struct report_client **out);
void report_client_destroy(struct report_client *r); /* NULL is fine */
/* Sends one report. *next_ms: time until ps 0 expects the next report; 0: ps 0 needs no more. */
enum status report_client_send(struct report_client *r, const struct net_report *report,
                               int64_t deadline_ms, int *next_ms);
/* Ends the current send, or the next one. */
void report_client_cancel(struct report_client *r);

#endif
