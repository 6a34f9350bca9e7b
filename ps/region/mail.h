/* ps/region/mail.h - what a region's server has to say to others of its region, one letter after
 * the other, each until the receiver has taken it, or its generation is over.
 *
 * Owns:    letters that are not delivered, its channels, a thread.
 * Threads: put and is_empty from any, also under a chunk's lock; the rest from one.
 * Errors:  ST_NOMEM. */
#ifndef PS_REGION_MAIL_H
#define PS_REGION_MAIL_H
#include "net/wire/gate.h"
#include "net/wire/plan.h"

struct mail_config {
    void (*refused)(void *ctx); /* a letter was: this process is to end; logged; no lock held */
    void *ctx;
};

struct mail;
enum status mail_create(const struct mail_config *cfg, struct mail **out);
enum status mail_start(struct mail *m); /* once; letters wait until then */
/* What is of an earlier generation is not delivered any more. Any thread. */
void mail_begin(struct mail *m, uint64_t generation);
/* Ends the thread; what is not delivered is lost. NULL is fine, here and below. */
void mail_stop(struct mail *m);
void mail_destroy(struct mail *m);
/* To that server of the plan, from the one with the number `self`. Takes a reference to the value.
 */
enum status mail_put(struct mail *m, const struct net_plan *plan, int self, int to,
                     const struct net_gate_item *item);
/* Nothing of that generation is left to be delivered. */
int mail_is_empty(struct mail *m, uint64_t generation);

#endif
