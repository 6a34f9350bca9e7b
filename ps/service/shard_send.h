/* ps/service/shard_send.h - adds chunks of a stopped store to the reply for another server, which
 * has them in the next generation. A reply has a part of a bucket if the bucket is too large for
 * it. Owns:    nothing. Threads: any. Errors:  not logged. */
#ifndef PS_SERVICE_SHARD_SEND_H
#define PS_SERVICE_SHARD_SEND_H
#include "net/wire/fetch.h"
#include "ps/store/store.h"

/* Adds the chunks of the request in order, as many as fit. If a chunk is not in the store, or
 * memory is lacking, reply->refused receives a sentence. */
void shard_send_chunks(struct store *from, const struct net_fetch_request *request,
                       struct net_fetch_reply *reply);

#endif
