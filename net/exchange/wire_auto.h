/* net/exchange/wire_auto.h - sets the number format of a member with wire_auto: proposes a format
 * that suits the speed of the line, and adopts the format that the job has. Private to
 * net/exchange. */
#ifndef NET_EXCHANGE_WIRE_AUTO_H
#define NET_EXCHANGE_WIRE_AUTO_H
#include "net/exchange/exchange_impl.h"

/* Waits for ps 0 without limit before the first join, measures the line, and logs which format
 * it proposes and why. Does nothing if the job's format is known or the servers have a job.
 * Returns ST_CANCELLED, or the error of the exchange. */
enum status wire_auto_propose(struct net_exchange *x);
/* Adopts the job's format, which a server has sent in the answer that admits this member. The
 * caller does not hold the lock. ST_NOMEM. */
enum status wire_auto_adopt(struct net_exchange *x, const struct net_place *place);
/* Allocates memory for encoded contributions and for their residuals. ST_NOMEM. */
enum status wire_auto_make_staged(struct net_exchange *x);

#endif
