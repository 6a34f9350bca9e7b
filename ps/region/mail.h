/* ps/region/mail.h - sends letters from a region's server to other servers of its region, one after
 * the other. It retries a letter until the receiver has accepted it, or until the letter's
 * generation is over.
 *
 * Owns:    undelivered letters, its channels, a thread.
 * Threads: put and is_empty from any, also under a chunk's lock; the remaining functions from one.
 * Errors:  ST_NOMEM. */
#ifndef PS_REGION_MAIL_H
#define PS_REGION_MAIL_H
#include "net/wire/gate.h"
#include "net/wire/plan.h"
#include <stdbool.h>

struct mail_config {
    /* Called when a receiver has refused a letter, which was logged: the callee is to end this
     * process. No lock is held. */
    void (*refused)(void *ctx);
    void *ctx;
};

struct mail;
enum status mail_create(const struct mail_config *cfg, struct mail **out);
enum status mail_start(struct mail *m); /* called one time; letters wait until then */
/* Begins a generation: letters of an earlier one are no longer delivered. May be called from any
 * thread. */
void mail_begin(struct mail *m, uint64_t generation);
/* Ends the thread; undelivered letters are lost. NULL is fine, here and below. */
void mail_stop(struct mail *m);
void mail_destroy(struct mail *m);
/* Queues a letter to server `to` of the plan, from the server with the number `self`. Adds a
 * reference to the value. */
enum status mail_put(struct mail *m, const struct net_plan *plan, int self, int to,
                     const struct net_gate_item *item);
/* Returns true if no letter of that generation is left to deliver. */
bool mail_is_empty(struct mail *m, uint64_t generation);

#endif
