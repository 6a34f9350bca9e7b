/* net/exchange/exchange_requests.h - what an exchange's chunks have under way. Private to the
 * exchange's files. */
#ifndef NET_EXCHANGE_EXCHANGE_REQUESTS_H
#define NET_EXCHANGE_EXCHANGE_REQUESTS_H
#include "net/exchange/exchange_impl.h"

/* answers.c: one answer from a server. Not ST_OK: the rest of the frame is not looked at. */
enum status exchange_request_answer(struct link *l, const struct net_piece *piece);
/* Sets the first request of each chunk of the link. */
enum status exchange_request_first(struct link *l, int init);
/* Asks for version `step` of a chunk, or a later one if that is gone. */
enum status exchange_request_version(struct net_exchange *x, int chunk, int64_t step);
/* Makes `item` the chunk's request, or (kind PIECE_NONE) ends the one that it has. 1:
 * exchange_session_report_busy is to be called. Under x->lock. */
int exchange_request_set_item(struct link *l, struct exchange_chunk *c,
                              const struct send_queue_item *item);
/* The chunk's bytes are out of the server's way. Under x->lock. */
void exchange_request_acked(struct link *l, struct exchange_chunk *c);
/* Of the chunk that may have become ready. Under x->lock. */
void exchange_request_wake_waiters(struct net_exchange *x, const struct exchange_chunk *c);
static inline const struct net_chunk *exchange_request_chunk(const struct net_exchange *x, int i)
{
    return &x->cfg.join.chunks->chunks[i];
}
/* Puts every unanswered request of the link in its queue; under x->lock. */
void exchange_request_queue_all(struct link *l);
/* Takes the requests of the next frame: copies to `items`, to which the batch points, each with a
 * reference to its bytes; under x->lock. Returns their number. */
int exchange_request_take(struct link *l, struct send_queue_batch *batch,
                          struct send_queue_item *items);
/* Nothing is queued any more; under x->lock. */
void exchange_request_queue_clear(struct link *l);
/* Neither requests nor versions of any chunk count any more; under x->lock. */
void exchange_request_forget_all(struct net_exchange *x);

#endif
