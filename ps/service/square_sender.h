/* ps/service/square_sender.h - sends the sum of squares of each of this server's chunks, which are
 * its part of the norm of each step's mean gradient (store/clip.c), to the other servers of a
 * generation. It retries each server that is away or busy until that server accepts them.
 * Owns:    for each other server that has chunks a channel and a thread.
 * Threads: put from any, destroy from one, after the last put. destroy ends the calls in flight.
 * Errors:  ST_NOMEM, logged. */
#ifndef PS_SERVICE_SQUARE_SENDER_H
#define PS_SERVICE_SQUARE_SENDER_H
#include "net/wire/plan.h"

struct square_sender;
/* Creates a sender, and copies what it needs from `plan`; `self` is this server's number in the
 * plan. *out is NULL if there is no other server to send to, nothing to send, or the servers do not
 * clip by the norm. */
enum status square_sender_create(const struct net_plan *plan, int self, struct square_sender **out);
void square_sender_destroy(struct square_sender *s); /* NULL is fine. */
/* Queues the sums of squares of a step; each call is for the step after that of the call before. It
 * is a callback for store_config.squares with the sender as ctx. */
void square_sender_put(void *ctx, int64_t step, const double *square, int n);

#endif
