/* net/exchange/gate_client.h - tells another server of a region what it is to know (gate.h).
 * Owns:    its channel.
 * Threads: one calls, any cancels.
 * Errors:  as squares_client.h. */
#ifndef NET_EXCHANGE_GATE_CLIENT_H
#define NET_EXCHANGE_GATE_CLIENT_H
#include "base/status.h"
#include "net/wire/gate.h"

struct net_gate_client;
enum status net_gate_create(const char *addr, struct net_gate_client **out);
void net_gate_destroy(struct net_gate_client *c); /* NULL is fine */
enum status net_gate_call(struct net_gate_client *c, const struct net_gate *gate,
                          int64_t deadline_ms, struct net_squares_reply *reply,
                          char why[CONTROL_TEXT_BYTES]);
/* Ends the call under way with ST_CANCELLED; if there is none, the next. */
void net_gate_cancel(struct net_gate_client *c);

#endif
