/* net/rpc/server.h - the RPC server: weir.v1.Weir and grpc.health.v1.Health on one address.
 * Handlers run on the server's own threads and must not block; they may call any function here
 * except stop and destroy. The handler receives the frames of one stream one at a time, in
 * order.
 * Owns:    its threads, streams, and a reference to each buffer queued for sending.
 * Memory: per stream one decoded frame (FRAME_MAX_BYTES) and at most net_stream_set_limit's
 * bytes of payload by reference; for a member that reads this host's memory, also the payload of
 * each chunk's last answer, by reference.
 * Threads: any thread may call net_stream_send and net_stream_fail.
 * Errors:  ST_BUSY (the port is in use), ST_INVALID (the address), ST_NOMEM (no descriptor, memory
 *          or thread); logged. ST_CANCELLED (the pause ended the attempts); not logged. */
#ifndef NET_RPC_SERVER_H
#define NET_RPC_SERVER_H
#include "base/buf.h"
#include "net/wire/control.h"
#include "net/wire/fetch.h"
#include "net/wire/frame.h"
#include "net/wire/gate.h"
#include "net/wire/job.h"
#include "net/wire/report.h"
#include "net/wire/squares.h"
#include "net/wire/status.h"
#include <stdbool.h>

struct net_server;
/* Exchange call; exists until stream_closed has returned and all references are released */
struct net_stream;

struct net_server_handler {
    void *ctx;
    /* Fills *reply; refusals are answers, not errors. peer: "ipv4:10.0.0.7:51234". If the
     * handler sets reply->segment, payloads for a member on this host pass through shared
     * memory. */
    void (*join)(void *ctx, const struct net_join *req, const char *peer,
                 struct net_join_reply *reply);
    void (*leave)(void *ctx, const struct net_leave *leave);
    /* Receives one piece of a frame; piece and payload are valid until this function returns. The
     * crc was NOT checked. If piece->shared_offset is set, the payload is in the member's memory,
     * has no crc, and may change. */
    void (*piece)(void *ctx, struct net_stream *stream, const struct net_frame_head *head,
                  const struct net_piece *piece);
    /* Notes that the stream is closed: the handler must not look it up any more. */
    void (*stream_closed)(void *ctx, struct net_stream *stream);
    /* Receives another server's state. request is valid until this function returns.
     * net_server_control_reply answers `call`, now or later. NULL: this server refuses such
     * calls. */
    void (*control)(void *ctx, struct net_server *server, const struct net_control *request,
                    uint64_t call);
    /* Notes that the call, or its connection, has ended before the answer; may be NULL. */
    void (*control_closed)(void *ctx, uint64_t call);
    /* Answers another server's request for chunks that this server had: adds as many as fit to
     * *reply with net_fetch_put, in the order of the request. NULL: this server sends no chunks. */
    void (*fetch)(void *ctx, const struct net_fetch_request *request,
                  struct net_fetch_reply *reply);
    /* Receives another server's part of a gradient norm, valid until this function returns; fills
     * *reply. NULL: this server refuses such calls. */
    void (*squares)(void *ctx, const struct net_squares *squares, struct net_squares_reply *reply);
    /* Receives a message about the chunks of another server of the region, valid until this
     * function returns; fills *reply. NULL: this server refuses such calls. */
    void (*gate)(void *ctx, const struct net_gate *gate, struct net_squares_reply *reply);
};

/* Answers to operators' requests (status.h); NULL: such a request is refused. */
struct net_admin_handlers {
    void *ctx;
    /* Notes that a member was admitted; may be NULL. */
    void (*joined)(void *ctx, const struct net_join *join);
    /* Fills *out, which is zeros and is freed by the server. ST_NOMEM. */
    enum status (*status)(void *ctx, int with_model, struct net_status *out);
    void (*command)(void *ctx, const struct net_command *command, struct net_command_reply *out);
    /* Receives a worker's evaluation; *out is zeros. */
    void (*evaluated)(void *ctx, const struct net_evaluation *evaluation,
                      struct net_evaluation_reply *out);
    /* Receives a worker's report. Returns the milliseconds until the next one is due. NULL: no
     * reports are needed. */
    int (*reported)(void *ctx, const struct net_report *report);
};

/* Function that waits for `ms`. It returns true if the server must not try again, because the
 * program has other work, such as to shut down. */
struct net_server_pause {
    bool (*wait)(void *ctx, int ms);
    void *ctx;
};

struct net_server_config {
    const char *addr; /* host:port to listen on: that address, not all interfaces */
    int n_threads;    /* number of threads that serve calls; 0: 2 */
    struct net_server_handler handler;
    struct net_admin_handlers admin;
    /* limit for all answers in flight, except those of streams; a longer answer is sent only while
     * no other is in flight; 0: 256 MiB */
    size_t max_reply_bytes;
    /* waits between attempts to bind a port that is in use; pause.wait NULL: one attempt */
    struct net_server_pause pause;
    /* limit for calls whose sender has not proved its identity (unauthenticated_calls.h); 0: 128 */
    int max_unauthenticated_calls;
};

/* Binds the port. No call is accepted before net_server_start. */
enum status net_server_bind(const struct net_server_config *cfg, struct net_server **out);
/* Starts to accept calls; called once. admin replaces the handlers of the config; NULL: the
 * config's stay. */
void net_server_start(struct net_server *s, const struct net_admin_handlers *admin);
/* Binds the port and starts the server. */
enum status net_server_create(const struct net_server_config *cfg, struct net_server **out);
int net_server_port(const struct net_server *s); /* the bound port, even if addr has port 0 */
/* Refuses new calls, sends queued answers for at most grace_ms, then ends every call. */
void net_server_stop(struct net_server *s, int64_t grace_ms);
void net_server_destroy(struct net_server *s); /* stops first; NULL is fine */

/* Answers the call with this number, which `control` has received; does nothing if the call has
 * ended. reply: NULL if this server does not coordinate. If reply->later is not empty, the caller
 * must repeat the call. */
void net_server_control_reply(struct net_server *s, uint64_t call,
                              const struct net_control_reply *reply);

/* Adds a reference for a sender on another thread than the handler's. An answer sent after the
 * stream has closed is dropped. net_server_stop waits until all references are released. */
void net_stream_ref(struct net_stream *stream);
void net_stream_unref(struct net_stream *stream);
/* Queues one answer. head and piece are copied, except the field payload. payload: NULL, or a
 * buffer whose bytes [offset, offset + bytes) are sent. The server holds a reference to the buffer
 * until its bytes are sent, or, if the buffer is in the segment of the join's reply, until they are
 * read. If the stream is broken, the answer is dropped silently. */
void net_stream_send(struct net_stream *stream, const struct net_frame_head *head,
                     const struct net_piece *piece, struct buf *payload, size_t offset,
                     size_t bytes);
/* Sets the limit of queued payload (at first 64 MiB); a peer that exceeds it is cut off. */
void net_stream_set_limit(struct net_stream *stream, size_t bytes);
/* Sets whether a member uses the stream; at first no member does. While no member does, the stream
 * counts towards the limit on unauthenticated calls (unauthenticated_calls.h). */
void net_stream_trust(struct net_stream *stream, bool trusted);
/* Ends the stream; its member must join again. */
void net_stream_close(struct net_stream *stream, const char *why);
/* Sends REFUSED with `why`, then ends the stream. */
void net_stream_fail(struct net_stream *stream, const struct net_frame_head *head, uint32_t chunk,
                     const char *why);
/* Returns true if the stream's member and this server read each other's memory. Then both are on
 * one host. */
bool net_stream_is_local(const struct net_stream *stream);
/* Returns true if payloads have checksums: the member is not local, and no TLS checks its bytes.
 * Otherwise crc32c may be 0. */
bool net_stream_is_summed(const struct net_stream *stream);
const char *net_stream_peer(const struct net_stream *stream);
/* Stores the handler's own pointer (the member that the stream belongs to); NULL at first. */
void net_stream_set_user(struct net_stream *stream, void *user);
void *net_stream_user(struct net_stream *stream);

#endif
