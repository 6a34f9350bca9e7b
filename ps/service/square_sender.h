/* ps/service/square_sender.h - tells the other servers of a generation what this one's chunks add
 * to the norm of each step's mean gradient (store/clip.c), each until it has taken it: whoever is
 * away or busy is told again.
 * Owns:    for each other server that has chunks a channel and a thread.
 * Threads: put from any, destroy by one, after the last put; it ends the calls under way.
 * Errors:  ST_NOMEM, logged. */
#ifndef PS_SERVICE_SQUARE_SENDER_H
#define PS_SERVICE_SQUARE_SENDER_H
#include "net/wire/plan.h"

struct square_sender;
/* plan: copied from. self: this server's number in it. *out: NULL if there is nobody to be told, or
 * nothing to tell, or the job's servers do not clip by the norm. */
enum status square_sender_create(const struct net_plan *plan, int self, struct square_sender **out);
void square_sender_destroy(struct square_sender *s); /* NULL is fine */
/* As store_config.squares; ctx: the sender. Steps come one after the other. */
void square_sender_put(void *ctx, int64_t step, const double *square, int n);

#endif
