/* net/rpc/server.h - the RPC server: weir.v1.Weir and grpc.health.v1.Health on one address.
 * Handlers run on the server's own threads and must not block; they may call any function here but
 * stop and destroy. Frames of one stream are handed over one at a time, in order.
 * Owns:    its threads, streams, and a reference to each buffer queued for sending.
 * Memory:  per stream one decoded frame (FRAME_MAX_BYTES) and at most net_stream_set_limit's bytes
 *          of payload by reference; with a member that reads this host's memory, of each chunk the
 *          payload of the last answer, by reference.
 * Threads: net_stream_send and net_stream_fail from any.
 * Errors:  ST_BUSY port in use, ST_INVALID address; logged with the address. */
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

struct net_server;
struct net_stream; /* one Exchange call; alive until stream_closed returned, and while referred to
                    */

struct net_server_handler {
    void *ctx;
    /* Fills *reply; refusals are answers, not errors. peer: "ipv4:10.0.0.7:51234". With
     * reply->segment, payloads go through shared memory where the member is on this host. */
    void (*join)(void *ctx, const struct net_join *req, const char *peer,
                 struct net_join_reply *reply);
    void (*leave)(void *ctx, const struct net_leave *leave);
    /* One piece of a frame; piece and payload are valid for the call. The crc was NOT checked. With
     * piece->shared_offset the payload lies in the member's memory, has no crc, and may change. */
    void (*piece)(void *ctx, struct net_stream *stream, const struct net_frame_head *head,
                  const struct net_piece *piece);
    /* Nothing more comes from or goes to the stream; it is to be looked up no more. */
    void (*stream_closed)(void *ctx, struct net_stream *stream);
    /* Another server's word, valid for the call; answered now or later by net_server_control_reply.
     * NULL: there is nobody to take it. */
    void (*control)(void *ctx, struct net_server *server, const struct net_control *request,
                    uint64_t call);
    /* That call has ended before it was answered, or its connection has; may be NULL. */
    void (*control_closed)(void *ctx, uint64_t call);
    /* Another server wants chunks that this one had; fills *reply by net_fetch_put, from the first
     * on, as many as fit. NULL: it hands on none. */
    void (*fetch)(void *ctx, const struct net_fetch_request *request,
                  struct net_fetch_reply *reply);
    /* Another server's part of a norm, valid for the call; fills *reply. NULL: it takes none. */
    void (*squares)(void *ctx, const struct net_squares *squares, struct net_squares_reply *reply);
    /* Likewise of a region's server, of its chunks. */
    void (*gate)(void *ctx, const struct net_gate *gate, struct net_squares_reply *reply);
};

/* What people ask (status.h); NULL: nobody answers. */
struct net_admin_handlers {
    void *ctx;
    /* A member was let in; may be NULL. */
    void (*joined)(void *ctx, const struct net_join *join);
    /* Fills *out, which is zeros and is freed by the server. ST_NOMEM. */
    enum status (*status)(void *ctx, int with_model, struct net_status *out);
    void (*command)(void *ctx, const struct net_command *command, struct net_command_reply *out);
    /* A worker's evaluation; *out is zeros. */
    void (*evaluated)(void *ctx, const struct net_evaluation *evaluation,
                      struct net_evaluation_reply *out);
    /* A worker's report: in how many ms the next is wanted. NULL: none is. */
    int (*reported)(void *ctx, const struct net_report *report);
};

/* Waits so long; not 0: something else is to be done, and nothing more is tried. */
struct net_server_pause {
    int (*wait)(void *ctx, int ms);
    void *ctx;
};

struct net_server_config {
    const char *addr; /* host:port to listen on: that address, not all interfaces */
    int n_threads;    /* pollers; 0: 2 */
    struct net_server_handler handler;
    struct net_admin_handlers admin;
    size_t max_reply_bytes; /* of answers under way, but for streams' and one that is longer alone;
                               0: 256 MiB */
    struct net_server_pause pause; /* between tries to bind a port that is in use; NULL: one try */
    int max_unauthenticated_calls; /* calls of whom nobody here knows (unauthenticated_calls.h); 0:
                                      128 */
};

/* The port is this server's, and nobody is heard before the start. */
enum status net_server_bind(const struct net_server_config *cfg, struct net_server **out);
/* Once. admin: instead of the config's; NULL: those. */
void net_server_start(struct net_server *s, const struct net_admin_handlers *admin);
/* Both. */
enum status net_server_create(const struct net_server_config *cfg, struct net_server **out);
int net_server_port(const struct net_server *s); /* the bound port, also if addr asked for 0 */
/* Refuses new calls, lets queued answers go out for at most grace_ms, then ends every call. */
void net_server_stop(struct net_server *s, int64_t grace_ms);
void net_server_destroy(struct net_server *s); /* stops first; NULL is fine */

/* Answers a call that the handler was given; nothing if it has ended. reply: NULL if nobody here
 * coordinates, or the caller is to come again (`later`). */
void net_server_control_reply(struct net_server *s, uint64_t call,
                              const struct net_control_reply *reply);

/* For who sends from another thread than the handler's: what is sent after the stream closed is
 * dropped. The server's stop waits until all references are back. */
void net_stream_ref(struct net_stream *stream);
void net_stream_unref(struct net_stream *stream);
/* Queues one answer. head/piece: copied (payload field ignored). payload: NULL, or a buffer of
 * which a reference is taken until the bytes are sent (or read, if it lies in the segment of the
 * join's reply); [offset, offset + bytes) of it goes out.
 * After the stream broke it is dropped silently. */
void net_stream_send(struct net_stream *stream, const struct net_frame_head *head,
                     const struct net_piece *piece, struct buf *payload, size_t offset,
                     size_t bytes);
/* Payload that may wait to be sent (at first 64 MiB); a peer for which more would is cut off. */
void net_stream_set_limit(struct net_stream *stream, size_t bytes);
/* 1: a member speaks over it; 0, as at first: it is one of those of which there may not be many
 * (unauthenticated_calls.h). */
void net_stream_trust(struct net_stream *stream, int trusted);
/* Ends the stream; its member is to join again. */
void net_stream_close(struct net_stream *stream, const char *why);
/* Sends REFUSED with `why`, then ends the stream. */
void net_stream_fail(struct net_stream *stream, const struct net_frame_head *head, uint32_t chunk,
                     const char *why);
/* 1: its member and this server read each other's memory, so that they are on one host and payloads
 * to it need no checksum (crc32c 0). */
int net_stream_is_local(const struct net_stream *stream);
const char *net_stream_peer(const struct net_stream *stream);
/* A place for the handler's own pointer (the member it belongs to); NULL at first. */
void net_stream_set_user(struct net_stream *stream, void *user);
void *net_stream_user(struct net_stream *stream);

#endif
