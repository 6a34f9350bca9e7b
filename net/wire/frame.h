/* net/wire/frame.h - message Frame of weir.proto: decoding in place, encoding without copying
 * payloads.
 *
 * A decoder walks spans (gRPC hands out slices of up to 64 KB, cut anywhere) and accepts the fields
 * in any order, as protobuf allows; unknown fields are skipped. The encoder writes what protobuf's
 * own would: fields in order of their numbers, zero values left out, payload last and by reference.
 *
 * Owns:    nothing; decoded payloads point into the spans.
 * Threads: any.
 * Errors:  ST_PROTOCOL with the reason in `why`: truncated, oversized, too many pieces. */
#ifndef NET_WIRE_FRAME_H
#define NET_WIRE_FRAME_H
#include "base/status.h"
#include "kernels/vector/dtype.h"
#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_MAX_PIECES = 1024,
    FRAME_MAX_BYTES = 8 << 20,
    FRAME_MAX_WHY = 511,
    FRAME_HEAD_MAX = 64, /* bytes of an encoded frame head at most */
    PIECE_HEAD_MAX = 96 + FRAME_MAX_WHY + 8,
};

enum piece_kind {
    PIECE_NONE = 0,
    PIECE_PULL = 1,
    PIECE_PUSH = 2,
    PIECE_INIT = 3,
    PIECE_VERSION = 16,
    PIECE_APPLIED = 17,
    PIECE_DUPLICATE = 18,
    PIECE_STALE = 19,
    PIECE_WRONG_SHARD = 20,
    PIECE_REBASE = 21,
    PIECE_REFUSED = 22,
    PIECE_TAKEN = 23,
};

struct net_span {
    const uint8_t *data;
    size_t n;
};

struct segment;

/* A run of bytes inside a list of spans. */
struct net_payload {
    const struct net_span *span; /* first span */
    size_t skip;                 /* bytes to skip in it */
    size_t bytes;                /* length of the run */
};

struct net_piece {
    enum piece_kind kind;
    uint32_t chunk;
    uint64_t step;
    float weight;
    uint32_t crc32c;
    int unsummed; /* not from the wire: crc32c is 0, and the peer, on this host, need not give one;
                     or the payload crossed by reference */
    enum dtype dtype; /* of the payload; PULL: of the one wanted; from the wire: unchecked */
    char why[FRAME_MAX_WHY + 1];
    struct net_payload payload;
    /* Instead of a payload, where it lies in the sender's segment (segment.h): 1 + offset, 0: it
     * does not; from the wire: unchecked. */
    uint64_t shared_offset;
    uint32_t shared_bytes;
    uint64_t shared_stamp; /* down: it was stamped so */
    int shared;            /* up: the answer may come so */
    int ask_taken;         /* up: TAKEN is wanted */
    uint64_t samples;      /* down: 1 + the first sample of the receiver's next step; 0: not said */
};

struct net_frame_head {
    uint64_t generation;
    uint32_t member;
    uint64_t incarnation;
};

/* 1: the same member speaks, in the same generation. */
static inline int frame_same_head(const struct net_frame_head *a, const struct net_frame_head *b)
{
    return a->generation == b->generation && a->member == b->member &&
           a->incarnation == b->incarnation;
}

/* Decodes a frame. Head first (wherever it stands), then each piece is given to on_piece, in order,
 * until one returns other than ST_OK (passed on). why: at least 128 bytes. */
enum status frame_decode(const struct net_span *spans, size_t n_spans, struct net_frame_head *head,
                         enum status (*on_piece)(void *ctx, const struct net_frame_head *head,
                                                 const struct net_piece *piece),
                         void *ctx, char *why, size_t why_bytes);

/* Encodes the frame's own fields; returns their length, at most FRAME_HEAD_MAX. */
size_t frame_encode_head(const struct net_frame_head *head, uint8_t *out);
/* Encodes tag and length of a piece and all its fields up to the payload's bytes, which follow
 * (payload_bytes of them, from elsewhere). Returns the length, at most PIECE_HEAD_MAX. */
size_t frame_encode_piece_head(const struct net_piece *piece, size_t payload_bytes, uint8_t *out);

/* Gives a piece whose payload lies in the sender's segment that payload, by way of *span. 0: it is
 * not inside, or the piece carries a payload as well; NULL has no inside. */
int payload_find(const struct segment *segment, struct net_piece *piece, struct net_span *span);
/* CRC-32C of the payload. */
uint32_t payload_crc32c(const struct net_payload *p);
/* The first of its n elements that is not finite; SIZE_MAX: there is none. */
size_t payload_first_bad(const struct net_payload *p, enum dtype d, size_t n);
/* Likewise the first of a magnitude above `limit`, above 0 and finite, or not finite. */
size_t payload_first_above(const struct net_payload *p, enum dtype d, size_t n, float limit);
/* Calls fn for runs of its n elements of d, in order: src has any alignment, `first` counts
 * elements and is a multiple of `unit`, which is one of d's block and at most DTYPE_BLOCK_MAX. What
 * the end of a span cuts is put together. The payload has dtype_bytes(d, n). */
void payload_each_run(const struct net_payload *p, enum dtype d, size_t n, size_t unit,
                      void (*fn)(void *ctx, size_t first, const void *src, size_t n), void *ctx);
/* Copies all of it to dst. */
void payload_copy(const struct net_payload *p, void *dst);
/* Decodes all of it, n elements of dtype d, to dst. crc: NULL, or where its CRC-32C goes, worked
 * out while the bytes are in cache. */
void payload_decode(const struct net_payload *p, enum dtype d, size_t n, float *dst, uint32_t *crc);

#endif
