/* net/exchange/averages.h - fetches the averages of the parameters that the servers keep
 * (optim_config.ema_decay). Owns: nothing. Threads: one at a time. Errors: those of
 * net_exchange_wait. */
#ifndef NET_EXCHANGE_AVERAGES_H
#define NET_EXCHANGE_AVERAGES_H
#include "net/exchange/exchange.h"

/* Requests the averages of all chunks at the versions in params, or, if each chunk advances by
 * itself, the newest ones. Waits until `out`, a flat block in fp32, has all of them. For a chunk
 * without an average, `out` receives its value. The caller has no push or pull pending. After a
 * failure `out` may be partly written, and may still be written until the next
 * net_exchange_start(). */
enum status net_exchange_averages(struct net_exchange *x, float *out);

#endif
