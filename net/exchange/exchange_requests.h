/* net/exchange/exchange_requests.h - the pending requests of an exchange's chunks. Private to
 * the exchange's files. */
#ifndef NET_EXCHANGE_EXCHANGE_REQUESTS_H
#define NET_EXCHANGE_EXCHANGE_REQUESTS_H
#include "net/exchange/exchange_impl.h"
#include <stdbool.h>

/* Processes one answer from a server (answers.c). If it does not return ST_OK, the caller
 * ignores the remaining pieces of the frame. */
enum status exchange_request_answer(struct link *l, const struct net_piece *piece);
/* Sets the first request of each chunk of the link. init: the request sends the values in params;
 * otherwise it pulls. */
void exchange_request_first(struct link *l, bool init);
/* Requests version `step` of a chunk, or a later one if that version is gone. */
enum status exchange_request_version(struct net_exchange *x, int chunk, int64_t step);
/* Requests the averages of a chunk at the version in params, for x->averages. */
enum status exchange_request_average(struct net_exchange *x, int chunk);
/* Makes `item` the request of a chunk that has none, with a copy of its marks, and starts to send
 * it. */
enum status exchange_request_start(struct net_exchange *x, int chunk,
                                   const struct send_queue_item *item);
/* Makes `item` the chunk's request, or (kind PIECE_NONE) ends its present request. Returns true if
 * the caller must call exchange_session_report_busy. The caller holds x->lock. */
bool exchange_request_set_item(struct link *l, struct exchange_chunk *c,
                               const struct send_queue_item *item);
/* Subtracts the chunk's bytes from its link's in_flight. The caller holds x->lock. */
void exchange_request_acked(struct link *l, struct exchange_chunk *c);
/* Stores a malloc'd version of the chunk, which is copied to params when gRPC holds no slice of
 * them. The caller holds x->lock. */
void exchange_request_set_late(struct exchange_chunk *c, float *version);
void exchange_request_drop_late(struct exchange_chunk *c); /* under x->lock */
/* Wakes the threads that wait for the chunk, which may have become ready. The caller holds
 * x->lock. */
void exchange_request_wake_waiters(struct net_exchange *x, const struct exchange_chunk *c);
static inline const struct net_chunk *exchange_request_chunk(const struct net_exchange *x, int i)
{
    return &x->cfg.join.chunks->chunks[i];
}
/* Puts every unanswered request of the link in its queue. The caller holds x->lock. */
void exchange_request_queue_all(struct link *l);
/* Removes the requests of the next frame from the queue and copies them to `items`, to which the
 * batch points, each with a reference to its bytes. Returns their number. The caller holds
 * x->lock. */
int exchange_request_next(struct link *l, struct send_queue_batch *batch,
                          struct send_queue_item *items);
/* Empties the queues. The caller holds x->lock. */
void exchange_request_queue_clear(struct link *l);
/* Discards the requests and versions of all chunks. The caller holds x->lock. */
void exchange_request_forget_all(struct net_exchange *x);

#endif
