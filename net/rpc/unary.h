/* net/rpc/unary.h - calls with one request and one reply. The calling thread waits for the reply on
 * its own queue. Calls between servers and those of operators use it; the traffic of workers during
 * training does not. Private to net/.
 * Owns:    a channel, which connects when it is used.
 * Threads: one thread calls; any thread may cancel.
 * Errors:  ST_UNAVAILABLE, ST_DEADLINE, ST_CANCELLED, ST_REFUSED (this program's identity may not
 *          make this call), ST_PROTOCOL (the server has no such method, or rejects the message),
 *          ST_NOMEM; not logged: `why` receives a sentence. */
#ifndef NET_RPC_UNARY_H
#define NET_RPC_UNARY_H
#include "base/status.h"
#include "net/wire/message.h"

struct net_unary;
/* Makes a client of one server. max_reply_bytes: longest reply that it accepts. */
enum status net_unary_create(const char *addr, int max_reply_bytes, struct net_unary **out);
void net_unary_destroy(struct net_unary *u); /* NULL is fine */

/* An encoded message. */
struct net_unary_bytes {
    uint8_t *data;
    size_t n;
};
/* Makes a call, which ends at the deadline at the latest. method: static text such as
 * "/weir.v1.Weir/Coordinate". reply: malloc'd; the caller frees it. */
enum status net_unary_call(struct net_unary *u, const char *method,
                           const struct net_unary_bytes *request, int64_t deadline_ms,
                           struct net_unary_bytes *reply, char why[MESSAGE_WHY_BYTES]);
/* Ends the current call with ST_CANCELLED; if no call is active, the next one. */
void net_unary_cancel(struct net_unary *u);

/* Request and reply of one call, encoded. `why`: the reason of a failure; initially "out of
 * memory". */
struct net_unary_messages {
    struct net_unary_bytes request, reply;
    char why[MESSAGE_WHY_BYTES];
};
/* Frees both messages. st: result of the call and of decoding the reply. Returns st, but
 * ST_PROTOCOL instead of ST_INVALID, which means that the reply has an invalid value. why: receives
 * m's reason unless st is ST_OK. */
enum status net_unary_end(struct net_unary_messages *m, enum status st,
                          char why[CONTROL_TEXT_BYTES]);

#endif
