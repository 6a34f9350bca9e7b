/* net/exchange/control_client.h - a control call to ps 0, one after the other.
 * Owns:    its channel.
 * Threads: one calls, any cancels.
 * Errors:  ST_UNAVAILABLE, ST_DEADLINE, ST_CANCELLED, ST_PROTOCOL, ST_NOMEM; not logged, a sentence
 *          in `why`. */
#ifndef NET_EXCHANGE_CONTROL_CLIENT_H
#define NET_EXCHANGE_CONTROL_CLIENT_H
#include "base/status.h"
#include "net/wire/control.h"

struct net_control_client;
enum status net_control_create(const char *addr, struct net_control_client **out);
void net_control_destroy(struct net_control_client *c); /* NULL is fine */
enum status net_control_call(struct net_control_client *c, const struct net_control *request,
                             int64_t deadline_ms, struct net_control_reply *reply,
                             char why[CONTROL_TEXT_BYTES]);
/* Ends the call under way with ST_CANCELLED; if there is none, the next. */
void net_control_cancel(struct net_control_client *c);

#endif
