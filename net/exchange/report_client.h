/* net/exchange/report_client.h - tells ps 0 how a worker trains, again and again, over one channel.
 * Threads: send from one; cancel from any. Errors: ST_UNAVAILABLE, ST_DEADLINE, ST_PROTOCOL,
 * ST_REFUSED, ST_CANCELLED, ST_NOMEM; not logged. */
#ifndef NET_EXCHANGE_REPORT_CLIENT_H
#define NET_EXCHANGE_REPORT_CLIENT_H
#include "net/wire/report.h"

struct net_reporter;
enum status net_reporter_create(const char *addr, struct net_reporter **out);
void net_reporter_destroy(struct net_reporter *r); /* NULL is fine */
/* *next_ms: when the next is wanted; 0: nobody watches. */
enum status net_reporter_send(struct net_reporter *r, const struct net_report *report,
                              int64_t deadline_ms, int *next_ms);
/* Ends the send under way, or the next one. */
void net_reporter_cancel(struct net_reporter *r);

#endif
