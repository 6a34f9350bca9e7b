/* net/exchange/peer_client.h - calls from one server of a job to another, one call at a time. A
 * server sends ps 0 its state, and ps 0 answers with orders (control.h). A server also sends its
 * squares for a norm (squares.h) and, in a region, messages about gates (gate.h).
 * Owns:    its channel.
 * Threads: one thread calls; any thread may cancel.
 * Errors:  ST_UNAVAILABLE, ST_DEADLINE, ST_CANCELLED, ST_REFUSED (see unary.h), ST_PROTOCOL (the
 *          peer has no such call, or rejects the message), ST_NOMEM; not logged: `why` receives a
 *          sentence. */
#ifndef NET_EXCHANGE_PEER_CLIENT_H
#define NET_EXCHANGE_PEER_CLIENT_H
#include "base/status.h"
#include "net/wire/control.h"
#include "net/wire/gate.h"
#include "net/wire/squares.h"

struct peer_client;
enum status peer_client_create(const char *addr, struct peer_client **out);
void peer_client_destroy(struct peer_client *c); /* NULL is fine */
/* Ends the current call with ST_CANCELLED; if no call is active, the next one. */
void peer_client_cancel(struct peer_client *c);

enum status peer_client_control(struct peer_client *c, const struct net_control *request,
                                int64_t deadline_ms, struct net_control_reply *reply,
                                char why[CONTROL_TEXT_BYTES]);
enum status peer_client_squares(struct peer_client *c, const struct net_squares *squares,
                                int64_t deadline_ms, struct net_squares_reply *reply,
                                char why[CONTROL_TEXT_BYTES]);
enum status peer_client_gate(struct peer_client *c, const struct net_gate *gate,
                             int64_t deadline_ms, struct net_squares_reply *reply,
                             char why[CONTROL_TEXT_BYTES]);

#endif
