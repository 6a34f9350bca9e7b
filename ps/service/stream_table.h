/* ps/service/stream_table.h - a server's open streams by number, so that an answer that comes
 * later finds the stream its piece came on, or learns that it has gone. Each stream has its own
 * lock, held to look it up alone; none is shared by all on the way of a piece or an answer. A
 * number is never used twice.
 * Owns:    its table.
 * Threads: any; no lock is held while a stream is used, nor does close wait for who uses it.
 * Errors:  none but those said below. */
#ifndef PS_SERVICE_STREAM_TABLE_H
#define PS_SERVICE_STREAM_TABLE_H
#include "net/rpc/server.h"

enum { STREAM_TABLE_MAX = 16384 };

struct stream_table;
enum status stream_table_create(struct stream_table **out);
void stream_table_destroy(struct stream_table *s); /* NULL is fine */

/* The stream's number; 0: no memory, or STREAM_TABLE_MAX are open. */
uint64_t stream_table_open(struct stream_table *s, struct net_stream *stream);
/* By the handler's stream_closed: from now on it is not found. Who found it before has a reference,
 * and what it sends is dropped. */
void stream_table_close(struct stream_table *s, uint64_t number);
/* As net_stream_send, with the whole of `payload`; nothing if the stream has closed. */
void stream_table_send(struct stream_table *s, uint64_t number, const struct net_frame_head *head,
                       const struct net_piece *piece, struct buf *payload);
/* As net_stream_close; nothing if the stream has closed. */
void stream_table_end(struct stream_table *s, uint64_t number, const char *why);
/* No member speaks over it any more, as far as is known; nothing if the stream has closed. */
void stream_table_doubt(struct stream_table *s, uint64_t number);

#endif
