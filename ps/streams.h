/* ps/streams.h - a server's open streams by number, so that an answer that comes later finds the
 * stream its piece came on, or learns that it has gone. Each stream has its own lock; none is
 * shared by all on the way of a piece or an answer. A number is never used twice.
 * Owns:    its table.
 * Threads: any; a stream's lock is held while net_stream_send and net_stream_fail run.
 * Errors:  none but those said below. */
#ifndef PS_STREAMS_H
#define PS_STREAMS_H
#include "net/server.h"

enum { PS_STREAMS_MAX = 16384 };

struct ps_streams;
enum status ps_streams_create(struct ps_streams **out);
void ps_streams_destroy(struct ps_streams *s); /* NULL is fine */

/* The stream's number; 0: no memory, or PS_STREAMS_MAX are open. */
uint64_t ps_streams_open(struct ps_streams *s, struct net_stream *stream);
/* By the handler's stream_closed: afterwards nothing uses the stream any more. */
void ps_streams_close(struct ps_streams *s, uint64_t number);
/* As net_stream_send, with the whole of `payload`; nothing if the stream has closed. */
void ps_streams_send(struct ps_streams *s, uint64_t number, const struct net_frame_head *head,
                     const struct net_piece *piece, struct buf *payload);
/* As net_stream_fail; nothing if the stream has closed. */
void ps_streams_fail(struct ps_streams *s, uint64_t number, const struct net_frame_head *head,
                     const char *why);
/* No member speaks over it any more, as far as is known; nothing if the stream has closed. */
void ps_streams_doubt(struct ps_streams *s, uint64_t number);

#endif
