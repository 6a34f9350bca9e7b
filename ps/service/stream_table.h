/* ps/service/stream_table.h - a server's open streams by number, so that a later answer finds the
 * stream of its piece, or finds that this stream has closed. Each stream has its own lock, held
 * only for a look-up; pieces and answers share no lock. A number is never used twice.
 * Owns:    its table.
 * Threads: any; no lock is held while a stream is used, and close does not wait for its users.
 * Errors:  those that the functions below name. */
#ifndef PS_SERVICE_STREAM_TABLE_H
#define PS_SERVICE_STREAM_TABLE_H
#include "net/rpc/server.h"

enum { STREAM_TABLE_MAX = 16384 };

struct stream_table;
enum status stream_table_create(struct stream_table **out);
void stream_table_destroy(struct stream_table *s); /* NULL is fine. */

/* Returns the new stream's number, or 0 if there is no memory or STREAM_TABLE_MAX are open. */
uint64_t stream_table_open(struct stream_table *s, struct net_stream *stream);
/* Removes the stream; the handler's stream_closed calls it. A thread that found the stream before
 * holds a reference, and its messages are dropped. */
void stream_table_close(struct stream_table *s, uint64_t number);
/* Returns a reference to the stream (net_stream_unref), or NULL if it has closed. */
struct net_stream *stream_table_ref(struct stream_table *s, uint64_t number);
/* Sends the whole of `payload` (net_stream_send); does nothing if the stream has closed. */
void stream_table_send(struct stream_table *s, uint64_t number, const struct net_frame_head *head,
                       const struct net_piece *piece, struct buf *payload);
/* Closes the stream (net_stream_close); does nothing if it has closed. */
void stream_table_end(struct stream_table *s, uint64_t number, const char *why);
/* Marks the stream as one that no known member uses; does nothing if it has closed. */
void stream_table_doubt(struct stream_table *s, uint64_t number);

#endif
