/* net/rpc/unary.h - one message there, one back, waited for by the thread that asks, on a queue
 * that serves nobody else. What servers ask each other and people ask servers goes this way; what
 * workers send while they train does not.
 * Private to net/.
 * Owns:    a channel; it connects when it is used.
 * Threads: one calls, any cancels.
 * Errors:  ST_UNAVAILABLE, ST_DEADLINE, ST_CANCELLED, ST_REFUSED (not by who this program
 *          is, or shows to be), ST_PROTOCOL (the server knows no such method,
 *          or would not take the message), ST_NOMEM; not logged, a sentence in `why`. */
#ifndef NET_RPC_UNARY_H
#define NET_RPC_UNARY_H
#include "base/status.h"
#include "net/wire/message.h"

struct net_unary;
/* max_reply_bytes: of the longest message that is taken. */
enum status net_unary_create(const char *addr, int max_reply_bytes, struct net_unary **out);
void net_unary_destroy(struct net_unary *u); /* NULL is fine */

/* An encoded message. */
struct net_unary_bytes {
    uint8_t *data;
    size_t n;
};
/* method: "/weir.v1.Weir/Coordinate"; static. reply: malloc'd, given to the caller. The call ends
 * at the deadline at the latest. */
enum status net_unary_call(struct net_unary *u, const char *method,
                           const struct net_unary_bytes *request, int64_t deadline_ms,
                           struct net_unary_bytes *reply, char why[MESSAGE_WHY_BYTES]);
/* Ends the call under way with ST_CANCELLED; if there is none, the next. */
void net_unary_cancel(struct net_unary *u);

/* What a client packs, sends and reads for one call; `why`: what goes wrong, "out of
 * memory" at first. */
struct net_unary_messages {
    struct net_unary_bytes request, reply;
    char why[MESSAGE_WHY_BYTES];
};
/* Frees both. st: how it went, up to the reply's reading; returns it, and a reply that could be
 * read and is not valid as ST_PROTOCOL. why: m's, if it did not go well. */
enum status net_unary_end(struct net_unary_messages *m, enum status st,
                          char why[CONTROL_TEXT_BYTES]);

#endif
