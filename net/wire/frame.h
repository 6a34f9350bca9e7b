/* net/wire/frame.h - message Frame of weir.proto: decoding in place, encoding without copying
 * payloads.
 *
 * A decoder walks spans (gRPC returns slices of up to 64 KB, which may end anywhere) and accepts
 * the fields in any order, as protobuf allows; unknown fields are skipped. The encoder writes the
 * fields as protobuf's encoder does, in the order of their numbers and without zero values, except
 * that the payload, which is passed by reference, is last, even after fields with higher numbers.
 *
 * Owns:    nothing; decoded payloads point into the spans.
 * Threads: any.
 * Errors:  ST_PROTOCOL with the reason in `why`: truncated, oversized, too many pieces. */
#ifndef NET_WIRE_FRAME_H
#define NET_WIRE_FRAME_H
#include "base/status.h"
#include "net/wire/payload.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_MAX_PIECES = 1024,
    FRAME_MAX_BYTES = 8 << 20,
    FRAME_MAX_WHY = 511,
    FRAME_HEAD_MAX = 64, /* longest encoded frame head */
    PIECE_HEAD_MAX = 118 + FRAME_MAX_WHY + 8,
};

enum piece_kind {
    PIECE_NONE = 0,
    PIECE_PULL = 1,
    PIECE_PUSH = 2,
    PIECE_INIT = 3,
    PIECE_PULL_AVERAGE = 4,
    PIECE_VERSION = 16,
    PIECE_APPLIED = 17,
    PIECE_DUPLICATE = 18,
    PIECE_STALE = 19,
    PIECE_WRONG_SHARD = 20,
    PIECE_REBASE = 21,
    PIECE_REFUSED = 22,
    PIECE_TAKEN = 23,
    PIECE_AVERAGE = 24,
};

struct net_piece {
    enum piece_kind kind;
    uint32_t chunk;
    uint64_t step;
    float weight;
    uint32_t crc32c;
    bool unsummed; /* not a field on the wire: crc32c is 0, which is valid by TLS, if the peer is
                      on this host, or if the payload was passed by reference */
    /* dtype of the payload, or (PULL) of the requested version; the decoder does not check it */
    enum dtype dtype;
    char why[FRAME_MAX_WHY + 1];
    struct net_payload payload;
    /* not a field on the wire: segment that contains the payload; NULL: the payload is valid until
     * the receiver returns */
    struct segment *memory;
    /* Position of the payload in the sender's segment (segment.h), instead of a payload: 1 +
     * offset; 0: the piece contains the payload. The decoder does not check it. */
    uint64_t shared_offset;
    uint32_t shared_bytes;
    uint64_t shared_stamp; /* down (server to member): stamp of the payload */
    bool shared;           /* up (member to server): the answer may use shared memory */
    bool placed;    /* PUSH: the version may be written to the sender's `values`; down: it was */
    bool ask_taken; /* up: the sender requests TAKEN */
    /* PUSH: factor of the learning rate for the version that includes this contribution; without
     * the field it is 1. The decoder does not check it. */
    bool has_rate;
    float rate;
    uint64_t samples; /* down: 1 + the first sample of the receiver's next step; 0: unset */
    /* up: marks of the parameters whose gradient the contribution lacks (lacking.h). No bytes: the
     * contribution has all gradients. The decoder does not check them. */
    struct net_payload lacking;
    /* counts of keys of a payload to or from a bucket (rows.h); the decoder does not check them */
    uint32_t rows, reads;
};

/* Returns the factor of the learning rate that a contribution asks for. */
static inline float piece_rate(const struct net_piece *piece)
{
    return piece->has_rate ? piece->rate : 1;
}

struct net_frame_head {
    uint64_t generation;
    uint32_t member;
    uint64_t incarnation;
};

/* Returns true if the same member sent both frames, in the same generation. */
static inline bool frame_same_head(const struct net_frame_head *a, const struct net_frame_head *b)
{
    return a->generation == b->generation && a->member == b->member &&
           a->incarnation == b->incarnation;
}

/* Decodes a frame: first the head, wherever it is in the frame, then each piece, in order, which it
 * passes to on_piece. A status other than ST_OK from on_piece ends the decoding and is returned.
 * why: room for at least 128 bytes. */
enum status frame_decode(const struct net_span *spans, size_t n_spans, struct net_frame_head *head,
                         enum status (*on_piece)(void *ctx, const struct net_frame_head *head,
                                                 const struct net_piece *piece),
                         void *ctx, char *why, size_t why_bytes);

/* Encodes the frame's own fields; returns their length, at most FRAME_HEAD_MAX. */
size_t frame_encode_head(const struct net_frame_head *head, uint8_t *out);
/* Encodes tag and length of a piece and all its fields before the payload. The caller appends the
 * payload's payload_bytes bytes. Returns the encoded length: at most PIECE_HEAD_MAX plus the length
 * of `lacking`, which is at most LACKING_MAX_BYTES. */
size_t frame_encode_piece_head(const struct net_piece *piece, size_t payload_bytes, uint8_t *out);

#endif
