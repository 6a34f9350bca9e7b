/* net/exchange/wire_auto.h - a member that takes the number format which the job has (wire_auto of
 * its job): what it asks for, by its line, and what it is told. Private to net/exchange. */
#ifndef NET_EXCHANGE_WIRE_AUTO_H
#define NET_EXCHANGE_WIRE_AUTO_H
#include "net/exchange/exchange_impl.h"

/* Before the first join: waits for ps 0 without end, measures the line, says what it asks for, and
 * why. Nothing where the job's format is known, or the servers have a job. ST_CANCELLED, or what
 * the exchange has failed with. */
enum status wire_auto_propose(struct net_exchange *x);
/* A server has let this member in, and says what the job's format is: it is this member's from now
 * on. Not under the lock. ST_NOMEM. */
enum status wire_auto_adopt(struct net_exchange *x, const struct net_place *place);
/* Room for contributions as they are sent, and for what is not. ST_NOMEM. */
enum status wire_auto_make_staged(struct net_exchange *x);

#endif
